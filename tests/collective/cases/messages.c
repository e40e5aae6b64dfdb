/* Messages between all pairs of ranks, on one node and on several: lengths around internal limits, empty messages, many
 * messages, and long ones in both directions at once. */
#include <string.h>

#include "program.h"

enum { HEADER = 16, LINE = 64, RING = 64 << 10, MOST = 5 * RING, RANKS = 16, MANY = 2000 };
static uint8_t given[RANKS][MOST], got[RANKS][MOST];

static uint8_t value(int from, int to, size_t at, size_t salt) {
  return (uint8_t)(at * 7 + at / 255 + salt + (size_t)(from * 11 + to * 5));
}
static void fill(size_t length, size_t salt) {
  for (int to = 0; to < size; ++to) {
    for (size_t i = 0; i < length; ++i) given[to][i] = value(rank, to, i, salt);
  }
  memset(got, 0xee, sizeof got);
}
static void compare(size_t length, size_t salt) {
  for (int from = 0; from < size; ++from) {
    for (size_t i = 0; i < length; ++i) CHECK(got[from][i] == value(from, rank, i, salt));
    CHECK(length == MOST || got[from][length] == 0xee);
  }
}

/* All pairs of ranks at once, on the same node and on other nodes. */
static void all_pairs(size_t length) {
  fill(length, length);
  OK(amldist_group_begin(world));
  for (int r = 0; r < size; ++r) OK(amldist_send(world, given[r], length, AMLDIST_UINT8, r));
  for (int r = 0; r < size; ++r) OK(amldist_recv(world, got[r], length, AMLDIST_UINT8, r));
  OK(amldist_group_end(world));
  compare(length, length);
}
static void all_pairs_begun(size_t length) {
  amldist_request* requests[2 * RANKS];
  fill(length, length + 1);
  for (int r = 0; r < size; ++r) OK(amldist_isend(world, given[r], length, AMLDIST_UINT8, r, &requests[r]));
  for (int r = 0; r < size; ++r) OK(amldist_irecv(world, got[r], length, AMLDIST_UINT8, r, &requests[size + r]));
  for (int i = 2 * size; i-- > 0;) OK(amldist_wait(&requests[i]));
  compare(length, length + 1);
}

/* Sends more than a ring or a socket holds before the first receive. */
static void many_before_the_first_is_received(void) {
  static int32_t numbers[MANY], came[MANY];
  static amldist_request* requests[MANY];
  const int next = (rank + 1) % size, last = (rank + size - 1) % size;
  for (int i = 0; i < MANY; ++i) {
    numbers[i] = rank * MANY + i, came[i] = -1;
    OK(amldist_isend(world, &numbers[i], i % 5 == 0 ? 0 : 1, AMLDIST_INT32, next, &requests[i]));
  }
  OK(amldist_barrier(world));
  for (int i = 0; i < MANY; ++i) OK(amldist_recv(world, &came[i], i % 5 == 0 ? 0 : 1, AMLDIST_INT32, last));
  for (int i = 0; i < MANY; ++i) {
    OK(amldist_wait(&requests[i]));
    CHECK(came[i] == (i % 5 == 0 ? -1 : last * MANY + i));
  }
}

/* Waits for a short send while nothing else is under way. */
static void a_send_alone(void) {
  const int next = (rank + 1) % size, last = (rank + size - 1) % size;
  int32_t here = rank, came = -1;
  amldist_request* sending = NULL;
  if (rank % 2 != 0) OK(amldist_recv(world, &came, 1, AMLDIST_INT32, last));
  OK(amldist_isend(world, &here, 1, AMLDIST_INT32, next, &sending));
  OK(amldist_wait(&sending));
  if (rank % 2 == 0) OK(amldist_recv(world, &came, 1, AMLDIST_INT32, last));
  CHECK(came == last);
}

/* Messages of two communicators are kept apart, and each communicator frees its memory. */
static void of_two_communicators(void) {
  for (int times = 0; times < 20; ++times) {
    amldist_comm* turned = NULL;
    int32_t here = rank, there = -rank, from_world = -1, from_turned = 1;
    amldist_request* sending = NULL;
    OK(amldist_split(world, 0, size - rank, &turned));
    OK(amldist_isend(world, &here, 1, AMLDIST_INT32, (rank + 1) % size, &sending));
    const int own = amldist_rank(turned);
    CHECK(own == size - 1 - rank);
    OK(amldist_group_begin(turned));
    OK(amldist_send(turned, &there, 1, AMLDIST_INT32, (own + size - 1) % size));
    OK(amldist_recv(turned, &from_turned, 1, AMLDIST_INT32, (own + 1) % size));
    OK(amldist_group_end(turned));
    OK(amldist_recv(world, &from_world, 1, AMLDIST_INT32, (rank + size - 1) % size));
    OK(amldist_wait(&sending));
    CHECK(from_world == (rank + size - 1) % size && from_turned == -((rank + size - 1) % size));
    OK(amldist_finalize(turned));
  }
}

void run_messages(void) {
  static const size_t borders[] = {HEADER, LINE, RING / 4, RING, 2 * RING};
  CHECK(size <= RANKS);
  OK(amldist_set_timeout(world, 30000)); /* a hang is an error */
  if (size > 1) a_send_alone();
  all_pairs(0);
  all_pairs_begun(0);
  for (size_t b = 0; b < sizeof borders / sizeof *borders; ++b) {
    for (size_t less = 0; less <= HEADER; less += HEADER) {
      for (size_t more = 0; more <= 2; ++more) {
        const size_t length_and_one = borders[b] - less + more;
        if (length_and_one > 0) all_pairs(length_and_one - 1);
      }
    }
  }
  all_pairs(MOST);
  all_pairs_begun(MOST);
  many_before_the_first_is_received();
  of_two_communicators();
}
