/* Asynchronous calls: many at once, and exchanges in which each side does something else before the call that the other
 * side waits for. */
#include <string.h>

#include "program.h"

/* Twenty calls at once; blocking ones come after those begun before them. */
void run_requests(void) {
  enum { CALLS = 20 };
  double x[CALLS];
  amldist_request* requests[CALLS];
  for (int i = 0; i < CALLS; ++i) {
    x[i] = rank + i;
    OK(amldist_iallreduce(world, &x[i], &x[i], 1, AMLDIST_FLOAT64, AMLDIST_SUM, &requests[i]));
  }
  double last = rank;
  OK(amldist_allreduce(world, &last, &last, 1, AMLDIST_FLOAT64, AMLDIST_MAX));
  CHECK(last == size - 1);
  for (int i = 0, done = 0; i < CALLS; ++i, done = 0) {
    while (!done) OK(amldist_test(&requests[i], &done));
    CHECK(requests[i] == NULL && x[i] == size * (size - 1) / 2.0 + size * i);
  }
}

/* ---- short messages, which mostly end while they begin ---- */
static void told(int status, void* context) {
  OK(status);
  ++*(int*)context;
}
static void end_request(amldist_request** request, int way) {
  int done = 0, called = 0;
  if (way == 0) OK(amldist_wait(request));
  while (way == 1 && !done) OK(amldist_test(request, &done));
  while (way == 2 && !done) OK(amldist_wait_for(request, 1000, &done));
  if (way == 3) {
    OK(amldist_on_complete(*request, told, &called));
    OK(amldist_wait(request));
    CHECK(called == 1);
  }
  CHECK(*request == NULL);
}

void run_short_messages(void) {
  enum { WAYS = 4, EACH = 10 };
  const int next = (rank + 1) % size, last = (rank + size - 1) % size;
  for (int round = 0; round < 20; ++round) {
    int32_t given[WAYS * EACH], got[WAYS * EACH];
    amldist_request *sends[WAYS * EACH], *receives[WAYS * EACH];
    for (int i = 0; i < WAYS * EACH; ++i) given[i] = rank + 1000 * i + round, got[i] = -1;
    /* With and without tags; the receives come after the messages, or before them. */
    for (int turn = 0; turn < 2; ++turn) {
      for (int i = 0; i < WAYS * EACH; ++i) {
        const int is_tagged = i % 2;
        if ((turn == 0) == (round % 2 == 0) && is_tagged)
          OK(amldist_isend_tagged(world, &given[i], 1, AMLDIST_INT32, next, i, &sends[i]));
        else if ((turn == 0) == (round % 2 == 0))
          OK(amldist_isend(world, &given[i], 1, AMLDIST_INT32, next, &sends[i]));
        else if (is_tagged) OK(amldist_irecv_tagged(world, &got[i], 1, AMLDIST_INT32, last, i, NULL, &receives[i]));
        else OK(amldist_irecv(world, &got[i], 1, AMLDIST_INT32, last, &receives[i]));
      }
      if (round % 4 < 2) OK(amldist_barrier(world));
    }
    for (int i = 0; i < WAYS * EACH; ++i) {
      end_request(&sends[i], i % WAYS);
      end_request(&receives[i], (i + round) % WAYS);
      CHECK(got[i] == last + 1000 * i + round);
    }
  }
}

/* ---- crossing ---- */
/* More than any layer buffers for a receive that is not yet posted. */
enum { MOST = 1 << 20 };
static int32_t sent[MOST], received[MOST];
static size_t count;
static int partner;
static amldist_request *sending, *receiving;

