/* The MPI functions that libamldist uses, as a table of plain functions. The library is built without mpi.h and loads
 * without MPI. libamldist_mpi.so, which is linked with MPI, is opened at run time and provides this table. It uses only
 * calls of MPI 3.1.
 *
 * Every function returns 0 or MPI's error number (error_text describes it). Lengths are below 2^31: the caller splits
 * longer messages. */
#ifndef AMLDIST_MPI_FUNCTIONS_H
#define AMLDIST_MPI_FUNCTIONS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Incremented with every change of the table. */
enum { AMLDIST_MPI_TABLE = 4 };

/* State of MPI in this process. */
enum { AMLDIST_MPI_NOT_YET = 0, AMLDIST_MPI_READY = 1, AMLDIST_MPI_FINALIZED = 2 };

/* An MPI_Request or an MPI_Comm. 0: none. */
typedef uintptr_t amldist_mpi_handle;

/* Most requests that test_some accepts. */
enum { AMLDIST_MPI_MOST = 64 };

/* Result of a request. */
typedef struct amldist_mpi_outcome {
  int index; /* in the list */
  int error;
  uint64_t status[4]; /* MPI's own: bytes_of() reads it */
} amldist_mpi_outcome;

typedef struct amldist_mpi_functions {
  int table; /* AMLDIST_MPI_TABLE of its build */
  int (*state)(void);
  int (*initialize)(void); /* with MPI_THREAD_MULTIPLE */
  int (*finalize)(void);
  /* Rank and size in MPI_COMM_WORLD, whether any thread may call MPI, and the largest tag. */
  int (*place)(int* rank, int* size, int* any_thread, int* largest_tag);
  /* First line of MPI_Get_library_version. */
  void (*library)(char* text, size_t size);
  void (*error_text)(int error, char* text, size_t size);

  /* Starts duplicating MPI_COMM_WORLD; collective, one at a time. */
  int (*copy_world)(amldist_mpi_handle* request);
  /* The duplicate, once that request is complete. Its error handler returns errors. */
  int (*copied_world)(amldist_mpi_handle* comm);
  int (*free_comm)(amldist_mpi_handle* comm);
  /* comm 0: MPI_COMM_WORLD. *request 0: the message is already complete and needs no test. */
  int (*send)(amldist_mpi_handle comm, const void* data, int bytes, int peer, int tag, amldist_mpi_handle* request);
  int (*receive)(amldist_mpi_handle comm, void* data, int bytes, int peer, int tag, amldist_mpi_handle* request);
  /* Sets *done to 1 and *request to 0 if the request is complete; never waits. */
  int (*test)(amldist_mpi_handle* request, int* done);
  /* The same for up to AMLDIST_MPI_MOST at once, none of them 0; MPI makes progress once, whatever their number. The
   * first *done outcomes are those of completed requests. */
  int (*test_some)(amldist_mpi_handle* requests, int count, amldist_mpi_outcome* outcomes, int* done);
  /* Number of bytes in a successful receive. */
  int (*bytes_of)(const amldist_mpi_outcome* outcome);
  /* Lets MPI make progress on everything in this process, including the program's own messages. Never waits. */
  void (*move_on)(void);
  /* Abandons a request: cancels a receive, leaves a send to MPI. Never waits. */
  void (*give_up)(amldist_mpi_handle* request, int is_receive);
} amldist_mpi_functions;

const amldist_mpi_functions* amldist_mpi_get_functions(void);

#ifdef __cplusplus
}
#endif
#endif
