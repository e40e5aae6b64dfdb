/* More than 2^31 elements, in the operations that must count them: one byte each, so that memory suffices. Every rank
 * has one buffer of 2 GiB and a little.
 *
 * A result is known without a second buffer: the pattern below, or its sum over the ranks. */
#include <stdint.h>
#include <string.h>

#include "program.h"

static const size_t count = (1ULL << 31) + 4099;
static uint8_t* data;

static uint8_t pattern(size_t i, int r) { return (uint8_t)((i * 7 + (i >> 31) * 5 + (size_t)r * 3) % 31); }
static void fill(int r) {
  for (size_t i = 0; i < count; ++i) data[i] = pattern(i, r);
}
static void expect(int from, int to, const char* what) { /* the sum of the patterns of ranks from..to-1 */
  for (size_t i = 0; i < count; ++i) {
    unsigned want = 0;
    for (int r = from; r < to; ++r) want += pattern(i, r);
    if (data[i] == (uint8_t)want) continue;
    fprintf(stderr, "rank %d: %s: element %zu is %u instead of %u\n", rank, what, i, data[i], (uint8_t)want);
    exit(1);
  }
  if (rank == 0) printf("%s of %zu elements is right\n", what, count);
}

void run_large(void) {
  CHECK((data = malloc(count)) != NULL);
  OK(amldist_set_timeout(world, 120000));
  fill(rank);
  OK(amldist_allreduce(world, data, data, count, AMLDIST_UINT8, AMLDIST_SUM));
  expect(0, size, "allreduce");
  fill(rank);
  OK(amldist_broadcast(world, data, count, AMLDIST_UINT8, size - 1));
  expect(size - 1, size, "broadcast");
  if (rank == 0) {
    fill(0);
    OK(amldist_send(world, data, count, AMLDIST_UINT8, 1));
  } else if (rank == 1) {
    memset(data, 0, count);
    OK(amldist_recv(world, data, count, AMLDIST_UINT8, 0));
    expect(0, 1, "recv");
  }
  OK(amldist_barrier(world));
  /* In place: every rank has its part of the whole in position. */
  const size_t each = count / (size_t)size;
  for (size_t i = 0; i < each; ++i) data[each * (size_t)rank + i] = pattern(each * (size_t)rank + i, 0);
  OK(amldist_allgather(world, data + each * (size_t)rank, data, each, AMLDIST_UINT8));
  for (size_t i = each * (size_t)size; i < count; ++i) data[i] = pattern(i, 0);
  expect(0, 1, "allgather");
  free(data);
}
