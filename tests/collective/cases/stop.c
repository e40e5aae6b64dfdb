/* Ranks that step together hear of a stop at different times, and must all end at the same step. tests/soak/stop starts
 * them and tells them. Each has a stop file of its own: AMLDIST_STOP_FILE, a dot and its rank. */
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "program.h"

enum { MOST_STEPS = 1000000, READY_AFTER = 20, LONGEST_PAUSE_US = 2000, PATH = 4096 };

static void use_own_file(void) {
  const char* const shared = getenv("AMLDIST_STOP_FILE");
  char own[PATH];
  if (shared == NULL) return;
  snprintf(own, sizeof own, "%s.%d", shared, rank);
  setenv("AMLDIST_STOP_FILE", own, 1);
}

/* A process that the program forks, such as a worker that loads data, ends of SIGTERM as ever. */
static void end_a_child(void) {
  int status = 0;
  const pid_t child = fork();
  if (child == 0) {
    for (;;) pause();
  }
  CHECK(child > 0 && kill(child, SIGTERM) == 0 && waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
}

/* Every third step has nothing that makes the ranks wait for each other. */
static void work(long step, amldist_comm* comm) {
  float value = 1;
  if (rand() % 4 == 0) usleep((useconds_t)(rand() % LONGEST_PAUSE_US));
  if (step % 3 == 0) OK(amldist_allreduce(comm, &value, &value, 1, AMLDIST_FLOAT32, AMLDIST_SUM));
  if (step % 3 == 1) OK(amldist_broadcast(comm, &value, 1, AMLDIST_FLOAT32, (int)(step % amldist_size(comm))));
}

static long step_until_stop(amldist_comm* comm, long ready_after) {
  for (long step = 1; step < MOST_STEPS; ++step) {
    int stop = -1;
    work(step, comm);
    OK(amldist_should_stop(comm, &stop));
    CHECK(stop == 0 || stop == 1);
    if (stop) return step;
    if (step == ready_after) {
      puts("ready");
      fflush(stdout);
    }
  }
  return 0;
}

static void compare(long step) {
  int64_t both[2] = {step, -step};
  OK(amldist_allreduce(world, both, both, 2, AMLDIST_INT64, AMLDIST_MAX));
  CHECK(both[0] == step && both[1] == -step);
}

void run_stop(void) {
  int stop = -1;
  srand((unsigned)rank + 1);
  use_own_file();
  CHECK(amldist_should_stop(NULL, &stop) == AMLDIST_EINVAL && amldist_should_stop(world, NULL) == AMLDIST_EINVAL);
  OK(amldist_group_begin(world));
  CHECK(amldist_should_stop(world, &stop) == AMLDIST_EINVAL);
  OK(amldist_group_end(world));
  const long step = step_until_stop(world, READY_AFTER);
  compare(step);
  printf("stopped at %ld\n", step);
  OK(amldist_should_stop(world, &stop)); /* and so it stays */
  CHECK(stop == 1);
  amldist_comm* half = NULL; /* a communicator of its own counts its own calls */
  OK(amldist_split(world, rank % 2, rank, &half));
  CHECK(step_until_stop(half, MOST_STEPS) > 0);
  OK(amldist_finalize(half));
  end_a_child();
}

/* Without the key stop= nothing is taken, and the answer stays 0. */
void run_stop_unasked(void) {
  struct sigaction present;
  unsetenv("AMLDIST_STOP_FILE");
  for (int i = 0; i < READY_AFTER; ++i) {
    int stop = -1;
    OK(amldist_should_stop(world, &stop));
    CHECK(stop == 0 && amldist_stop_requested() == 0);
  }
  CHECK(sigaction(SIGTERM, NULL, &present) == 0 && present.sa_handler == SIG_DFL);
}
