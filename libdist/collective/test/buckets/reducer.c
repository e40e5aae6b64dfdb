/* One rank of several that reduce gradients in buckets, step after step: views, buffers of the program's own, a
 * mixture, in another order on every rank; and calls that are refused. Prints what is wrong and exits with 1. */
#include <amldist/amldist.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TENSORS = 40, STEPS = 4 };

static int failures = 0;

static void expect(int condition, const char* what, int line) {
  if (condition) return;
  ++failures;
  printf("line %d: %s (%s)\n", line, what, amldist_last_error());
}
#define EXPECT(condition) expect((condition) != 0, #condition, __LINE__)

/* Sizes from nothing to beyond the limit of fusing, the same on all ranks. */
static size_t count_of(size_t tensor) {
  static const size_t counts[] = {0, 1, 7, 64, 1000, 4096, 40000};
  return counts[tensor % (sizeof counts / sizeof *counts)];
}

/* Averages of these are exact. */
static float value(int rank, size_t tensor, size_t i, int step) {
  return (float)((size_t)rank * 4 + tensor + i % 13 + (size_t)step);
}

static float mean(int size, size_t tensor, size_t i, int step) {
  float sum = 0;
  for (int rank = 0; rank < size; ++rank) sum += value(rank, tensor, i, step);
  return sum / (float)size;
}

static void fill(float* data, int rank, size_t tensor, int step) {
  for (size_t i = 0; i < count_of(tensor); ++i) data[i] = value(rank, tensor, i, step);
}

static void check(const float* data, int size, size_t tensor, int step) {
  for (size_t i = 0; i < count_of(tensor); ++i) {
    const float difference = data[i] - mean(size, tensor, i, step);
    if (difference < 1e-4f && difference > -1e-4f) continue;
    ++failures;
    printf("step %d, tensor %zu, element %zu: %g\n", step, tensor, i, (double)data[i]);
    return;
  }
}

static float* bind_anew(amldist_reducer* reducer, size_t tensor) {
  float* const data = malloc(count_of(tensor) * sizeof(float) + 1);
  EXPECT(amldist_reducer_bind(reducer, tensor, data) == AMLDIST_OK);
  return data;
}

/* bound(tensor): whether it is a buffer of the program's own; another one from the third step on. */
static void run_steps(amldist_comm* comm, int (*bound)(size_t)) {
  const int rank = amldist_rank(comm), size = amldist_size(comm);
  size_t counts[TENSORS];
  float* data[TENSORS];
  amldist_reducer* reducer = NULL;
  const amldist_reducer_options options = {sizeof options, 100000, 20000, 0, AMLDIST_AVG};
  for (size_t t = 0; t < TENSORS; ++t) counts[t] = count_of(t);
  EXPECT(amldist_reducer_create(comm, counts, TENSORS, AMLDIST_FLOAT32, &options, &reducer) == AMLDIST_OK);
  for (size_t t = 0; t < TENSORS; ++t) {
    if (bound(t)) data[t] = bind_anew(reducer, t);
  }
  for (size_t t = 0; t < TENSORS; ++t) {
    void* view = NULL;
    if (bound(t)) continue;
    EXPECT(amldist_reducer_view(reducer, t, &view) == AMLDIST_OK);
    EXPECT((uintptr_t)view % 64 == 0);
    data[t] = view;
  }
  EXPECT(amldist_reducer_calls(reducer) > 0 && amldist_reducer_calls(reducer) < TENSORS);
  for (int step = 0; step < STEPS; ++step) {
    for (size_t t = 0; step == 2 && t < TENSORS; ++t) {
      if (!bound(t)) continue;
      free(data[t]);
      data[t] = bind_anew(reducer, t);
    }
    for (size_t k = 0; k < TENSORS; ++k) { /* 7 and TENSORS have no common divisor: every tensor once */
      const size_t tensor = step % 2 == 0 ? TENSORS - 1 - k : (k * 7 + (size_t)rank) % TENSORS;
      fill(data[tensor], rank, tensor, step);
      EXPECT(amldist_reducer_ready(reducer, tensor) == AMLDIST_OK);
    }
    EXPECT(amldist_reducer_wait(reducer) == AMLDIST_OK);
    for (size_t t = 0; t < TENSORS; ++t) check(data[t], size, t, step);
  }
  EXPECT(amldist_reducer_free(reducer) == AMLDIST_OK);
  for (size_t t = 0; t < TENSORS; ++t) {
    if (bound(t)) free(data[t]);
  }
}

