/* A message of the program's own that MPI has begun and not ended: its sender then waits in the library, in its node's
 * memory, for ranks that wait for the one that receives it. MPI moves only while it is called. On two nodes, two each.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#include "amldist/amldist.h"

enum { SENDER = 1, RECEIVER = 3, BYTES = 8 << 20, DEADLINE_MS = 20000 };

static void require(int status, const char* what) {
  if (status == AMLDIST_OK) return;
  fprintf(stderr, "%s: %s\n", what, amldist_last_error());
  MPI_Abort(MPI_COMM_WORLD, 1);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  amldist_comm* world = NULL;
  require(amldist_init(&world, DEADLINE_MS), "amldist_init");
  require(amldist_set_timeout(world, DEADLINE_MS), "amldist_set_timeout");
  const int rank = amldist_rank(world);
  char* const data = calloc(BYTES, 1);
  MPI_Request sent = MPI_REQUEST_NULL;
  if (rank == SENDER) MPI_Isend(data, BYTES, MPI_BYTE, RECEIVER, 0, MPI_COMM_WORLD, &sent);
  if (rank == RECEIVER) MPI_Recv(data, BYTES, MPI_BYTE, SENDER, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  require(amldist_barrier(world), "amldist_barrier");
  MPI_Wait(&sent, MPI_STATUS_IGNORE);
  require(amldist_finalize(world), "amldist_finalize");
  free(data);
  MPI_Finalize();
  return 0;
}
