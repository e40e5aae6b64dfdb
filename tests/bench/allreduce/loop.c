/* One library's all-reduce, timed: compiled once for aml-dist and once for each MPI (-DWITH_MPI).
 *
 *   loop private|shared ROUNDS BYTES...
 *
 * For every size: float32 sum with inputs rewritten before each call; rank 0 prints "BYTES OUT_OF_PLACE IN_PLACE
 * LIMIT", microseconds, medians over the calls of the slowest rank. LIMIT is what the machine needs at the least: up to
 * 4 KiB and with two ranks, the time in which each hands one cache line to the other (only aml-dist's loop measures
 * that); else the time of reading and writing BYTES on all ranks at once. ROUNDS 0: three calls of each kind, for a
 * library that takes tens of milliseconds. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "../benchlib/binding.h"
#include "library.h"

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static float* memory(size_t bytes, int shared) {
  void* out = NULL;
#ifndef WITH_MPI
  if (shared && amldist_alloc(world, bytes, &out) != 0) exit(1);
#endif
  (void)shared;
  if (out == NULL && posix_memalign(&out, 4096, bytes) != 0) exit(1);
  memset(out, 0, bytes);
  return out;
}
static int by_value(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}
static double median(double* times, int n) {
  qsort(times, (size_t)n, sizeof *times, by_value);
  return of_all(times[n / 2], LARGEST);
}

static void rewrite(float* data, size_t count, int i) {
  const float value = (float)(rank + i % 7);
  for (size_t k = 0; k < count; ++k) data[k] = value;
}

/* What is timed, in turn: the machine's memory is faster in some seconds than in others. */
enum kind { OUT_OF_PLACE, IN_PLACE, COPY, KINDS };
struct buffers {
  float *send, *recv;
  size_t count;
};
static void do_once(enum kind kind, const struct buffers* data) {
  if (kind == OUT_OF_PLACE) allreduce(data->send, data->recv, data->count);
  else if (kind == IN_PLACE) allreduce(data->recv, data->recv, data->count);
  else memcpy(data->recv, data->send, data->count * sizeof *data->send);
}
/* Some calls of one kind, the first two of which only bring the caches into the state that such calls leave. Batches
 * for small sizes, where the clock would be most of what is measured. */
static void measure(enum kind kind, const struct buffers* data, double* times, int calls, int batch) {
  for (int i = -2; i < calls; ++i) {
    rewrite(kind == IN_PLACE ? data->recv : data->send, data->count, i + 7);
    barrier();
    const double start = now();
    for (int b = 0; b < batch; ++b) do_once(kind, data);
    if (i >= 0) times[i] = (now() - start) / batch;
  }
}
/* `result` has the median of each kind. */
static void measure_all(const struct buffers* data, int turns, int calls, int batch, double* result) {
  double* times[KINDS];
  for (int kind = 0; kind < KINDS; ++kind) times[kind] = malloc((size_t)(turns * calls) * sizeof **times);
  for (int turn = 0; turn < turns; ++turn) {
    for (int kind = 0; kind < KINDS; ++kind) measure((enum kind)kind, data, times[kind] + turn * calls, calls, batch);
  }
  for (int kind = 0; kind < KINDS; ++kind) {
    result[kind] = median(times[kind], turns * calls);
    free(times[kind]);
  }
}
#ifdef WITH_MPI
static double bare_exchange(void) { return INFINITY; }
#else
struct line {
  _Alignas(64) atomic_ulong number;
};
/* One page that both ranks, children of one launcher, have mapped. */
static struct line* shared_page(void) {
  char name[64];
  snprintf(name, sizeof name, "/aml-dist-bench-%d", (int)getppid());
  const int file = shm_open(name, O_CREAT | O_RDWR, 0600);
  if (file < 0 || ftruncate(file, 4096) != 0) exit(1);
  struct line* page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (page == MAP_FAILED) exit(1);
  barrier();
  shm_unlink(name);
  close(file);
  return page;
}
/* Each writes its line and waits for the other's: no all-reduce can be faster. */
static double bare_exchange(void) {
  enum { samples = 50, batch = 100 };
  struct line* page = shared_page();
  double times[samples];
  unsigned long number = 0;
  for (int i = 0; i < samples; ++i) {
    barrier();
    const double start = now();
    for (int b = 0; b < batch; ++b) {
      ++number;
      atomic_store_explicit(&page[2 * rank].number, number, memory_order_release);
      while (atomic_load_explicit(&page[2 * (1 - rank)].number, memory_order_acquire) < number) {
      }
    }
    times[i] = (now() - start) / batch;
  }
  munmap(page, 4096);
  return median(times, samples);
}
#endif
int main(int argc, char** argv) {
  begin(&argc, &argv);
  bind_to_processor(rank, size);
  const int shared = argc > 1 && strcmp(argv[1], "shared") == 0;
  const int rounds = argc > 2 ? atoi(argv[2]) : 1;
  for (int a = 3; a < argc; ++a) {
    const size_t bytes = strtoull(argv[a], NULL, 10), count = bytes / sizeof(float);
    float *send = memory(bytes, shared), *recv = memory(bytes, shared);
    int batch = bytes > 4096 ? 1 : size > 2 ? 10 : 100;
    int calls = bytes <= 65536 ? 70 : bytes <= 1 << 20 ? 33 : bytes <= 16 << 20 ? 5 : 3;
    if (size > 2) calls = calls / 10 + 1; /* with more ranks than processors a call may take many milliseconds */
    if (rounds == 0) batch = 1, calls = 3;
    double times[KINDS];
    measure_all(&(struct buffers){send, recv, count}, rounds == 0 ? 1 : rounds * 3, calls, batch, times);
    if (size == 2 && bytes <= 4096) times[COPY] = bare_exchange();
    if (rank == 0) printf("%zu %.3f %.3f %.3f\n", bytes, times[OUT_OF_PLACE], times[IN_PLACE], times[COPY]);
    fflush(stdout);
#ifdef WITH_MPI
    free(send), free(recv);
#else
    if (shared) amldist_free(world, send), amldist_free(world, recv);
    else free(send), free(recv);
#endif
  }
  end();
  return 0;
}
