/* What a call costs over MPI: an all-reduce of one float between two ranks that count as two nodes; the same send,
 * receive and tests of messages of the same length by themselves; and MPI's own all-reduce. In turn, batch by batch.
 *
 *   mpirun -n 2 layer_cost [SAMPLES]
 *
 * Rank 0 prints the medians and the medians of the differences, in nanoseconds. */
#define _GNU_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "../benchlib/samples.h"
#include "amldist/amldist.h"

enum { BATCH = 1000, MOST = 2000, HEADER = 16, KINDS = 3 };

static amldist_comm* world;
static MPI_Comm mpi;
static int rank;

static void own_call(float* value) {
  if (amldist_allreduce(world, value, value, 1, AMLDIST_FLOAT32, AMLDIST_MAX) == 0) return;
  fprintf(stderr, "%s\n", amldist_last_error());
  MPI_Abort(MPI_COMM_WORLD, 1);
}

/* What MpiTransport makes of it: functions.c. */
static void bare_call(float* value) {
  static char out[HEADER + sizeof(float)], in[HEADER + sizeof(float)];
  MPI_Request sent, received;
  MPI_Status status;
  int done = 0, bytes = 0;
  MPI_Isend(out, sizeof out, MPI_BYTE, 1 - rank, 5, mpi, &sent);
  MPI_Test(&sent, &done, MPI_STATUS_IGNORE);
  MPI_Irecv(in, sizeof in, MPI_BYTE, 1 - rank, 5, mpi, &received);
  if (!done) MPI_Wait(&sent, MPI_STATUS_IGNORE);
  for (done = 0; !done;) MPI_Test(&received, &done, &status);
  MPI_Get_count(&status, MPI_BYTE, &bytes);
  if (bytes != (int)sizeof in) MPI_Abort(MPI_COMM_WORLD, 1);
  *value += 0;
}

static void mpi_call(float* value) { MPI_Allreduce(MPI_IN_PLACE, value, 1, MPI_FLOAT, MPI_MAX, mpi); }

static double batch_of(void (*call)(float*)) {
  float value = 1;
  MPI_Barrier(MPI_COMM_WORLD);
  const double start = now();
  for (int i = 0; i < BATCH; ++i) call(&value);
  return (now() - start) / BATCH;
}

int main(int argc, char** argv) {
  static void (*const calls[KINDS])(float*) = {own_call, bare_call, mpi_call};
  static double times[KINDS][MOST], over_bare[MOST], over_mpi[MOST];
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
    double one[KINDS];
    for (int turn = 0; turn < KINDS; ++turn) {
      const int kind = (s + turn + KINDS + 5) % KINDS;
      one[kind] = batch_of(calls[kind]);
    }
    if (s < 0) continue;
    for (int kind = 0; kind < KINDS; ++kind) times[kind][s] = one[kind];
    over_bare[s] = one[0] - one[1], over_mpi[s] = one[0] - one[2];
  }
  if (rank == 0) {
    printf("%s\n", amldist_provenance(world));
    printf("amldist_allreduce %.0f ns, its calls of MPI alone %.0f ns, difference %.0f ns (goal: 60)\n",
           median(times[0], samples), median(times[1], samples), median(over_bare, samples));
    printf("MPI_Allreduce %.0f ns, difference %.0f ns\n", median(times[2], samples), median(over_mpi, samples));
  }
  amldist_finalize(world);
  MPI_Finalize();
  return 0;
}
