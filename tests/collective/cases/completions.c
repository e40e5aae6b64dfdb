/* Ways to learn of a call's end other than to wait for it: functions that are called, waits that give up, errors in
 * numbers, and threads that are wanted back. */
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "program.h"

enum { CALLS = 20, LONG_MS = 30000 };

static void nap(void) { nanosleep(&(struct timespec){0, 1000000}, NULL); }

/* ---- functions ---- */
static atomic_int ended;
static int32_t numbers[CALLS], chained;
static amldist_request *requests[CALLS], *next;
static int endings[CALLS];

static void count_end(int status, void* context) {
  OK(status);
  ++*(int*)context;
  atomic_fetch_add(&ended, 1);
}

/* Begins another call: nobody else makes one meanwhile. */
static void begin_next(int status, void* context) {
  OK(status);
  CHECK(context == &chained);
  chained = 1;
  OK(amldist_iallreduce(world, &chained, &chained, 1, AMLDIST_INT32, AMLDIST_SUM, &next));
  OK(amldist_on_complete(next, count_end, &endings[0]));
}

/* Takes long, and needs its context to the end. */
static void end_late(int status, void* context) {
  OK(status);
  nap();
  OK(amldist_wait(context)); /* its own request, which others wait for in vain */
  atomic_fetch_add(&ended, 1);
}
static void count_late(int status, void* context) {
  OK(status);
  nap();
  ++*(int*)context;
}

/* Whoever has waited for a request may free the context. */
static void run_late_functions(void) {
  for (int i = 0; i < CALLS; ++i) {
    amldist_request* request;
    int late = 0;
    OK(amldist_iallreduce(world, &numbers[0], &numbers[0], 1, AMLDIST_INT32, AMLDIST_MAX, &request));
    OK(amldist_on_complete(request, count_late, &late));
    if (i % 2) nap(); /* the progress thread is in the function meanwhile */
    if (i % 3) {
      OK(amldist_wait(&request));
    } else {
      for (int done = 0; !done;) OK(amldist_test(&request, &done));
    }
    CHECK(late == 1);
  }
}

static void await_ends(int wanted) {
  while (atomic_load(&ended) < wanted) nap();
}

void run_completions(void) {
  for (int i = 0; i < CALLS; ++i) {
    numbers[i] = rank + i;
    OK(amldist_iallreduce(world, &numbers[i], &numbers[i], 1, AMLDIST_INT32, AMLDIST_SUM, &requests[i]));
    OK(amldist_on_complete(requests[i], count_end, &endings[i]));
  }
  await_ends(CALLS); /* nobody waits for a request */
  for (int i = 0; i < CALLS; ++i) {
    CHECK(endings[i] == 1 && numbers[i] == size * (size - 1) / 2 + size * i);
    CHECK(amldist_on_complete(requests[i], count_end, &endings[i]) == AMLDIST_EINVAL);
    OK(amldist_wait(&requests[i]));
    CHECK(endings[i] == 1);
  }
  amldist_request* request = NULL;
  OK(amldist_ibarrier(world, &request));
  for (int done = 0; !done; nap()) {
    amldist_request* same = request;
    if (amldist_wait_for(&same, 0, &done) == AMLDIST_OK && done) request = NULL;
  }
  /* A function of a call that is complete is called at once. */
  OK(amldist_iallreduce(world, &numbers[0], &numbers[0], 1, AMLDIST_INT32, AMLDIST_MAX, &request));
  OK(amldist_barrier(world));
  OK(amldist_on_complete(request, count_end, &endings[0]));
  CHECK(endings[0] == 2);
  OK(amldist_wait(&request));
  /* One call after the other, by their functions alone; then a message to the rank itself. */
  OK(amldist_ibarrier(world, &request));
  OK(amldist_on_complete(request, begin_next, &chained));
  await_ends(CALLS + 2);
  CHECK(chained == size && endings[0] == 3);
  OK(amldist_wait(&request));
  OK(amldist_wait(&next));
  int32_t out = 7, in = 0;
  amldist_request *sending, *receiving;
  OK(amldist_irecv(world, &in, 1, AMLDIST_INT32, rank, &receiving));
  OK(amldist_on_complete(receiving, count_end, &endings[1]));
  OK(amldist_isend(world, &out, 1, AMLDIST_INT32, rank, &sending));
  await_ends(CALLS + 3);
  CHECK(in == 7 && endings[1] == 2);
  OK(amldist_wait(&sending));
  OK(amldist_wait(&receiving));
  CHECK(amldist_on_complete(NULL, count_end, NULL) == AMLDIST_EINVAL);
  OK(amldist_ibarrier(world, &request));
  OK(amldist_on_complete(request, end_late, &request));
  await_ends(CALLS + 4);
  CHECK(request == NULL);
  run_late_functions();
}

