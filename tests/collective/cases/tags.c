/* Messages with tags: each receive gets the message of its tag, whatever came before it, and may take it from any rank.
 */
#include <string.h>

#include "program.h"

enum { TAGS = 4, LONGEST = 300000 };

static int after(void) { return (rank + 1) % size; }
static int before(void) { return (rank + size - 1) % size; }
static size_t length_of(int tag) { return tag == 0 ? 0 : tag == 1 ? 1 : tag == 2 ? 5000 : LONGEST; }
static int32_t value_of(int from, int tag, size_t i) { return (int32_t)(from * 1000003 + tag * 7919 + (int)i); }

static int32_t out[TAGS][LONGEST], in[TAGS][LONGEST];

static void fill_out(void) {
  for (int tag = 0; tag < TAGS; ++tag) {
    for (size_t i = 0; i < length_of(tag); ++i) out[tag][i] = value_of(rank, tag, i);
  }
  memset(in, 0, sizeof in);
}
static void expect_in(int tag, int from) {
  for (size_t i = 0; i < length_of(tag); ++i) CHECK(in[tag][i] == value_of(from, tag, i));
}

/* Sent from the first to the last tag, and received in `order`; blocking or all at once. */
static void in_order(const int* order, int at_once) {
  amldist_request *sends[TAGS], *receives[TAGS];
  int sources[TAGS];
  fill_out();
  for (int tag = 0; tag < TAGS; ++tag) {
    OK(amldist_isend_tagged(world, out[tag], length_of(tag), AMLDIST_INT32, after(), tag, &sends[tag]));
  }
  for (int i = 0; i < TAGS; ++i) {
    const int tag = order[i], any = i % 2;
    const int from = any ? AMLDIST_ANY_SOURCE : before();
    sources[tag] = -1;
    if (at_once) {
      OK(amldist_irecv_tagged(world, in[tag], length_of(tag), AMLDIST_INT32, from, tag, &sources[tag], &receives[tag]));
    } else {
      OK(amldist_recv_tagged(world, in[tag], length_of(tag), AMLDIST_INT32, from, tag, &sources[tag]));
    }
  }
  for (int tag = 0; tag < TAGS; ++tag) {
    if (at_once) OK(amldist_wait(&receives[tag]));
    OK(amldist_wait(&sends[tag]));
    CHECK(sources[tag] == before());
    expect_in(tag, before());
  }
}

/* Rank 0 takes three messages of each other rank as they come; those of one rank come in their order. */
static void from_anybody(void) {
  enum { EACH = 3 };
  int32_t number;
  int source, seen[64] = {0};
  if (rank != 0) {
    for (int i = 0; i < EACH; ++i) {
      number = rank * EACH + i;
      OK(amldist_send_tagged(world, &number, 1, AMLDIST_INT32, 0, 70));
    }
    return;
  }
  for (int i = 0; i < EACH * (size - 1); ++i) {
    OK(amldist_recv_tagged(world, &number, 1, AMLDIST_INT32, AMLDIST_ANY_SOURCE, 70, &source));
    CHECK(source > 0 && source < size && number == source * EACH + seen[source]);
    ++seen[source];
  }
  for (int r = 1; r < size; ++r) CHECK(seen[r] == EACH);
}

/* Messages with and without tags do not wait for each other. */
static void beside_plain_ones(void) {
  int32_t tagged = rank, plain = rank + 100, got_tagged = -1, got_plain = -1;
  amldist_request *first, *second;
  OK(amldist_isend_tagged(world, &tagged, 1, AMLDIST_INT32, after(), 5, &first));
  OK(amldist_isend(world, &plain, 1, AMLDIST_INT32, after(), &second));
  OK(amldist_recv(world, &got_plain, 1, AMLDIST_INT32, before()));
  OK(amldist_recv_tagged(world, &got_tagged, 1, AMLDIST_INT32, before(), 5, NULL));
  CHECK(got_plain == before() + 100 && got_tagged == before());
  OK(amldist_wait(&first));
  OK(amldist_wait(&second));
  OK(amldist_group_begin(world));
  OK(amldist_send_tagged(world, &tagged, 1, AMLDIST_INT32, after(), 6));
  OK(amldist_recv(world, &got_plain, 1, AMLDIST_INT32, before()));
  OK(amldist_recv_tagged(world, &got_tagged, 1, AMLDIST_INT32, before(), 6, NULL));
  OK(amldist_send(world, &plain, 1, AMLDIST_INT32, after()));
  OK(amldist_group_end(world));
  CHECK(got_plain == before() + 100 && got_tagged == before());
}