static void begin_send(void) { OK(amldist_isend(world, sent, count, AMLDIST_INT32, partner, &sending)); }
static void begin_receive(void) { OK(amldist_irecv(world, received, count, AMLDIST_INT32, partner, &receiving)); }
static void send_now(void) { OK(amldist_send(world, sent, count, AMLDIST_INT32, partner)); }
static void receive_now(void) { OK(amldist_recv(world, received, count, AMLDIST_INT32, partner)); }
static void look(void) {
  int done = 0;
  OK(amldist_test(&receiving, &done));
}
static void finish(void) {
  OK(amldist_wait(&sending));
  OK(amldist_wait(&receiving));
}
static void sum(void) {
  int32_t ranks = 1;
  OK(amldist_allreduce(world, &ranks, &ranks, 1, AMLDIST_INT32, AMLDIST_SUM));
  CHECK(ranks == size);
}
static void divide(void) {
  amldist_comm* same = NULL;
  OK(amldist_split(world, 0, rank, &same));
  OK(amldist_finalize(same));
}
static void poll_until_received(void) {
  for (int done = 0; !done;) OK(amldist_test(&receiving, &done));
}

/* What even and odd ranks do, in their order. Every line ends without help of the other's next line only where messages
 * move on their own. */
static const struct {
  const char* name;
  void (*even[5])(void);
  void (*odd[5])(void);
} exchanges[] = {
    {"a receive is tested before the send that its peer needs",
     {begin_receive, look, begin_send, finish},
     {receive_now, send_now}},
    {"a receive is tested before the blocking send that its peer needs",
     {begin_receive, look, send_now, finish},
     {receive_now, send_now}},
    {"both receive in advance, send and wait", {begin_receive, send_now, finish}, {begin_receive, send_now, finish}},
    {"both test what they receive in advance, send and wait",
     {begin_receive, look, begin_send, poll_until_received, finish},
     {begin_receive, look, begin_send, poll_until_received, finish}},
    {"both send before they receive", {begin_send, receive_now, finish}, {begin_send, receive_now, finish}},
    {"a collective comes before the send that a receive waits for",
     {begin_receive, look, sum, send_now, finish},
     {sum, send_now, receive_now}},
    {"a split comes before the send that a receive waits for",
     {begin_receive, look, divide, send_now, finish},
     {divide, send_now, receive_now}},
};

static void run_exchange(size_t number) {
  for (size_t i = 0; i < count; ++i) sent[i] = (int32_t)(i * 7 + (size_t)rank), received[i] = -1;
  void (*const* steps)(void) = rank % 2 == 0 ? exchanges[number].even : exchanges[number].odd;
  /* The one rank that is left over only takes part in what all do. */
  for (size_t s = 0; s < 5 && steps[s] != NULL; ++s) {
    if (partner < size || steps[s] == sum || steps[s] == divide) steps[s]();
  }
  for (size_t i = 0; i < count && partner < size; ++i) CHECK(received[i] == (int32_t)(i * 7 + (size_t)partner));
}

void run_crossing(void) {
  static const size_t counts[] = {0, 1, 3000, MOST};
  partner = rank ^ 1;
  OK(amldist_set_timeout(world, 120000)); /* a hang is an error; a rank without a partner waits for all that pairs do */
  for (size_t e = 0; e < sizeof exchanges / sizeof *exchanges; ++e) {
    for (size_t c = 0; c < sizeof counts / sizeof *counts; ++c) {
      count = counts[c];
      for (int times = 0; times < 3; ++times) {
        if (getenv("TELL") != NULL && rank == 0) fprintf(stderr, "%s, %zu elements\n", exchanges[e].name, count);
        run_exchange(e);
      }
    }
  }
}

/* A request in flight with one peer does not block messages with another: rank 0 waits for the last rank's message,
 * which only comes when the ranks between have been served. */
void run_relay(void) {
  int32_t first = 0, token = rank;
  amldist_request* last = NULL;
  if (size < 3) return;
  if (rank == 0) {
    int done = 0;
    OK(amldist_irecv(world, &first, 1, AMLDIST_INT32, size - 1, &last));
    OK(amldist_test(&last, &done));
    OK(amldist_send(world, &token, 1, AMLDIST_INT32, 1));
    OK(amldist_wait(&last));
    CHECK(first == size - 1);
    return;
  }
  OK(amldist_recv(world, &first, 1, AMLDIST_INT32, rank - 1));
  CHECK(first == rank - 1);
  OK(amldist_send(world, &token, 1, AMLDIST_INT32, (rank + 1) % size));
}
