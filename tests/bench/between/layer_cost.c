/* What a call costs over the calls of MPI that it makes: an all-reduce of one float between two ranks that count as two
 * nodes, and by itself the same receive, send and tests of messages of the same length, in turn, batch by batch.
 *
 *   mpirun -n 2 layer_cost [SAMPLES]
 *
 * Rank 0 prints both medians and the median of the differences, in nanoseconds. */
#define _GNU_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "amldist/amldist.h"

enum { BATCH = 1000, MOST = 2000, HEADER = 16 };

static amldist_comm *world;
static MPI_Comm mpi;
static int rank;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void own_call(float *value) {
  if (amldist_allreduce(world, value, value, 1, AMLDIST_FLOAT32, AMLDIST_MAX) == 0) return;
  fprintf(stderr, "%s\n", amldist_last_error());
  MPI_Abort(MPI_COMM_WORLD, 1);
}

static void bare_call(float *value) {
  static char out[HEADER + sizeof(float)], in[HEADER + sizeof(float)];
  MPI_Request requests[2];
  MPI_Irecv(in, sizeof in, MPI_BYTE, 1 - rank, 5, mpi, &requests[0]);
  MPI_Isend(out, sizeof out, MPI_BYTE, 1 - rank, 5, mpi, &requests[1]);
  for (int left = 2; left > 0;) {
    MPI_Status statuses[2];
    int which[2], done = 0;
    MPI_Testsome(2, requests, &done, which, statuses);
    if (done != MPI_UNDEFINED) left -= done;
  }
  *value += 0;
}

static double batch_of(void (*call)(float *)) {
  float value = 1;
  MPI_Barrier(MPI_COMM_WORLD);
  const double start = now();
  for (int i = 0; i < BATCH; ++i) call(&value);
  return (now() - start) / BATCH;
}

static int by_value(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}
static double median(double *samples, int n) {
  qsort(samples, (size_t)n, sizeof *samples, by_value);
  return samples[n / 2];
}

int main(int argc, char **argv) {
  static double own[MOST], bare[MOST], difference[MOST];
  int samples = argc > 1 ? atoi(argv[1]) : 500;
  if (samples < 1 || samples > MOST) samples = MOST;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_dup(MPI_COMM_WORLD, &mpi);
  setenv("AMLDIST_NODE_NAME", rank == 0 ? "first" : "second", 1);
  setenv("OMPI_COMM_WORLD_LOCAL_RANK", "0", 1);
  setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "1", 1);
  if (amldist_init(&world, 60000) != 0 || amldist_size(world) != 2) {
    fprintf(stderr, "two ranks under mpirun are needed: %s\n", amldist_last_error());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  for (int s = -5; s < samples; ++s) {
    const double times[2] = {batch_of(s % 2 ? own_call : bare_call), batch_of(s % 2 ? bare_call : own_call)};
    if (s < 0) continue;
    own[s] = times[s % 2 ? 0 : 1], bare[s] = times[s % 2 ? 1 : 0];
    difference[s] = own[s] - bare[s];
  }
  if (rank == 0) {
    printf("%s\n", amldist_provenance(world));
    printf("amldist_allreduce %.0f ns, its calls of MPI alone %.0f ns, difference %.0f ns (goal: 60)\n",
           median(own, samples), median(bare, samples), median(difference, samples));
  }
  amldist_finalize(world);
  MPI_Finalize();
  return 0;
}