static int none(size_t tensor) {
  (void)tensor;
  return 0;
}
static int all(size_t tensor) {
  (void)tensor;
  return 1;
}
static int some(size_t tensor) { return tensor % 3 == 0; }

static void refuse(amldist_comm* comm) {
  const size_t counts[] = {10, 20};
  const size_t huge[] = {SIZE_MAX / 2, SIZE_MAX / 2};
  const amldist_reducer_options small = {1, 0, 0, 0, AMLDIST_SUM};
  const amldist_reducer_options no_op = {sizeof no_op, 0, 0, 0, 99};
  amldist_reducer* reducer = NULL;
  void* view = NULL;
  float own[20];
  EXPECT(amldist_reducer_create(NULL, counts, 2, AMLDIST_FLOAT32, NULL, &reducer) == AMLDIST_EINVAL);
  EXPECT(amldist_reducer_create(comm, NULL, 2, AMLDIST_FLOAT32, NULL, &reducer) == AMLDIST_EINVAL);
  EXPECT(amldist_reducer_create(comm, counts, 2, (amldist_type)99, NULL, &reducer) == AMLDIST_EINVAL);
  EXPECT(amldist_reducer_create(comm, counts, 2, AMLDIST_FLOAT32, NULL, NULL) == AMLDIST_EINVAL);
  EXPECT(amldist_reducer_create(comm, counts, 2, AMLDIST_FLOAT32, &small, &reducer) == AMLDIST_EINVAL);
  EXPECT(amldist_reducer_create(comm, counts, 2, AMLDIST_FLOAT32, &no_op, &reducer) == AMLDIST_EINVAL);
  EXPECT(amldist_reducer_create(comm, huge, 2, AMLDIST_FLOAT32, NULL, &reducer) == AMLDIST_ELIMIT);
  EXPECT(amldist_reducer_ready(NULL, 0) == AMLDIST_EINVAL && amldist_reducer_wait(NULL) == AMLDIST_EINVAL);
  EXPECT(amldist_reducer_free(NULL) == AMLDIST_OK);
  EXPECT(amldist_reducer_create(comm, counts, 2, AMLDIST_FLOAT32, NULL, &reducer) == AMLDIST_OK);
  EXPECT(amldist_reducer_view(reducer, 2, &view) == AMLDIST_EINVAL);
  EXPECT(amldist_reducer_view(reducer, 0, &view) == AMLDIST_OK);
  EXPECT(amldist_reducer_bind(reducer, 0, own) == AMLDIST_EINVAL); /* it has a view */
  EXPECT(amldist_reducer_ready(reducer, 1) == AMLDIST_OK);
  EXPECT(amldist_reducer_ready(reducer, 1) == AMLDIST_EINVAL); /* twice */
  EXPECT(amldist_reducer_wait(reducer) == AMLDIST_EINVAL);
  EXPECT(strstr(amldist_last_error(), "tensor 0") != NULL); /* which is not ready */
  EXPECT(amldist_reducer_ready(reducer, 0) == AMLDIST_OK);
  EXPECT(amldist_reducer_wait(reducer) == AMLDIST_OK);
  EXPECT(amldist_reducer_free(reducer) == AMLDIST_OK);
}

int main(void) {
  amldist_comm* comm = NULL;
  if (amldist_init(&comm, 30000) != AMLDIST_OK) {
    printf("%s\n", amldist_last_error());
    return 1;
  }
  run_steps(comm, none);
  run_steps(comm, all);
  run_steps(comm, some);
  refuse(comm);
  EXPECT(amldist_finalize(comm) == AMLDIST_OK);
  return failures != 0;
}
