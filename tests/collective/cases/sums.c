/* Sums whose last bits depend on the order in which they are made: prints a digest of each rank's results. */
#include <inttypes.h>
#include <stdint.h>
#include <string.h>

#include "program.h"

enum { MOST = 1024 };
static float values[MOST], sums[MOST];

static uint64_t digest_of(const void* data, size_t bytes, uint64_t digest) {
  for (size_t i = 0; i < bytes; ++i) digest = (digest ^ ((const unsigned char*)data)[i]) * UINT64_C(1099511628211);
  return digest;
}

/* Of all lengths up to a line and some more, to all and to each root, and the broadcast of what rank `size / 2` has. */
void run_sums(void) {
  static const size_t counts[] = {1, 3, 14, 15, 100, MOST};
  uint64_t of_all = 1, of_roots = 1;
  for (size_t i = 0; i < MOST; ++i) values[i] = 1.0F / (float)(1 + (i * 7919 + (size_t)rank * 104729) % 1009);
  for (size_t c = 0; c < sizeof counts / sizeof *counts; ++c) {
    OK(amldist_allreduce(world, values, sums, counts[c], AMLDIST_FLOAT32, AMLDIST_SUM));
    of_all = digest_of(sums, counts[c] * sizeof *sums, of_all);
    for (int root = 0; root < size; ++root) {
      OK(amldist_reduce(world, values, sums, counts[c], AMLDIST_FLOAT32, AMLDIST_AVG, root));
      if (root == rank) of_roots = digest_of(sums, counts[c] * sizeof *sums, of_roots);
    }
    if (rank == size / 2) memcpy(sums, values, counts[c] * sizeof *sums);
    OK(amldist_broadcast(world, sums, counts[c], AMLDIST_FLOAT32, size / 2));
    of_all = digest_of(sums, counts[c] * sizeof *sums, of_all);
  }
  printf("sums %016" PRIx64 " %016" PRIx64 "\n", of_all, of_roots);
}
