/* All-to-alls whose buffers differ from rank to rank: in place here and not there, both parts in one piece of memory,
 * no memory at all where there is nothing to send or to receive. */
#include <stdint.h>
#include <string.h>

#include "program.h"

/* What rank `from` has at position i for rank `to`. */
static int32_t given(int from, int to, size_t i) { return (int32_t)(i % 1000) + 1000 * to + 100000 * from; }

static int32_t* numbers(size_t count) {
  int32_t* const out = malloc((count + 1) * sizeof *out);
  CHECK(out != NULL);
  for (size_t i = 0; i < count; ++i) out[i] = -1;
  return out;
}

static int is_in_place(int how, int of) {
  switch (how) {
    case 0:
      return of == 0;
    case 1:
      return of % 2 == 1;
    case 2:
      return of != size - 1;
    default:
      return 1;
  }
}

static void check_partly_in_place(int how, size_t count) {
  const size_t all = count * (size_t)size;
  int32_t* const recv = numbers(all);
  int32_t* const send = is_in_place(how, rank) ? recv : numbers(all);
  for (int to = 0; to < size; ++to) {
    for (size_t i = 0; i < count; ++i) send[(size_t)to * count + i] = given(rank, to, i);
  }
  OK(amldist_alltoall(world, send, recv, count, AMLDIST_INT32));
  for (int from = 0; from < size; ++from) {
    for (size_t i = 0; i < count; ++i) CHECK(recv[(size_t)from * count + i] == given(from, rank, i));
  }
  if (send != recv) free(send);
  free(recv);
}

/* How much rank `from` has for rank `to`; some pairs have nothing. `silent`: a rank with which nobody has anything. */
static size_t amount(int from, int to, int silent, size_t unit) {
  if (from == silent || to == silent) return 0;
  return (size_t)((from + 2 * to) % 4) * unit;
}

/* What is sent lies behind what is received, in one buffer, to which both arguments point; or, if `silent` is a rank,
 * in a buffer of its own, and that rank has none. */
static void check_listed(int silent, size_t unit) {
  size_t counts[4][64];
  size_t* const given_counts = counts[0];
  size_t* const given_at = counts[1];
  size_t* const got_counts = counts[2];
  size_t* const got_at = counts[3];
  size_t end = 0;
  for (int r = 0; r < size; ++r) {
    got_counts[r] = amount(r, rank, silent, unit);
    got_at[r] = end;
    end += got_counts[r];
  }
  const size_t all_got = end;
  const int is_shared = silent < 0;
  if (!is_shared) end = 0;
  for (int r = 0; r < size; ++r) {
    given_counts[r] = amount(rank, r, silent, unit);
    given_at[r] = end;
    end += given_counts[r];
  }
  int32_t* const recv = rank == silent ? NULL : numbers(all_got + end);
  int32_t* const send = rank == silent ? NULL : is_shared ? recv : numbers(end);
  for (int r = 0; r < size; ++r) {
    for (size_t i = 0; i < given_counts[r]; ++i) send[given_at[r] + i] = given(rank, r, i);
  }
  OK(amldist_alltoallv(world, send, given_counts, given_at, recv, got_counts, got_at, AMLDIST_INT32));
  for (int r = 0; r < size; ++r) {
    for (size_t i = 0; i < got_counts[r]; ++i) CHECK(recv[got_at[r] + i] == given(r, rank, i));
    for (size_t i = 0; i < given_counts[r]; ++i) CHECK(send[given_at[r] + i] == given(rank, r, i));
  }
  if (send != recv) free(send);
  free(recv);
}

void run_exchanges(void) {
  CHECK(size <= 64);
  const size_t counts[] = {1, 3001, 400001}; /* through the leaders; between pairs; in more than one segment */
  for (int how = 0; how < 4; ++how) {
    for (size_t c = 0; c < sizeof counts / sizeof *counts; ++c) check_partly_in_place(how, counts[c]);
  }
  for (size_t c = 0; c < sizeof counts / sizeof *counts; ++c) {
    for (int silent = -1; silent < size; ++silent) check_listed(silent, counts[c]);
  }
}
