/* What the recorder needs of an MPI of MPICH's binary interface, for a world of two of which this process is rank 0:
 * every call ends at once. Handles are numbers; a request's is its own. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
  world = 0x44000000,
  no_request = 0x2c000000,
  attributes = 20001,
  ended_at_once = 0x6c000000, /* of every send */
  first_request = 0x6d000000,
  /* What a wait for the receive of a message with this tag does. */
  fails = 1001,
  never_ends = 1002, /* the process ends instead, as if it was killed there; a test finds nothing */
};

static void* attribute_of[attributes];
/* The other group's rank in the world where a communicator has two, each of one process; -1: it is not of the world. */
static int other_of[attributes];
static int (*end_of_attribute)(int comm, int keyval, void* value, void* extra);
/* Called once: when a communicator turns out to have no attribute, and when a wait has ended. */
void (*fake_mpi_no_attribute)(void);
void (*fake_mpi_wait_ended)(void);
static int communicators = 1;
static int made_requests;

static void call_once(void (**hook)(void)) {
  void (*const call)(void) = *hook;
  *hook = NULL;
  if (call != NULL) call();
}

static int number_of(int comm) { return comm == world ? 0 : comm - world; }

int PMPI_Get_library_version(char* text, int* length) {
  *length = sprintf(text, "MPICH Version: fake");
  return 0;
}
int PMPI_Init(int* argc, char*** argv) { return (void)argc, (void)argv, 0; }
int PMPI_Finalize(void) { return 0; }
/* MPI_THREAD_MULTIPLE unless a test says otherwise. */
int PMPI_Query_thread(int* provided) {
  const char* const said = getenv("FAKE_MPI_THREADS");
  return *provided = said != NULL ? atoi(said) : 3, 0;
}
int PMPI_Comm_rank(int comm, int* rank) { return (void)comm, *rank = 0; }
int PMPI_Comm_test_inter(int comm, int* flag) { return *flag = other_of[number_of(comm)] != 0, 0; }
int PMPI_Comm_size(int comm, int* size) { return *size = other_of[number_of(comm)] != 0 ? 1 : 2, 0; }
int PMPI_Comm_group(int comm, int* group) { return *group = comm, 0; }
int PMPI_Comm_remote_group(int comm, int* group) { return *group = -comm, 0; }
int PMPI_Group_free(int* group) { return *group = 0; }
int PMPI_Group_size(int group, int* size) {
  if (group >= 0 && group < world) return *size = 2, 0; /* a group that the program has made */
  return PMPI_Comm_size(group < 0 ? -group : group, size);
}
int PMPI_Group_rank(int group, int* rank) { return (void)group, *rank = 0; }
int PMPI_Group_translate_ranks(int group, int n, const int* ranks, int other, int* out) {
  (void)other;
  memcpy(out, ranks, (size_t)n * sizeof *ranks);
  if (group < 0) out[0] = other_of[number_of(-group)];
  return 0;
}
int PMPI_Comm_create_keyval(void* copy, void* end, int* keyval, void* extra) {
  memcpy(&end_of_attribute, &end, sizeof end);
  return (void)copy, (void)extra, *keyval = 7, 0;
}
int PMPI_Comm_set_attr(int comm, int keyval, void* value) {
  void* const before = attribute_of[number_of(comm)];
  attribute_of[number_of(comm)] = value;
  return before == NULL ? 0 : end_of_attribute(comm, keyval, before, NULL);
}
int PMPI_Comm_get_attr(int comm, int keyval, void* value, int* flag) {
  (void)keyval;
  *(void**)value = attribute_of[number_of(comm)];
  *flag = *(void**)value != NULL;
  if (*flag == 0) call_once(&fake_mpi_no_attribute);
  return 0;
}
int PMPI_Comm_dup(int comm, int* made) {
  *made = world + communicators++ % attributes;
  other_of[number_of(*made)] = other_of[number_of(comm)];
  return 0;
}
int PMPI_Comm_free(int* comm) {
  other_of[number_of(*comm)] = 0;
  void* const value = attribute_of[number_of(*comm)];
  attribute_of[number_of(*comm)] = NULL;
  return value == NULL ? 0 : end_of_attribute(*comm, 7, value, NULL);
}
int PMPI_Comm_idup(int comm, int* made, int* request) {
  *request = first_request + __atomic_fetch_add(&made_requests, 1, __ATOMIC_RELAXED);
  return PMPI_Comm_dup(comm, made);
}
int PMPI_Comm_create_group(int comm, int group, int tag, int* made) {
  return (void)group, (void)tag, PMPI_Comm_dup(comm, made);
}
int PMPI_Intercomm_create(int comm, int leader, int peers, int other_leader, int tag, int* made) {
  (void)leader, (void)peers, (void)other_leader, (void)tag, PMPI_Comm_dup(comm, made);
  return other_of[number_of(*made)] = 1, 0;
}
int PMPI_Comm_spawn(const char* command, char** argv, int most, int info, int root, int comm, int* made, int* errors) {
  (void)command, (void)argv, (void)most, (void)info, (void)root, (void)errors, PMPI_Comm_dup(comm, made);
  return other_of[number_of(*made)] = -1, 0;
}
int PMPI_Bcast(void* buffer, int count, int type, int root, int comm) {
  return (void)buffer, (void)type, (void)root, (void)comm, count == fails ? 0x0e0e : 0;
}
int PMPI_File_open(int comm, const char* name, int mode, int info, void** file) {
  static char opened;
  return (void)comm, (void)name, (void)mode, (void)info, *file = &opened, 0;
}
int PMPI_File_write_all(void* file, const void* buffer, int count, int type, void* status) {
  return (void)file, (void)buffer, (void)count, (void)type, (void)status, 0;
}
int PMPI_Win_flush(int rank, int window) { return (void)rank, (void)window, 0; }
int PMPI_Session_init(int info, int handler, int* session) { return (void)info, (void)handler, *session = 1, 0; }
int PMPI_File_close(void** file) { return *file = NULL, 0; }
int PMPI_Type_size(int type, int* size) { return (void)type, *size = 4, 0; }
int PMPI_Barrier(int comm) { return (void)comm, 0; }
int PMPI_Allreduce(const void* in, void* out, int count, int type, int op, int comm) {
  return (void)in, (void)out, (void)count, (void)type, (void)op, (void)comm, 0;
}
int PMPI_Iallreduce(const void* in, void* out, int count, int type, int op, int comm, int* request) {
  return *request = first_request + __atomic_fetch_add(&made_requests, 1, __ATOMIC_RELAXED),
         PMPI_Allreduce(in, out, count, type, op, comm);
}
int PMPI_Allreduce_init(const void* in, void* out, int count, int type, int op, int comm, int info, int* request) {
  return (void)info, PMPI_Iallreduce(in, out, count, type, op, comm, request);
}
int PMPI_Recv(void* buffer, int count, int type, int source, int tag, int comm, void* status) {
  return (void)buffer, (void)count, (void)type, (void)source, (void)tag, (void)comm, (void)status,
         15; /* MPI_ERR_OTHER */
}
int PMPI_Error_class(int error, int* kind) { return *kind = error == 0x0e0e ? 14 : error, 0; } /* MPI_ERR_TRUNCATE */
int PMPI_Start(int* request) { return (void)request, 0; }
int PMPI_Startall(int count, int* all) { return (void)count, (void)all, 0; }
int PMPI_Isend(const void* buffer, int count, int type, int to, int tag, int comm, int* request) {
  return (void)buffer, (void)count, (void)type, (void)to, (void)tag, (void)comm, *request = ended_at_once, 0;
}
int PMPI_Send(const void* buffer, int count, int type, int to, int tag, int comm) {
  const int is_packed = type == 0x4c00010f && count == 4;
  if (tag == never_ends) _exit(0);
  return (void)buffer, (void)to, (void)comm, is_packed || type != 0x4c00010f ? 0 : 15;
}
int PMPI_Pack_size(int count, int type, int comm, int* size) { return (void)type, (void)comm, *size = 4 * count, 0; }
int PMPI_Pack(const void* in, int count, int type, void* out, int room, int* position, int comm) {
  (void)type, (void)room, (void)comm;
  memcpy((char*)out + *position, in, 4 * (size_t)count);
  return *position += 4 * count, 0;
}
int PMPI_Irecv(void* buffer, int count, int type, int from, int tag, int comm, int* request) {
  static int next;
  const int kind = tag == fails ? 1 : tag == never_ends ? 2 : 0;
  return (void)buffer, (void)count, (void)type, (void)from, (void)comm,
         *request = first_request + (1 + kind) * 1000000 + next++, 0;
}
int PMPI_Wait(int* request, void* status) {
  (void)status;
  if (*request >= first_request + 3000000) _exit(0);
  call_once(&fake_mpi_wait_ended);
  return *request < first_request + 2000000 ? 0 : 15;
}
int PMPI_Request_get_status(int request, int* flag, void* status) {
  return (void)status, *flag = request < first_request + 3000000, 0;
}
int PMPI_Test(int* request, int* flag, void* status) { return PMPI_Request_get_status(*request, flag, status); }
int PMPI_Testall(int count, int* requests, int* flag, void* statuses) {
  int ended = 1;
  for (int i = 0; i < count && ended; ++i) PMPI_Request_get_status(requests[i], &ended, statuses);
  return *flag = ended, 0;
}
static int error_of(int request) { return request < first_request + 2000000 ? 0 : 15; }
static int set_error(void* statuses, int index, int request) { /* MPI_ERR_IN_STATUS if that is one */
  const int error = error_of(request);
  memcpy((char*)statuses + 20 * index + 16, &error, sizeof error);
  return error != 0 ? 17 : 0;
}
int PMPI_Waitall(int count, int* requests, void* statuses) {
  int result = 0;
  for (int i = 0; i < count; ++i) result |= set_error(statuses, i, requests[i]);
  return result;
}
int PMPI_Waitany(int count, int* requests, int* index, void* status) {
  return (void)status, *index = count - 1, error_of(requests[count - 1]);
}
int PMPI_Waitsome(int count, int* requests, int* ended, int* indices, void* statuses) { /* all but the first */
  int result = 0;
  for (int i = 1; i < count; ++i) result |= set_error(statuses, i - 1, requests[indices[i - 1] = i]);
  return *ended = count - 1, result;
}
int PMPI_Request_free(int* request) { return *request = no_request, 0; }
