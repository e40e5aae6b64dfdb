/* Every collective of one library, timed: compiled once for aml-dist and once for each MPI (-DWITH_MPI).
 *
 *   loop CALLS BYTES...
 *
 * BYTES are those of the larger buffer of a rank: what all-gather gathers, what reduce-scatter adds. float32, inputs
 * rewritten before each sample, results checked after the last. Rank 0 prints "COLLECTIVE BYTES MICROSECONDS", the
 * median over the samples of the slowest rank; a barrier has 0 bytes. CALLS scales the number of samples. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../allreduce/library.h"
#include "../benchlib/binding.h"
#include "../benchlib/samples.h"

enum { ROOT = 0, MOST_SAMPLES = 400, WARMING = 8 }; /* libraries touch their memory for the first time */

/* Buffers of `all` elements; a rank's block of it has `block`. */
struct buffers {
  float *send, *recv;
  size_t all, block;
};

#ifdef WITH_MPI
#define CALL(own, mpi) mpi
#else
#define CALL(own, mpi)                               \
  do {                                               \
    if ((own) != 0) {                                \
      fprintf(stderr, "%s\n", amldist_last_error()); \
      exit(1);                                       \
    }                                                \
  } while (0)
#endif

static void call_barrier(const struct buffers* b) {
  (void)b;
  barrier();
}
static void call_allreduce(const struct buffers* b) { allreduce(b->send, b->recv, b->all); }
static void call_broadcast(const struct buffers* b) {
  float* data = rank == ROOT ? b->send : b->recv;
  CALL(amldist_broadcast(world, data, b->all, AMLDIST_FLOAT32, ROOT),
       MPI_Bcast(data, (int)b->all, MPI_FLOAT, ROOT, MPI_COMM_WORLD));
}
static void call_reduce(const struct buffers* b) {
  CALL(amldist_reduce(world, b->send, b->recv, b->all, AMLDIST_FLOAT32, AMLDIST_SUM, ROOT),
       MPI_Reduce(b->send, b->recv, (int)b->all, MPI_FLOAT, MPI_SUM, ROOT, MPI_COMM_WORLD));
}
static void call_allgather(const struct buffers* b) {
  CALL(amldist_allgather(world, b->send, b->recv, b->block, AMLDIST_FLOAT32),
       MPI_Allgather(b->send, (int)b->block, MPI_FLOAT, b->recv, (int)b->block, MPI_FLOAT, MPI_COMM_WORLD));
}
static void call_reduce_scatter(const struct buffers* b) {
  CALL(amldist_reduce_scatter(world, b->send, b->recv, b->block, AMLDIST_FLOAT32, AMLDIST_SUM),
       MPI_Reduce_scatter_block(b->send, b->recv, (int)b->block, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD));
}
static void call_gather(const struct buffers* b) {
  CALL(amldist_gather(world, b->send, b->recv, b->block, AMLDIST_FLOAT32, ROOT),
       MPI_Gather(b->send, (int)b->block, MPI_FLOAT, b->recv, (int)b->block, MPI_FLOAT, ROOT, MPI_COMM_WORLD));
}
static void call_scatter(const struct buffers* b) {
  CALL(amldist_scatter(world, b->send, b->recv, b->block, AMLDIST_FLOAT32, ROOT),
       MPI_Scatter(b->send, (int)b->block, MPI_FLOAT, b->recv, (int)b->block, MPI_FLOAT, ROOT, MPI_COMM_WORLD));
}
static void call_alltoall(const struct buffers* b) {
  CALL(amldist_alltoall(world, b->send, b->recv, b->block, AMLDIST_FLOAT32),
       MPI_Alltoall(b->send, (int)b->block, MPI_FLOAT, b->recv, (int)b->block, MPI_FLOAT, MPI_COMM_WORLD));
}

