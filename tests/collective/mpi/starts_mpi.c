/* Linked to the tests' program: MPI is started before main(), as most programs do, without threads. */
#include <mpi.h>

__attribute__((constructor)) static void start(void) { MPI_Init(NULL, NULL); }
__attribute__((destructor)) static void end(void) { MPI_Finalize(); }
