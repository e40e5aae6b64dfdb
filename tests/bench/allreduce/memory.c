/* What one library needs beyond its caller's buffers: compiled once for aml-dist and once for each MPI (-DWITH_MPI).
 *
 *   memory private|shared ROUNDS BYTES...
 *
 * Rank 0 prints "BYTES KIB", the mean of the ranks: the process's proportional set size (a page of two ranks counts
 * half for each) after all-reduces of so many bytes, less that before the library was initialised, less the two
 * buffers. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "library.h"

static double proportional_kib(void) {
  char line[256];
  long kib = -1;
  FILE* rollup = fopen("/proc/self/smaps_rollup", "r");
  if (rollup == NULL) exit(1);
  while (kib < 0 && fgets(line, sizeof line, rollup) != NULL) sscanf(line, "Pss: %ld", &kib);
  fclose(rollup);
  return (double)kib;
}

static float* buffer(size_t bytes, int shared) {
  void* memory = NULL;
#ifndef WITH_MPI
  if (shared && amldist_alloc(world, bytes, &memory) != 0) exit(1);
#endif
  if (!shared) memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) exit(1);
  return memset(memory, 0, bytes);
}
static void give_back(float* memory, size_t bytes, int shared) {
#ifndef WITH_MPI
  if (shared) amldist_free(world, memory);
#endif
  if (!shared) munmap(memory, bytes);
}

int main(int argc, char** argv) {
  const double before = proportional_kib();
  begin(&argc, &argv);
  const int shared = argc > 1 && strcmp(argv[1], "shared") == 0;
  for (int a = 3; a < argc; ++a) {
    const size_t bytes = strtoull(argv[a], NULL, 10), count = bytes / sizeof(float);
    float *send = buffer(bytes, shared), *recv = buffer(bytes, shared);
    for (int calls = 0; calls < 3; ++calls) {
      allreduce(send, recv, count);
      allreduce(recv, recv, count);
    }
    barrier();
    const double pages = (double)((bytes + 4095) / 4096 * 4 * 2); /* KiB of both buffers */
    const double kib = of_all(proportional_kib() - before - pages, SUM) / size;
    barrier();
    if (rank == 0) printf("%zu %.0f\n", bytes, kib);
    fflush(stdout);
    give_back(send, bytes, shared), give_back(recv, bytes, shared);
  }
  end();
  return 0;
}
