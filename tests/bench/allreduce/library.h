/* The few calls that the programs here make of aml-dist, or of an MPI (-DWITH_MPI). */
#ifndef LIBRARY_H
#define LIBRARY_H

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef WITH_MPI
#include <mpi.h>
#else
#include "amldist/amldist.h"
static amldist_comm* world;
#endif

static int rank, size;

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
static void end(void) {
#ifdef WITH_MPI
  MPI_Finalize();
#else
  amldist_finalize(world);
#endif
}
enum merge { LARGEST, SUM };
/* One number of each rank, merged. */
static double of_all(double mine, enum merge how) {
  double all = mine;
#ifdef WITH_MPI
  MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, how == SUM ? MPI_SUM : MPI_MAX, MPI_COMM_WORLD);
#else
  amldist_allreduce(world, &mine, &all, 1, AMLDIST_FLOAT64, how == SUM ? AMLDIST_SUM : AMLDIST_MAX);
#endif
  return all;
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

#endif
