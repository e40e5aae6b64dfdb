/* The table of functions.h for the MPI that this file is compiled with. */
#include "functions.h"

#include <mpi.h>
#include <stdio.h>
#include <string.h>

_Static_assert(sizeof(MPI_Request) <= sizeof(amldist_mpi_handle), "a request fits into a handle");
_Static_assert(sizeof(MPI_Status) <= sizeof(((amldist_mpi_outcome*)0)->status), "a status fits into an outcome");
_Static_assert(sizeof(MPI_Comm) <= sizeof(amldist_mpi_handle), "a communicator fits into a handle");

static amldist_mpi_handle handle_of_request(MPI_Request request) {
  amldist_mpi_handle handle = 0;
  if (request != MPI_REQUEST_NULL) memcpy(&handle, &request, sizeof request);
  return handle;
}
static MPI_Request request_of(amldist_mpi_handle handle) {
  MPI_Request request = MPI_REQUEST_NULL;
  if (handle != 0) memcpy(&request, &handle, sizeof request);
  return request;
}
static MPI_Comm comm_of(amldist_mpi_handle handle) {
  MPI_Comm comm = MPI_COMM_WORLD;
  if (handle != 0) memcpy(&comm, &handle, sizeof comm);
  return comm;
}

static int state(void) {
  int ready = 0, finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized) return AMLDIST_MPI_FINALIZED;
  MPI_Initialized(&ready);
  return ready ? AMLDIST_MPI_READY : AMLDIST_MPI_NOT_YET;
}

static int initialize(void) {
  int provided = MPI_THREAD_SINGLE;
  return MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided);
}

static int finalize(void) { return MPI_Finalize(); }

static int place(int* rank, int* size, int* any_thread, int* largest_tag) {
  int level = MPI_THREAD_SINGLE, found = 0;
  int* bound = NULL;
  int error = MPI_Comm_rank(MPI_COMM_WORLD, rank);
  if (error == MPI_SUCCESS) error = MPI_Comm_size(MPI_COMM_WORLD, size);
  if (error == MPI_SUCCESS) error = MPI_Query_thread(&level);
  if (error == MPI_SUCCESS) error = MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &bound, &found);
  *any_thread = level == MPI_THREAD_MULTIPLE;
  *largest_tag = error == MPI_SUCCESS && found ? *bound : 32767; /* the standard's minimum */
  return error;
}

