/* MPI_Finalize() before amldist_finalize(): an error that says so, and the process ends well. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#include "amldist/amldist.h"

enum { DEADLINE_MS = 20000 };

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  amldist_comm* world = NULL;
  if (amldist_init(&world, DEADLINE_MS) != AMLDIST_OK || amldist_barrier(world) != AMLDIST_OK) {
    fprintf(stderr, "%s\n", amldist_last_error());
    return 1;
  }
  MPI_Finalize();
  const int status = amldist_finalize(world);
  if (status == AMLDIST_EMISMATCH && strstr(amldist_last_error(), "before MPI_Finalize()") != NULL) return 0;
  fprintf(stderr, "status %d: %s\n", status, amldist_last_error());
  return 1;
}
