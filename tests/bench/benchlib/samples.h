/* For benchmarks that time batches of calls: a clock and the median. */
#pragma once

#include <stdlib.h>
#include <time.h>

/* Nanoseconds of a steady clock. */
static inline double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static inline int by_value(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

/* Sorts the samples. */
static inline double median(double* samples, int n) {
  qsort(samples, (size_t)n, sizeof *samples, by_value);
  return samples[n / 2];
}
