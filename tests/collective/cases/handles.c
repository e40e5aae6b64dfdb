/* Invalid use of handles: a second world, a finalized communicator, a forked child. Each is an error, never a crash,
 * and other ranks are not affected. */
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "program.h"

static void refused(int status, int expected, const char* words) {
  if (status == expected && strstr(amldist_last_error(), words) != NULL) return;
  fprintf(stderr, "got %d (%s) instead of %d with '%s'\n", status, amldist_last_error(), expected, words);
  exit(1);
}

static void a_second_world(void) {
  amldist_comm* second = NULL;
  refused(amldist_init(&second, 1000), AMLDIST_EINVAL, "has a world already");
  CHECK(second == NULL);
}

static void after_the_end(void) {
  amldist_comm *part = NULL, *out = NULL;
  amldist_request* request = NULL;
  amldist_reducer *reducer = NULL, *early = NULL;
  const size_t count = 1;
  void* memory = NULL;
  OK(amldist_split(world, 0, rank, &part));
  OK(amldist_alloc(part, 4096, &memory)); /* goes with the communicator */
  OK(amldist_reducer_create(part, &count, 1, AMLDIST_FLOAT32, NULL, &early));
  OK(amldist_reducer_ready(early, 0));
  OK(amldist_reducer_wait(early));
  OK(amldist_finalize(part));
  refused(amldist_reducer_ready(early, 0), AMLDIST_EINVAL, "finalized before");
  OK(amldist_reducer_free(early));
  refused(amldist_barrier(part), AMLDIST_EINVAL, "finalized before");
  refused(amldist_ibarrier(part, &request), AMLDIST_EINVAL, "finalized before");
  refused(amldist_split(part, 0, 0, &out), AMLDIST_EINVAL, "finalized before");
  refused(amldist_group_begin(part), AMLDIST_EINVAL, "finalized before");
  refused(amldist_free(part, memory), AMLDIST_EINVAL, "finalized before");
  refused(amldist_abort(part), AMLDIST_EINVAL, "finalized before");
  refused(amldist_health(part), AMLDIST_EINVAL, "finalized before");
  refused(amldist_rank(part), AMLDIST_EINVAL, "finalized before");
  refused(amldist_reducer_create(part, &count, 1, AMLDIST_FLOAT32, NULL, &reducer), AMLDIST_EINVAL, "finalized before");
  refused(amldist_finalize(part), AMLDIST_EINVAL, "finalized before");
  CHECK(amldist_host(part, 0) == NULL && amldist_task_map(part) == NULL && amldist_provenance(part) == NULL);
}

static void never(int status, void* context) {
  (void)context;
  CHECK(status == AMLDIST_OK && status != AMLDIST_OK);
}

/* Forked like the data loaders of a training. */
static void in_a_child(void) {
  int given = 7, got = 0, done = 0;
  amldist_request* request = NULL;
  OK(amldist_irecv(world, &got, 1, AMLDIST_INT32, rank, &request));
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    refused(amldist_barrier(world), AMLDIST_EUNAVAILABLE, "forked from");
    refused(amldist_test(&request, &done), AMLDIST_EUNAVAILABLE, "forked from");
    refused(amldist_wait_for(&request, 1, &done), AMLDIST_EUNAVAILABLE, "forked from");
    refused(amldist_wait(&request), AMLDIST_EUNAVAILABLE, "forked from");
    refused(amldist_on_complete(request, never, NULL), AMLDIST_EUNAVAILABLE, "forked from");
    CHECK(amldist_rank(world) == rank);
    OK(amldist_finalize(world));
    _exit(0);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  OK(amldist_send(world, &given, 1, AMLDIST_INT32, rank));
  OK(amldist_wait(&request));
  CHECK(got == given);
  int sum = 1;
  OK(amldist_allreduce(world, &sum, &sum, 1, AMLDIST_INT32, AMLDIST_SUM));
  CHECK(sum == size);
}

void run_handles(void) {
  a_second_world();
  after_the_end();
  in_a_child();
}
