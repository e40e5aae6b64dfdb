/* One operation with aml-dist and with the MPI that the program is in, in turn, in the same processes.
 *
 *   loop OPERATION SAMPLES BYTES...
 *
 * For every size (what a rank gives to each of the others, or to all of them: as in the operation's own count) rank 0
 * prints "BYTES OWN PEER OWN_IN_PLACE PEER_IN_PLACE": microseconds a call, medians over the samples, of the slowest
 * rank. A sample is a batch of calls of the one library and then of the other; who is first alternates. In place only
 * where the operation is allreduce; float32, sum, inputs rewritten before every batch. */
#define _GNU_SOURCE
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "amldist/amldist.h"

enum { OWN, PEER };
enum { MOST_SAMPLES = 1000, MOST_RANKS = 256 };

static amldist_comm* world;
static int rank, size;
static float *input, *output;
static size_t count;
static int counts[MOST_RANKS], offsets[MOST_RANKS];
static size_t own_counts[MOST_RANKS], own_offsets[MOST_RANKS];

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

/* ---- operations ---- */
static int allreduce(int who, int in_place) {
  const void* const from = in_place ? MPI_IN_PLACE : input;
  if (who == PEER) return MPI_Allreduce(from, output, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  return amldist_allreduce(world, in_place ? output : input, output, count, AMLDIST_FLOAT32, AMLDIST_SUM);
}
static int reduce(int who, int in_place) {
  (void)in_place;
  if (who == PEER) return MPI_Reduce(input, output, (int)count, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
  return amldist_reduce(world, input, output, count, AMLDIST_FLOAT32, AMLDIST_SUM, 0);
}
static int broadcast(int who, int in_place) {
  (void)in_place;
  if (who == PEER) return MPI_Bcast(output, (int)count, MPI_FLOAT, 0, MPI_COMM_WORLD);
  return amldist_broadcast(world, output, count, AMLDIST_FLOAT32, 0);
}
static int allgather(int who, int in_place) {
  (void)in_place;
  const int each = (int)count;
  if (who == PEER) return MPI_Allgather(input, each, MPI_FLOAT, output, each, MPI_FLOAT, MPI_COMM_WORLD);
  return amldist_allgather(world, input, output, count, AMLDIST_FLOAT32);
}
/* Odd ranks give half as much. */
static int allgatherv(int who, int in_place) {
  (void)in_place;
  if (who == PEER)
    return MPI_Allgatherv(input, counts[rank], MPI_FLOAT, output, counts, offsets, MPI_FLOAT, MPI_COMM_WORLD);
  return amldist_allgatherv(world, input, own_counts[rank], output, own_counts, own_offsets, AMLDIST_FLOAT32);
}
static int reduce_scatter(int who, int in_place) {
  (void)in_place;
  const int each = (int)count;
  if (who == PEER) return MPI_Reduce_scatter_block(input, output, each, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  return amldist_reduce_scatter(world, input, output, count, AMLDIST_FLOAT32, AMLDIST_SUM);
}
static int gather(int who, int in_place) {
  (void)in_place;
  const int each = (int)count;
  if (who == PEER) return MPI_Gather(input, each, MPI_FLOAT, output, each, MPI_FLOAT, 0, MPI_COMM_WORLD);
  return amldist_gather(world, input, output, count, AMLDIST_FLOAT32, 0);
}
static int scatter(int who, int in_place) {
  (void)in_place;
  const int each = (int)count;
  if (who == PEER) return MPI_Scatter(input, each, MPI_FLOAT, output, each, MPI_FLOAT, 0, MPI_COMM_WORLD);
  return amldist_scatter(world, input, output, count, AMLDIST_FLOAT32, 0);
}
static int alltoall(int who, int in_place) {
  (void)in_place;
  const int each = (int)count;
  if (who == PEER) return MPI_Alltoall(input, each, MPI_FLOAT, output, each, MPI_FLOAT, MPI_COMM_WORLD);
  return amldist_alltoall(world, input, output, count, AMLDIST_FLOAT32);
}
static int barrier(int who, int in_place) {
  (void)in_place;
  return who == PEER ? MPI_Barrier(MPI_COMM_WORLD) : amldist_barrier(world);
}
/* There and back between the first and the last rank. */
static int pingpong(int who, int in_place) {
  (void)in_place;
  const int last = size - 1, n = (int)count;
  if (rank != 0 && rank != last) return 0;
  const int peer = rank == 0 ? last : 0;
  for (int turn = 0; turn < 2; ++turn) {
    const int sends = (turn == 0) == (rank == 0);
    int status = 0;
    if (who == PEER)
      status = sends ? MPI_Send(output, n, MPI_FLOAT, peer, 0, MPI_COMM_WORLD)
                     : MPI_Recv(output, n, MPI_FLOAT, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else
      status = sends ? amldist_send(world, output, count, AMLDIST_FLOAT32, peer)
                     : amldist_recv(world, output, count, AMLDIST_FLOAT32, peer);
    if (status != 0) return status;
  }
  return 0;
}

struct operation {
  const char* name;
  int (*call)(int who, int in_place);
  int has_all; /* buffers hold a block for every rank */
};
static const struct operation operations[] = {
    {"allreduce", allreduce, 0}, {"reduce", reduce, 0},         {"broadcast", broadcast, 0},
    {"allgather", allgather, 1}, {"allgatherv", allgatherv, 1}, {"reduce_scatter", reduce_scatter, 1},
    {"gather", gather, 1},       {"scatter", scatter, 1},       {"alltoall", alltoall, 1},
    {"barrier", barrier, 0},     {"pingpong", pingpong, 0},
};

/* ---- measuring ---- */
static int by_value(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}
static double median(double* times, int n) {
  qsort(times, (size_t)n, sizeof *times, by_value);
  double all = times[n / 2];
  MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return all;
}

static double batch_of(const struct operation* what, int who, int in_place, int batch, size_t elements) {
  float* const given = in_place ? output : input;
  for (size_t i = 0; i < elements; ++i) given[i] = (float)(rank + 1);
  MPI_Barrier(MPI_COMM_WORLD);
  const double start = now();
  for (int b = 0; b < batch; ++b) {
    if (what->call(who, in_place) == 0) continue;
    fprintf(stderr, "%s: %s\n", what->name, amldist_last_error());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  return (now() - start) / batch;
}

static void measure(const struct operation* what, int in_place, int samples, int batch, size_t elements,
                    double result[2]) {
  static double times[2][MOST_SAMPLES];
  for (int s = -2; s < samples; ++s) {
    for (int turn = 0; turn < 2; ++turn) {
      const int who = (s + turn) & 1;
      const double time = batch_of(what, who, in_place, batch, elements);
      if (s >= 0) times[who][s] = time;
    }
  }
  for (int who = 0; who < 2; ++who) result[who] = median(times[who], samples);
}

static void one_size(const struct operation* what, size_t bytes, int samples) {
  count = bytes / sizeof(float);
  const size_t elements = count * (what->has_all ? (size_t)size : 1);
  for (int r = 0; r < size; ++r) {
    counts[r] = (int)(r % 2 ? count / 2 : count), offsets[r] = r == 0 ? 0 : offsets[r - 1] + counts[r - 1];
    own_counts[r] = (size_t)counts[r], own_offsets[r] = (size_t)offsets[r];
  }
  if (posix_memalign((void**)&input, 4096, elements * sizeof(float) + 64) != 0) exit(1);
  if (posix_memalign((void**)&output, 4096, elements * sizeof(float) + 64) != 0) exit(1);
  memset(output, 0, elements * sizeof(float));
  const int batch = bytes > 4096 ? 1 : 10;
  double out[2], in[2] = {NAN, NAN};
  measure(what, 0, samples, batch, elements, out);
  if (what->call == allreduce) measure(what, 1, samples, batch, elements, in);
  if (rank == 0) printf("%zu %.2f %.2f %.2f %.2f\n", bytes, out[OWN], out[PEER], in[OWN], in[PEER]);
  fflush(stdout);
  free(input), free(output);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  if (amldist_init(&world, 60000) != 0) {
    fprintf(stderr, "%s\n", amldist_last_error());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  rank = amldist_rank(world), size = amldist_size(world);
  const struct operation* what = operations;
  const struct operation* const end = operations + sizeof operations / sizeof *operations;
  while (what < end && argc > 1 && strcmp(what->name, argv[1]) != 0) ++what;
  if (what == end || argc < 4 || size > MOST_RANKS) {
    fprintf(stderr, "usage: loop OPERATION SAMPLES BYTES..., up to %d ranks\n", MOST_RANKS);
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  if (rank == 0) fprintf(stderr, "%s\n", amldist_provenance(world));
  for (int a = 3; a < argc; ++a) {
    const size_t bytes = strtoull(argv[a], NULL, 10);
    const int most = atoi(argv[2]) < MOST_SAMPLES ? atoi(argv[2]) : MOST_SAMPLES;
    one_size(what, bytes, bytes <= 65536 ? most : bytes <= 1 << 20 ? most / 3 + 1 : most / 15 + 1);
  }
  amldist_finalize(world);
  MPI_Finalize();
  return 0;
}