/* A collective comes between the send and the receive. */
static void around_collectives(void) {
  int32_t number = rank, got = -1, ranks = 1;
  amldist_request *sending, *receiving;
  OK(amldist_irecv_tagged(world, &got, 1, AMLDIST_INT32, AMLDIST_ANY_SOURCE, 8, NULL, &receiving));
  OK(amldist_allreduce(world, &ranks, &ranks, 1, AMLDIST_INT32, AMLDIST_SUM));
  OK(amldist_isend_tagged(world, &number, 1, AMLDIST_INT32, before(), 8, &sending));
  OK(amldist_barrier(world));
  OK(amldist_wait(&receiving));
  OK(amldist_wait(&sending));
  CHECK(got == after() && ranks == size);
}

static void refused(int status, const char* word) {
  CHECK(status == AMLDIST_EINVAL && strstr(amldist_last_error(), word) != NULL);
}

void run_tags(void) {
  static const int orders[][TAGS] = {{0, 1, 2, 3}, {3, 2, 1, 0}, {2, 0, 3, 1}};
  int32_t x = 0;
  for (int at_once = 0; at_once < 2; ++at_once) {
    for (size_t i = 0; i < sizeof orders / sizeof *orders; ++i) in_order(orders[i], at_once);
  }
  OK(amldist_barrier(world)); /* messages of any rank are told apart by their tags only */
  from_anybody();
  OK(amldist_barrier(world));
  beside_plain_ones();
  around_collectives();
  refused(amldist_send_tagged(world, &x, 1, AMLDIST_INT32, 0, -1), "tag -1 is negative");
  refused(amldist_recv_tagged(world, &x, 1, AMLDIST_INT32, 0, -7, NULL), "tag -7 is negative");
  refused(amldist_send_tagged(world, &x, 1, AMLDIST_INT32, AMLDIST_ANY_SOURCE, 1), "peer -1");
  refused(amldist_recv(world, &x, 1, AMLDIST_INT32, AMLDIST_ANY_SOURCE), "peer -1");
  refused(amldist_recv_tagged(world, &x, 1, AMLDIST_INT32, size, 1, NULL), "peer");
  refused(amldist_recv_tagged(world, NULL, 1, AMLDIST_INT32, 0, 1, NULL), "NULL");
}

/* A receive of another length than the message of its tag: both ranks hear of it. */
void run_other_lengths(void) {
  int32_t x[2] = {1, 2};
  amldist_request* request = NULL;
  if (rank == 1) OK(amldist_isend_tagged(world, x, 2, AMLDIST_INT32, 0, 4, &request));
  const int met = amldist_barrier(world); /* rank 0 may have left it, and failed, while others are still in it */
  CHECK(met == AMLDIST_OK || (rank != 0 && met == AMLDIST_EPEER));
  if (rank == 0) {
    CHECK(amldist_recv_tagged(world, x, 1, AMLDIST_INT32, AMLDIST_ANY_SOURCE, 4, NULL) == AMLDIST_EPEER);
    CHECK(strstr(amldist_last_error(), "sends another message") != NULL);
    return;
  }
  while (amldist_health(world) == AMLDIST_OK) {
  }
  CHECK(amldist_health(world) == AMLDIST_EPEER);
  if (request != NULL) amldist_wait(&request); /* its result depends on how far it came */
}