static void library(char* text, size_t size) {
  char whole[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_Get_library_version(whole, &length);
  whole[strcspn(whole, "\r\n,")] = '\0';
  snprintf(text, size, "%s", whole);
}

static void error_text(int error, char* text, size_t size) {
  char whole[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(error, whole, &length);
  whole[strcspn(whole, "\r\n")] = '\0';
  snprintf(text, size, "%s", whole);
}

/* MPI writes the communicator when the request completes, so the variable must outlive the call. */
static MPI_Comm copy = MPI_COMM_NULL;

static int copy_world(amldist_mpi_handle* handle) {
  MPI_Request request = MPI_REQUEST_NULL;
  const int error = MPI_Comm_idup(MPI_COMM_WORLD, &copy, &request);
  *handle = handle_of_request(request);
  return error;
}

static int copied_world(amldist_mpi_handle* comm) {
  *comm = 0;
  memcpy(comm, &copy, sizeof copy);
  return MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN);
}

static int free_comm(amldist_mpi_handle* handle) {
  MPI_Comm comm = comm_of(*handle);
  *handle = 0;
  return MPI_Comm_free(&comm);
}

/* A short message is nearly always complete when MPI_Isend returns. For a longer one MPI_Test would make MPI progress
 * and accept messages for which no receive is posted yet. */
enum { SHORT = 4096 };

static int send(amldist_mpi_handle comm, const void* data, int bytes, int peer, int tag, amldist_mpi_handle* handle) {
  MPI_Request request = MPI_REQUEST_NULL;
  int error = MPI_Isend(data, bytes, MPI_BYTE, peer, tag, comm_of(comm), &request), done = 0;
  if (error == MPI_SUCCESS && bytes <= SHORT) error = MPI_Test(&request, &done, MPI_STATUS_IGNORE);
  *handle = handle_of_request(request);
  return error;
}

static int receive(amldist_mpi_handle comm, void* data, int bytes, int peer, int tag, amldist_mpi_handle* handle) {
  MPI_Request request = MPI_REQUEST_NULL;
  const int error = MPI_Irecv(data, bytes, MPI_BYTE, peer, tag, comm_of(comm), &request);
  *handle = handle_of_request(request);
  return error;
}

static int test(amldist_mpi_handle* handle, int* done) {
  MPI_Request request = request_of(*handle);
  const int error = MPI_Test(&request, done, MPI_STATUS_IGNORE);
  if (*done || error != MPI_SUCCESS) *handle = handle_of_request(request);
  return error;
}

static void tell(amldist_mpi_outcome* outcome, int index, int error, const MPI_Status* status) {
  outcome->index = index;
  outcome->error = error;
  memcpy(outcome->status, status, sizeof *status);
}

/* Open MPI's MPI_Test checks again after it has made progress; its MPI_Testsome only when it is called again. */
static int test_one(amldist_mpi_handle* handle, amldist_mpi_outcome* outcome, int* done) {
  MPI_Request request = request_of(*handle);
  MPI_Status status;
  const int error = MPI_Test(&request, done, &status);
  if (!*done) return error;
  tell(outcome, 0, error, &status);
  *handle = handle_of_request(request);
  return MPI_SUCCESS;
}

static int test_some(amldist_mpi_handle* handles, int count, amldist_mpi_outcome* outcomes, int* done) {
  if (count == 1) return test_one(handles, outcomes, done);
  MPI_Request requests[AMLDIST_MPI_MOST];
  MPI_Status statuses[AMLDIST_MPI_MOST];
  int which[AMLDIST_MPI_MOST];
  for (int i = 0; i < count; ++i) requests[i] = request_of(handles[i]);
  const int error = MPI_Testsome(count, requests, done, which, statuses);
  if (*done == MPI_UNDEFINED) *done = 0;
  int told = MPI_SUCCESS;
  for (int i = 0; i < *done; ++i) {
    tell(&outcomes[i], which[i], error == MPI_SUCCESS ? MPI_SUCCESS : statuses[i].MPI_ERROR, &statuses[i]);
    if (outcomes[i].error != MPI_SUCCESS) told = outcomes[i].error;
    handles[which[i]] = handle_of_request(requests[which[i]]);
  }
  return told == MPI_SUCCESS ? error : MPI_SUCCESS; /* an error of one of them is said there */
}

static int bytes_of(const amldist_mpi_outcome* outcome) {
  MPI_Status status;
  int bytes = 0;
  memcpy(&status, outcome->status, sizeof status);
  MPI_Get_count(&status, MPI_BYTE, &bytes);
  return bytes;
}

static void move_on(void) {
  int found = 0;
  MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &found, MPI_STATUS_IGNORE);
}

static void give_up(amldist_mpi_handle* handle, int is_receive) {
  MPI_Request request = request_of(*handle);
  *handle = 0;
  if (request == MPI_REQUEST_NULL) return;
  int done = 0;
  if (is_receive) MPI_Cancel(&request);
  if (MPI_Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done) return;
  MPI_Request_free(&request);
}

const amldist_mpi_functions* amldist_mpi_get_functions(void) {
  static const amldist_mpi_functions functions = {
      .table = AMLDIST_MPI_TABLE,
      .state = state,
      .initialize = initialize,
      .finalize = finalize,
      .place = place,
      .library = library,
      .error_text = error_text,
      .copy_world = copy_world,
      .copied_world = copied_world,
      .free_comm = free_comm,
      .send = send,
      .receive = receive,
      .test = test,
      .test_some = test_some,
      .bytes_of = bytes_of,
      .move_on = move_on,
      .give_up = give_up,
  };
  return &functions;
}
