/* The names that the preloaded library has, shared by its files. */
#pragma once

/* A name in the list begins where MPI's and MPIX's differ: _Allreduce, X_Allreduce_init. */
enum {
#define X(name) index##name,
#include "function_names.inc"
#undef X
  functions
};

/* "PMPI_Allreduce"; behind the P, MPI's own name. */
__attribute__((visibility("hidden"))) extern const char* const amldist_mpi_names[functions];

/* For each name, how the dynamic linker asks whether it is there: the address of the function, or NULL. */
typedef void* AskForName(void);
__attribute__((visibility("hidden"))) extern AskForName* const amldist_mpi_askers[functions];

/* Called by those with the function of this library. */
__attribute__((visibility("hidden"))) void* amldist_mpi_ask(long index, void* function);
