/* For benchmarks whose ranks stay on processors of their own. Define _GNU_SOURCE before any include. */
#pragma once

#include <sched.h>
#include <stddef.h>
#include <unistd.h>

/* As srun does, for every library alike: one that leaves ranks unbound would now and then have two on one processor. */
static inline void bind_to_processor(int rank, int size) {
  cpu_set_t own;
  if (size > sysconf(_SC_NPROCESSORS_ONLN)) return;
  CPU_ZERO(&own);
  CPU_SET((size_t)rank, &own);
  sched_setaffinity(0, sizeof own, &own);
}
