/* Microseconds of an all-reduce of so many bytes, the best of several rounds: mpitrace_cost BYTES CALLS */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const int bytes = atoi(argv[1]), calls = atoi(argv[2]);
  MPI_Init(&argc, &argv);
  float* const in = calloc(1, (size_t)bytes);
  float* const out = calloc(1, (size_t)bytes);
  double best = 1e9;
  for (int round = 0; round < 10; ++round) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    for (int i = 0; i < calls; ++i) MPI_Allreduce(in, out, bytes / 4, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    const double time = (MPI_Wtime() - start) / calls * 1e6;
    if (time < best) best = time;
  }
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0) printf("%.3f\n", best);
  free(in);
  free(out);
  MPI_Finalize();
  return 0;
}
