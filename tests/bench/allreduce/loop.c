/* One library's all-reduce, timed: compiled once for aml-dist and once for each MPI (-DWITH_MPI).
 *
 *   loop private|shared ROUNDS BYTES...
 *
 * For every size: float32 sum with inputs rewritten before each call; rank 0 prints "BYTES OUT_OF_PLACE IN_PLACE
 * LIMIT", microseconds, medians over the calls of the slowest rank. LIMIT is what the machine needs at the least: up to
 * 4 KiB and with two ranks, the time in which each hands one cache line to the other (only aml-dist's loop measures
 * that); else the time of reading and writing BYTES on all ranks at once. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#ifdef WITH_MPI
#include <mpi.h>
#else
#include "amldist/amldist.h"
static amldist_comm* world;
#endif

static int rank, size;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static void begin(int* argc, char*** argv) {
#ifdef WITH_MPI
  MPI_Init(argc, argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
#else
  (void)argc, (void)argv;
  if (amldist_init(&world, 60000) != 0) {
    fprintf(stderr, "%s\n", amldist_last_error());
    exit(1);
  }
  rank = amldist_rank(world);
  size = amldist_size(world);
#endif
}
/* As srun does, for every library alike: one that leaves ranks unbound would now and then have two on one processor. */
static void bind_to_processor(void) {
  cpu_set_t own;
  if (size > sysconf(_SC_NPROCESSORS_ONLN)) return;
  CPU_ZERO(&own);
  CPU_SET((size_t)rank, &own);
  sched_setaffinity(0, sizeof own, &own);
}
static void end(void) {
#ifdef WITH_MPI
  MPI_Finalize();
#else
  amldist_finalize(world);
#endif
}
static void barrier(void) {
#ifdef WITH_MPI
  MPI_Barrier(MPI_COMM_WORLD);
#else
  amldist_barrier(world);
#endif
}
static void allreduce(float* send, float* recv, size_t count) {
#ifdef WITH_MPI
  MPI_Allreduce(send == recv ? MPI_IN_PLACE : send, recv, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
#else
  if (amldist_allreduce(world, send, recv, count, AMLDIST_FLOAT32, AMLDIST_SUM) != 0) {
    fprintf(stderr, "%s\n", amldist_last_error());
    exit(1);
  }
#endif
}
static double slowest(double mine) {
  double all = mine;
#ifdef WITH_MPI
  MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
#else
  amldist_allreduce(world, &mine, &all, 1, AMLDIST_FLOAT64, AMLDIST_MAX);
#endif
  return all;
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
  return slowest(times[n / 2]);
}

static void rewrite(float* data, size_t count, int i) {
  const float value = (float)(rank + i % 7);
  for (size_t k = 0; k < count; ++k) data[k] = value;
}

/* Batches of calls for small sizes, where the clock would be most of what is measured. */
static double measure(float* send, float* recv, size_t count, int calls, int batch) {
  double* times = malloc((size_t)calls * sizeof *times);
  for (int i = -2; i < calls; ++i) {
    rewrite(send, count, i + 7);
    barrier();
    const double start = now();
    for (int b = 0; b < batch; ++b) allreduce(send, recv, count);
    if (i >= 0) times[i] = (now() - start) / batch;
  }
  const double result = median(times, calls);
  free(times);
  return result;
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
static double limit(float* send, float* recv, size_t count, int calls) {
  double* times = malloc((size_t)calls * sizeof *times);
  for (int i = 0; i < calls; ++i) {
    rewrite(send, count, i);
    barrier();
    const double start = now();
    memcpy(recv, send, count * sizeof *send);
    times[i] = now() - start;
  }
  const double result = median(times, calls);
  free(times);
  return result;
}

int main(int argc, char** argv) {
  begin(&argc, &argv);
  bind_to_processor();
  const int shared = argc > 1 && strcmp(argv[1], "shared") == 0;
  const int rounds = argc > 2 ? atoi(argv[2]) : 1;
  for (int a = 3; a < argc; ++a) {
    const size_t bytes = strtoull(argv[a], NULL, 10), count = bytes / sizeof(float);
    float *send = memory(bytes, shared), *recv = memory(bytes, shared);
    const int batch = bytes > 4096 ? 1 : size > 2 ? 10 : 100;
    int calls = rounds * (bytes <= 65536 ? 200 : bytes <= 1 << 20 ? 100 : bytes <= 16 << 20 ? 11 : 5);
    if (size > 2) calls = calls / 10 + 3; /* with more ranks than processors a call may take many milliseconds */
    const double out = measure(send, recv, count, calls, batch);
    const double in = measure(recv, recv, count, calls, batch);
    const double least = size == 2 && bytes <= 4096 ? bare_exchange() : limit(send, recv, count, calls);
    if (rank == 0) printf("%zu %.3f %.3f %.3f\n", bytes, out, in, least);
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
