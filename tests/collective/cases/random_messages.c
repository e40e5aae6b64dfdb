/* Messages by chance: from each rank to each, with and without tags, of all lengths, begun in any order, with
 * collectives among them, and ended in every way. All ranks draw the same messages; in what order a rank begins its
 * own, and how it waits for them, is its own draw. AMLDIST_TEST_SEED and AMLDIST_TEST_ROUNDS replace the usual ones. */
#include <string.h>
#include <unistd.h>

#include "program.h"

enum { MOST = 80, LONGEST = 200000, TAGS = 4 };

struct message {
  int from, to, tag; /* -1: none */
  int any;           /* received from any source */
  size_t length;
  int32_t *sent, *got;
  int source;
  amldist_request *sending, *receiving;
};

static uint64_t next(uint64_t* state) { /* splitmix64 */
  uint64_t z = (*state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}
static int below(uint64_t* state, int limit) { return (int)(next(state) % (uint64_t)limit); }

static size_t draw_length(uint64_t* state) {
  static const size_t borders[] = {0, 1, 12, 13, 377, 378, 379, 4095, 16384, 65536, 100000};
  if (below(state, 3) != 0) return (size_t)below(state, 40);
  if (below(state, 10) == 0) return (size_t)below(state, LONGEST);
  return borders[below(state, (int)(sizeof borders / sizeof *borders))];
}
static int32_t value_of(const struct message* m, int number, size_t i) {
  return (int32_t)(m->from * 7919 + m->to * 104729 + number * 1299709 + (int)i);
}

static int draw(struct message* all, uint64_t* state) {
  const int many = 1 + below(state, MOST);
  for (int i = 0; i < many; ++i) {
    struct message* m = &all[i];
    memset(m, 0, sizeof *m);
    m->from = below(state, size), m->to = below(state, size);
    m->tag = below(state, 2) ? below(state, TAGS) : -1;
    /* A tag of any source has one sender and nothing else, so that each message has one receive. */
    m->any = m->tag >= 0 && below(state, 4) == 0;
    if (m->any) m->tag = TAGS + m->from;
    m->length = draw_length(state);
    m->source = -1;
  }
  return many;
}

static void begin_send(struct message* m, int number) {
  m->sent = malloc(m->length * sizeof(int32_t) + 1);
  for (size_t i = 0; i < m->length; ++i) m->sent[i] = value_of(m, number, i);
  if (m->tag < 0) OK(amldist_isend(world, m->sent, m->length, AMLDIST_INT32, m->to, &m->sending));
  else OK(amldist_isend_tagged(world, m->sent, m->length, AMLDIST_INT32, m->to, m->tag, &m->sending));
}
static void begin_receive(struct message* m) {
  m->got = calloc(m->length + 1, sizeof(int32_t));
  if (m->tag < 0) OK(amldist_irecv(world, m->got, m->length, AMLDIST_INT32, m->from, &m->receiving));
  else
    OK(amldist_irecv_tagged(world, m->got, m->length, AMLDIST_INT32, m->any ? AMLDIST_ANY_SOURCE : m->from, m->tag,
                            &m->source, &m->receiving));
}

static void note_end(int status, void* context) {
  CHECK(status == AMLDIST_OK);
  __atomic_add_fetch((int*)context, 1, __ATOMIC_RELEASE);
}
static void end(amldist_request** request, uint64_t* own) {
  int done = 0, told = 0;
  switch (below(own, 5)) {
    case 0:
      while (!done) OK(amldist_test(request, &done));
      break;
    case 1:
      while (!done) OK(amldist_wait_for(request, 1, &done));
      break;
    case 2:
      OK(amldist_on_complete(*request, note_end, &told));
      OK(amldist_wait(request));
      CHECK(__atomic_load_n(&told, __ATOMIC_ACQUIRE) == 1);
      break;
    default:
      OK(amldist_wait(request));
  }
  CHECK(*request == NULL);
}

/* Sends keep their order, and so do receives: that is what messages are matched by. */
static void begin_all(struct message* all, int many, uint64_t* own) {
  int sends = 0, receives = 0;
  while (sends < many || receives < many) {
    const int sends_next = receives == many || (sends < many && below(own, 2));
    int* at = sends_next ? &sends : &receives;
    struct message* m = &all[*at];
    if (sends_next && m->from == rank) begin_send(m, *at);
    if (!sends_next && m->to == rank) begin_receive(m);
    ++*at;
    if (below(own, 200) == 0) usleep((useconds_t)below(own, 2000));
  }
}
static void end_all(struct message* all, int many, uint64_t* own) {
  const int first = below(own, many), backwards = below(own, 2);
  for (int i = 0; i < many; ++i) {
    const int number = (backwards ? first + many - i : first + i) % many;
    struct message* m = &all[number];
    const int sends = m->from == rank, receives = m->to == rank, receives_first = below(own, 2);
    if (receives && receives_first) end(&m->receiving, own);
    if (sends) end(&m->sending, own);
    if (receives && !receives_first) end(&m->receiving, own);
    for (size_t e = 0; receives && e < m->length; ++e) CHECK(m->got[e] == value_of(m, number, e));
    CHECK(!receives || m->tag < 0 || m->source == m->from);
  }
  for (int i = 0; i < many; ++i) free(all[i].sent), free(all[i].got);
}

static uint64_t number_from(const char* name, uint64_t usual) {
  const char* const given = getenv(name);
  return given != NULL ? strtoull(given, NULL, 10) : usual;
}

void run_random_messages(void) {
  static struct message all[MOST];
  const uint64_t seed = number_from("AMLDIST_TEST_SEED", 20261128), rounds = number_from("AMLDIST_TEST_ROUNDS", 150);
  uint64_t common = seed, own = seed * 31 + (uint64_t)rank;
  for (uint64_t round = 0; round < rounds; ++round) {
    const int many = draw(all, &common);
    const int meets_before = below(&common, 3) == 0, meets_between = below(&common, 3) == 0;
    amldist_request* meeting = NULL;
    int32_t ranks = 1, sum = 0;
    if (meets_before) OK(amldist_iallreduce(world, &ranks, &sum, 1, AMLDIST_INT32, AMLDIST_SUM, &meeting));
    begin_all(all, many, &own);
    if (meets_between) OK(amldist_barrier(world));
    end_all(all, many, &own);
    if (meets_before) OK(amldist_wait(&meeting));
    CHECK(!meets_before || sum == size);
  }
  OK(amldist_barrier(world));
}