/* What each element of the input is, and what a rank has to find in the first element of block `from`, if anything. */
static float given(int of, int sample) { return (float)(of + sample % 7); }
static float sum_of_all(int sample) {
  float sum = 0;
  for (int r = 0; r < size; ++r) sum += given(r, sample);
  return sum;
}
enum result { NOTHING, SUM_EVERYWHERE, SUM_AT_ROOT, BLOCKS, BLOCKS_AT_ROOT, OF_ROOT };
static const struct collective {
  const char* name;
  void (*call)(const struct buffers*);
  enum result result;
  int own_block; /* the result is one block */
} collectives[] = {
    {"barrier", call_barrier, NOTHING, 0},      {"broadcast", call_broadcast, OF_ROOT, 0},
    {"reduce", call_reduce, SUM_AT_ROOT, 0},    {"all-reduce", call_allreduce, SUM_EVERYWHERE, 0},
    {"all-gather", call_allgather, BLOCKS, 0},  {"reduce-scatter", call_reduce_scatter, SUM_EVERYWHERE, 1},
    {"gather", call_gather, BLOCKS_AT_ROOT, 0}, {"scatter", call_scatter, OF_ROOT, 1},
    {"all-to-all", call_alltoall, BLOCKS, 0},
};

static float wanted(const struct collective* c, size_t element, size_t block, int sample) {
  if (c->result == OF_ROOT) return given(ROOT, sample);
  if (c->result == BLOCKS || c->result == BLOCKS_AT_ROOT) return given((int)(element / block), sample);
  return sum_of_all(sample);
}
static void check(const struct collective* c, const struct buffers* b, int sample) {
  const int at_root = c->result == SUM_AT_ROOT || c->result == BLOCKS_AT_ROOT;
  if (c->result == NOTHING || (at_root && rank != ROOT)) return;
  const float* got = c->call == call_broadcast && rank == ROOT ? b->send : b->recv;
  const size_t count = c->own_block ? b->block : b->all;
  for (size_t i = 0; i < count; ++i) {
    if (got[i] == wanted(c, i, b->block, sample)) continue;
    fprintf(stderr, "%s: element %zu of %zu is %g on rank %d\n", c->name, i, count, (double)got[i], rank);
    exit(1);
  }
}

static double measure(const struct collective* c, const struct buffers* b, int samples, int batch) {
  static double times[MOST_SAMPLES];
  for (int sample = -WARMING; sample < samples; ++sample) {
    for (size_t i = 0; i < b->all; ++i) b->send[i] = given(rank, sample + 14);
    barrier();
    const double start = now();
    for (int i = 0; i < batch; ++i) c->call(b);
    if (sample >= 0) times[sample] = (now() - start) / batch / 1e3;
  }
  check(c, b, samples + 13);
  return of_all(median(times, samples), LARGEST);
}

static float* memory(size_t count) {
  void* out = NULL;
  if (posix_memalign(&out, 4096, count * sizeof(float)) != 0) exit(1);
  memset(out, 0, count * sizeof(float));
  return out;
}
static int samples_for(size_t bytes, int calls) {
  const int at_two = bytes <= 65536 ? 60 : bytes <= 1 << 20 ? 24 : bytes <= 16 << 20 ? 6 : 3;
  const int samples = calls * (size > 2 ? at_two / 4 + 2 : at_two);
  return samples < MOST_SAMPLES ? samples : MOST_SAMPLES;
}

static void measure_all(size_t bytes, int calls) {
  const size_t block = bytes / sizeof(float) / (size_t)size ? bytes / sizeof(float) / (size_t)size : 1;
  const struct buffers b = {memory(block * (size_t)size), memory(block * (size_t)size), block * (size_t)size, block};
  const int batch = bytes > 4096 ? 1 : 50;
  for (size_t i = bytes == 0 ? 0 : 1; i < (bytes == 0 ? 1 : sizeof collectives / sizeof *collectives); ++i) {
    const double time = measure(&collectives[i], &b, samples_for(bytes, calls), batch);
    if (rank == ROOT) printf("%s %zu %.3f\n", collectives[i].name, bytes, time);
    fflush(stdout);
  }
  free(b.send), free(b.recv);
}

int main(int argc, char** argv) {
  begin(&argc, &argv);
  bind_to_processor(rank, size);
  const int calls = argc > 1 ? atoi(argv[1]) : 1;
  measure_all(0, calls);
  for (int a = 2; a < argc; ++a) measure_all(strtoull(argv[a], NULL, 10), calls);
  end();
  return 0;
}
