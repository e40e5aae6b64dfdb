/* One collective, many times: what tests/bench/thresholds runs with each library.
 *
 *     loop OPERATION BYTES SAMPLES [own]
 *
 * Rank 0 prints the least and the median time of a call in microseconds. BYTES counts as in
 * collective/tuning/algorithm_choice.hpp: the whole buffer; all blocks for allgather and reduce_scatter; one block for
 * gather and alltoall. "own": the buffers come from amldist_alloc(). */
#include <amldist/amldist.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { timeout_ms = 60000, warm_up = 3 };

static double now_us(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1e3;
}

static void check(int status, const char* what) {
  if (status == AMLDIST_OK) return;
  fprintf(stderr, "%s: %s\n", what, amldist_last_error());
  exit(1);
}

static int by_size(const void* a, const void* b) {
  const double left = *(const double*)a;
  const double right = *(const double*)b;
  return (left > right) - (left < right);
}

struct Loop {
  amldist_comm* world;
  const char* operation;
  size_t count; /* elements of the unit that BYTES means */
  float* send;
  float* recv;
};

static int call(const struct Loop* loop) {
  const char* name = loop->operation;
  const size_t ranks = (size_t)amldist_size(loop->world);
  const size_t share = loop->count / ranks;
  float* send = loop->send;
  float* recv = loop->recv;
  if (strcmp(name, "allreduce") == 0)
    return amldist_allreduce(loop->world, send, recv, loop->count, AMLDIST_FLOAT32, AMLDIST_SUM);
  if (strcmp(name, "reduce") == 0)
    return amldist_reduce(loop->world, send, recv, loop->count, AMLDIST_FLOAT32, AMLDIST_SUM, 0);
  if (strcmp(name, "broadcast") == 0) return amldist_broadcast(loop->world, send, loop->count, AMLDIST_FLOAT32, 0);
  if (strcmp(name, "allgather") == 0) return amldist_allgather(loop->world, send, recv, share, AMLDIST_FLOAT32);
  if (strcmp(name, "reduce_scatter") == 0)
    return amldist_reduce_scatter(loop->world, send, recv, share, AMLDIST_FLOAT32, AMLDIST_SUM);
  if (strcmp(name, "gather") == 0) return amldist_gather(loop->world, send, recv, loop->count, AMLDIST_FLOAT32, 0);
  if (strcmp(name, "alltoall") == 0) return amldist_alltoall(loop->world, send, recv, loop->count, AMLDIST_FLOAT32);
  fprintf(stderr, "loop: unknown operation '%s'\n", name);
  exit(2);
}

/* Calls for one sample: enough that the clock and the barrier at the end hardly count. */
static int repeats_of(size_t bytes) { return bytes <= 16384 ? 50 : bytes <= 262144 ? 10 : 2; }

static double sample(const struct Loop* loop, int repeats) {
  check(amldist_barrier(loop->world), "barrier");
  const double start = now_us();
  for (int i = 0; i < repeats; ++i) check(call(loop), loop->operation);
  check(amldist_barrier(loop->world), "barrier");
  return (now_us() - start) / repeats;
}

static float* buffer_of(amldist_comm* world, size_t bytes, int own) {
  void* memory = NULL;
  if (own) check(amldist_alloc(world, bytes, &memory), "amldist_alloc");
  else memory = calloc(1, bytes);
  if (memory == NULL) exit(1);
  memset(memory, 0, bytes);
  return memory;
}

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  const size_t bytes = strtoull(argv[2], NULL, 10);
  const int samples = atoi(argv[3]);
  const int own = argc > 4 && strcmp(argv[4], "own") == 0;
  struct Loop loop = {NULL, argv[1], bytes / sizeof(float), NULL, NULL};
  double* times = calloc((size_t)samples, sizeof(double));
  if (samples < 1 || times == NULL) return 2;
  check(amldist_init(&loop.world, timeout_ms), "amldist_init");
  const size_t blocks =
      strcmp(argv[1], "gather") == 0 || strcmp(argv[1], "alltoall") == 0 ? (size_t)amldist_size(loop.world) : 1;
  loop.send = buffer_of(loop.world, bytes * blocks, own);
  loop.recv = buffer_of(loop.world, bytes * blocks, own);
  for (int i = 0; i < warm_up; ++i) check(call(&loop), argv[1]);
  for (int i = 0; i < samples; ++i) times[i] = sample(&loop, repeats_of(bytes));
  qsort(times, (size_t)samples, sizeof(double), by_size);
  if (amldist_rank(loop.world) == 0) printf("%.3f %.3f\n", times[0], times[samples / 2]);
  fflush(stdout);
  check(amldist_finalize(loop.world), "amldist_finalize");
  return 0;
}
