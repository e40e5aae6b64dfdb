/* Messages of a rank to itself, as in MPI and NCCL, including a world of one. */
#include <string.h>

#include "program.h"

enum { COUNT = 70001 };
static int32_t given[COUNT], got[COUNT];

static void refresh(int32_t salt) {
  for (int i = 0; i < COUNT; ++i) given[i] = i * 3 + salt, got[i] = -1;
}
static void arrived(void) { CHECK(memcmp(given, got, sizeof got) == 0); }

static void in_a_group(void) {
  refresh(1);
  OK(amldist_group_begin(world));
  OK(amldist_recv(world, got, COUNT, AMLDIST_INT32, rank));
  OK(amldist_send(world, given, COUNT, AMLDIST_INT32, rank));
  OK(amldist_group_end(world));
  arrived();
}

static void without_waiting(void) {
  amldist_request *sending = NULL, *receiving = NULL;
  refresh(2);
  OK(amldist_isend(world, given, COUNT, AMLDIST_INT32, rank, &sending));
  OK(amldist_recv(world, got, COUNT, AMLDIST_INT32, rank));
  OK(amldist_wait(&sending));
  arrived();
  refresh(3);
  OK(amldist_irecv(world, got, COUNT, AMLDIST_INT32, rank, &receiving));
  OK(amldist_send(world, given, COUNT, AMLDIST_INT32, rank));
  for (int done = 0; !done;) OK(amldist_test(&receiving, &done));
  arrived();
}

/* Several messages in order, one of them empty, during a ring exchange of all ranks. */
static void beside_others(void) {
  int32_t to_itself[3] = {rank, rank + 1, rank + 2}, from_itself[3] = {0}, from_last = -1;
  OK(amldist_group_begin(world));
  for (int i = 0; i < 3; ++i) OK(amldist_send(world, &to_itself[i], i == 1 ? 0 : 1, AMLDIST_INT32, rank));
  OK(amldist_send(world, &to_itself[0], 1, AMLDIST_INT32, (rank + 1) % size));
  for (int i = 0; i < 3; ++i) OK(amldist_recv(world, &from_itself[i], i == 1 ? 0 : 1, AMLDIST_INT32, rank));
  OK(amldist_recv(world, &from_last, 1, AMLDIST_INT32, (rank + size - 1) % size));
  OK(amldist_group_end(world));
  CHECK(from_itself[0] == rank && from_itself[1] == 0 && from_itself[2] == rank + 2);
  CHECK(from_last == (rank + size - 1) % size);
}

static amldist_comm* alone(void) {
  amldist_comm* comm = NULL;
  OK(amldist_split(world, rank, 0, &comm));
  return comm;
}

/* An exchange that can never complete is an error with a message. */
static void without_other_direction(void) {
  amldist_comm* comm = alone();
  OK(amldist_set_timeout(comm, 100));
  CHECK(amldist_recv(comm, got, 1, AMLDIST_INT32, 0) == AMLDIST_ETIMEOUT);
  CHECK(strstr(amldist_last_error(), "waits for itself") != NULL);
  OK(amldist_finalize(comm));
}
static void with_another_size(void) {
  amldist_comm* comm = alone();
  OK(amldist_group_begin(comm));
  OK(amldist_send(comm, given, 2, AMLDIST_INT32, 0));
  OK(amldist_recv(comm, got, 1, AMLDIST_INT32, 0));
  CHECK(amldist_group_end(comm) == AMLDIST_EPEER);
  CHECK(strstr(amldist_last_error(), "sends another message") != NULL);
  OK(amldist_finalize(comm));
}

void run_itself(void) {
  in_a_group();
  without_waiting();
  beside_others();
  without_other_direction();
  with_another_size();
}