/* ---- waits that give up ---- */
void run_short_waits(void) {
  int32_t ranks = 1, go = 0;
  int done = 1;
  amldist_request* request = NULL;
  if (rank > 0) OK(amldist_recv(world, &go, 1, AMLDIST_INT32, 0));
  OK(amldist_iallreduce(world, &ranks, &ranks, 1, AMLDIST_INT32, AMLDIST_SUM, &request));
  if (rank == 0) {
    OK(amldist_wait_for(&request, 20, &done));
    CHECK(done == (size == 1));
    for (int r = 1; r < size; ++r) OK(amldist_send(world, &go, 1, AMLDIST_INT32, r));
  }
  OK(amldist_wait_for(&request, LONG_MS, &done));
  CHECK(done == 1 && request == NULL && ranks == size);
  OK(amldist_wait_for(&request, 0, &done));
  CHECK(done == 1);
  /* A message does not wait for the collective that began before it, nor the collective for the messages. */
  for (int first = 0; first < 2; ++first) {
    ranks = 1;
    if (rank > 0 && first) OK(amldist_recv(world, &go, 1, AMLDIST_INT32, 0));
    OK(amldist_iallreduce(world, &ranks, &ranks, 1, AMLDIST_INT32, AMLDIST_SUM, &request));
    for (int r = 1; rank == 0 && r < size; ++r) OK(amldist_send(world, &go, 1, AMLDIST_INT32, r));
    if (rank > 0 && !first) {
      OK(amldist_wait(&request));
      OK(amldist_recv(world, &go, 1, AMLDIST_INT32, 0));
    }
    OK(amldist_wait(&request));
    CHECK(ranks == size);
  }
  CHECK(amldist_wait_for(&request, -1, &done) == AMLDIST_EINVAL);
  CHECK(amldist_wait_for(NULL, 1, &done) == AMLDIST_EINVAL);
}

/* ---- errors in numbers ---- */
static void expect_missing(const char* operation, uint64_t number) {
  amldist_error error = {.struct_size = sizeof error};
  OK(amldist_get_error(&error));
  CHECK(error.rank == size - 1 && error.number == number);
  CHECK(strcmp(error.operation, operation) == 0 && strcmp(error.host, amldist_host(world, size - 1)) == 0);
  CHECK(strcmp(error.message, amldist_last_error()) == 0 && strstr(error.message, " has not called it") != NULL);
}

static atomic_int told;
static void note_failure(int status, void* context) {
  amldist_error error = {.struct_size = sizeof error};
  OK(amldist_get_error(&error));
  CHECK(context == &told && status == error.code && status == AMLDIST_ETIMEOUT);
  expect_missing("allreduce", 1);
  atomic_fetch_add(&told, 1);
}

/* The last rank makes no call: what is known of it, to the thread that waits, in later calls, and in a function. */
void run_blame(void) {
  amldist_error error = {.struct_size = sizeof error};
  int32_t x = 0;
  amldist_request* request = NULL;
  CHECK(amldist_get_error(NULL) == AMLDIST_EINVAL);
  error.struct_size = 8;
  CHECK(amldist_get_error(&error) == AMLDIST_EINVAL);
  error.struct_size = sizeof error;
  CHECK(amldist_broadcast(world, &x, 1, AMLDIST_INT32, size) == AMLDIST_EINVAL);
  OK(amldist_get_error(&error));
  CHECK(error.code == AMLDIST_EINVAL && error.rank == -1 && error.number == 0);
  CHECK(*error.host == '\0' && *error.operation == '\0' && strstr(error.message, "root") != NULL);
  OK(amldist_set_timeout(world, 800));
  if (rank == size - 1) {
    while (amldist_health(world) == AMLDIST_OK) nap();
    return;
  }
  OK(amldist_iallreduce(world, &x, &x, 1, AMLDIST_INT32, AMLDIST_SUM, &request));
  OK(amldist_on_complete(request, note_failure, &told));
  while (atomic_load(&told) == 0) nap();
  CHECK(amldist_wait(&request) == AMLDIST_ETIMEOUT);
  expect_missing("allreduce", 1);
  CHECK(amldist_barrier(world) == AMLDIST_EABORTED);
  expect_missing("allreduce", 1);
  CHECK(atomic_load(&told) == 1);
}

/* The last rank makes no call on a group. The call that made the group does not count as one, though it has the same
 * number as the call in which the others wait. */
void run_blame_in_part(void) {
  amldist_comm* part = NULL;
  OK(amldist_split(world, 0, rank, &part));
  OK(amldist_set_timeout(part, 800));
  if (rank == size - 1) {
    while (amldist_health(part) == AMLDIST_OK) nap();
  } else {
    CHECK(amldist_barrier(part) == AMLDIST_ETIMEOUT);
    expect_missing("barrier", 1);
  }
  OK(amldist_abort(part));
  OK(amldist_finalize(part));
}

/* ---- threads that are wanted back ---- */
static int questions;
static int third_time(void* context) {
  CHECK(context == &questions);
  return ++questions == 3;
}

static void interrupt_barrier(amldist_comm* comm, int ahead) {
  amldist_request* request = NULL;
  questions = 0;
  if (rank != 0) {
    while (amldist_health(comm) == AMLDIST_OK) nap();
    CHECK(amldist_barrier(comm) == AMLDIST_EABORTED);
    return;
  }
  OK(amldist_set_interrupt(third_time, &questions));
  if (ahead) { /* the progress thread is in the call when this one begins to wait */
    OK(amldist_ibarrier(comm, &request));
    for (int i = 0; i < 100; ++i) nap();
  }
  CHECK((ahead ? amldist_wait(&request) : amldist_barrier(comm)) == AMLDIST_EABORTED);
  CHECK(questions == 3 && strstr(amldist_last_error(), "the program interrupted rank 0") != NULL);
  OK(amldist_set_interrupt(NULL, NULL));
}

void run_interrupted(void) {
  amldist_comm* same = NULL;
  OK(amldist_split(world, 0, rank, &same));
  interrupt_barrier(same, 0);
  OK(amldist_finalize(same));
  OK(amldist_barrier(world));
  interrupt_barrier(world, 1);
}
