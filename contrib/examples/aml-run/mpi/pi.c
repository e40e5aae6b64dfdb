/* pi with MPI: each rank integrates its share, rank 0 prints the sum.
 *
 *     mpicc -O2 -o pi pi.c
 *
 * The ranks that aml-dist tells (OMPI_COMM_WORLD_RANK, as Azure ML's MPI jobs have it) must be those of MPI itself.
 */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char** argv) {
  const long intervals = argc > 1 ? strtol(argv[1], NULL, 10) : 1000;
  MPI_Init(&argc, &argv);
  int rank, size;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);

  const char* told = getenv("OMPI_COMM_WORLD_RANK");
  if (told == NULL || atoi(told) != rank) {
    fprintf(stderr, "rank %d was told that it is %s\n", rank, told ? told : "nobody");
    MPI_Abort(MPI_COMM_WORLD, 1);
  }

  double share = 0, pi = 0;
  for (long i = rank; i < intervals; i += size) {
    const double x = (i + 0.5) / intervals;
    share += 4 / (1 + x * x) / intervals;
  }
  MPI_Reduce(&share, &pi, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) printf("pi is %.9f, from %d ranks\n", pi, size);
  MPI_Finalize();
  return rank == 0 && fabs(pi - acos(-1)) > 1e-6;
}
