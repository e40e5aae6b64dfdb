/* Ranks end, and the others go on: shrink, and all-reduce on what is left. survivors.py starts, kills and judges.
 *
 *   program survivors HOW VICTIMS DEADLINE_MS     VICTIMS: "0,3", or "-" where survivors.py kills
 */
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "program.h"

enum { COUNT = 1 << 14, ROUNDS = 5 };
static float* data; /* survivors register it with the world; it stays where it is when that fails */

static void make_data(void) {
  if (data == NULL) data = aligned_alloc(4096, COUNT * sizeof(float));
  CHECK(data != NULL);
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static int is_victim(const char* victims) {
  for (const char* at = victims; *at != '\0' && *at != '-';) {
    char* end = NULL;
    if (strtol(at, &end, 10) == rank) return 1;
    at = *end == ',' ? end + 1 : end;
  }
  return 0;
}

/* Every rank gives its number in the world, plus one: the sum tells who took part. */
static int sum_of(amldist_comm* comm) {
  for (int i = 0; i < COUNT; ++i) data[i] = (float)(1 << rank);
  const int status = amldist_allreduce(comm, data, data, COUNT, AMLDIST_FLOAT32, AMLDIST_SUM);
  if (status != AMLDIST_OK) return status;
  for (int i = 1; i < COUNT; ++i) CHECK(data[i] == data[0]);
  return (int)data[0];
}

static void fail_until_lost(amldist_comm* comm) {
  int status = AMLDIST_OK;
  while ((status = sum_of(comm)) >= 0) continue;
  printf("error %d: %s\n", status, amldist_last_error());
}

/* The others went on without this rank. */
static void end_as_excluded(int status) {
  printf("excluded %d: %s\n", status, amldist_last_error());
  fflush(stdout);
  exit(status == AMLDIST_EABORTED ? 8 : 1);
}

/* The loop of a program that goes on: at most a few losses. */
static amldist_comm* shrink_until_healthy(amldist_comm* comm, amldist_comm* parent) {
  amldist_comm* old = comm;
  for (;;) {
    amldist_comm* left = NULL;
    const double began = now();
    const int status = amldist_shrink(old, &left);
    if (status != AMLDIST_OK) end_as_excluded(status);
    printf("shrunk in %.0f ms\n", (now() - began) * 1000);
    fflush(stdout);
    if (old != comm && old != parent) OK(amldist_finalize(old));
    old = left;
    int sum = 0;
    for (int i = 0; i < ROUNDS && sum >= 0; ++i) sum = sum_of(left);
    if (sum < 0) continue; /* another one has ended meanwhile */
    int flags = ~(1 << rank);
    const int agreed = amldist_agree(left, &flags);
    if (agreed == AMLDIST_EPEER) continue;
    if (agreed != AMLDIST_OK) end_as_excluded(agreed);
    CHECK((~flags & 0xffff) == sum);
    printf("survivors %d ranks %d own %d sum %d\n", amldist_size(left), size, amldist_rank(left), sum);
    return left;
  }
}

static void die_in_shrink(long microseconds) {
  const struct timespec time = {0, microseconds * 1000};
  struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGKILL};
  timer_t timer;
  const struct itimerspec when = {{0, 0}, time};
  CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
  CHECK(timer_settime(timer, 0, &when, NULL) == 0);
}

/* agree on a healthy communicator, then after a loss; the loss is the same news on all. */
static void agree(const char* victims) {
  int flags = 7 << 20 | 1 << rank;
  OK(amldist_agree(world, &flags));
  CHECK(flags == (size == 1 ? 7 << 20 | 1 : 7 << 20));
  if (is_victim(victims)) raise(SIGKILL);
  flags = ~(1 << rank);
  const int status = amldist_agree(world, &flags);
  CHECK(status == AMLDIST_EPEER);
  CHECK(amldist_barrier(world) == AMLDIST_EABORTED);
  printf("agreed %d: %s\n", ~flags & 0xffff, amldist_last_error());
}

/* The loss came to this rank's neighbours in their last call, to this rank in the next one. */
static void agree_where_others_shrink(amldist_comm* comm) {
  int flags = 0;
  CHECK(amldist_agree(comm, &flags) == AMLDIST_EPEER);
}

/* Without a loss: agree, and shrink to all ranks. Again, and once more. MPI is left aside from then on. */
void run_shrunk(void) {
  make_data();
  int flags = -1 - (1 << rank);
  OK(amldist_agree(world, &flags));
  CHECK(flags == -(1 << size));
  CHECK(amldist_agree(world, NULL) == AMLDIST_EINVAL && amldist_shrink(world, NULL) == AMLDIST_EINVAL);
  OK(amldist_group_begin(world));
  amldist_comm* none = world;
  CHECK(amldist_agree(world, &flags) == AMLDIST_EINVAL);
  CHECK(amldist_shrink(world, &none) == AMLDIST_EINVAL && none == NULL);
  OK(amldist_group_end(world));
  amldist_comm *some, *last;
  OK(amldist_split(world, 0, -rank, &some));
  for (int i = 0; i < 3; ++i, some = last) {
    OK(amldist_shrink(some, &last));
    CHECK(amldist_rank(last) == size - 1 - rank && amldist_size(last) == size);
    CHECK(amldist_nodes(last) == amldist_nodes(world));
    CHECK(amldist_barrier(some) == AMLDIST_EABORTED);
    CHECK(sum_of(last) == (1 << size) - 1);
    OK(amldist_finalize(some));
  }
  CHECK(strstr(amldist_provenance(last), "mpi between") == NULL);
  OK(amldist_finalize(last));
  OK(amldist_barrier(world)); /* none of it has harmed the world */
}

/* A second rank may be hit as late as now. */
static void end(amldist_comm* comm, const char* how) {
  const int may_fail = strcmp(how, "second") == 0 || strcmp(how, "coordinator") == 0 || strcmp(how, "halted") == 0 ||
                       strcmp(how, "shrink") == 0;
  const int status = amldist_finalize(comm);
  CHECK(status == AMLDIST_OK || may_fail);
}

void run_survivors(int argc, char** argv) {
  CHECK(argc == 5);
  const char *how = argv[2], *victims = argv[3];
  OK(amldist_set_timeout(world, atoi(argv[4])));
  amldist_comm *split = NULL, *failing = world;
  make_data();
  OK(amldist_register(world, data, COUNT * sizeof(float)));
  void* memory = NULL;
  OK(amldist_alloc(world, 4096, &memory));
  memset(memory, 5, 4096);
  if (strcmp(how, "split") == 0) {
    OK(amldist_split(world, 0, -rank, &split)); /* the other way round */
    failing = split;
  }
  CHECK(sum_of(failing) > 0);
  printf("ready\n");
  fflush(stdout);
  if (strcmp(how, "agree") == 0) agree(victims);
  else if (is_victim(victims) && strcmp(how, "halt") == 0) raise(SIGSTOP);
  else if (is_victim(victims) && strcmp(how, "shrink") != 0) raise(SIGKILL);
  if (strcmp(how, "shrink") == 0) { /* all give it up, some end at some moment of shrink */
    srand((unsigned)getpid());
    if (is_victim(victims)) die_in_shrink(1 + rand() % 8000);
  } else {
    fail_until_lost(failing);
  }
  if (strcmp(how, "mixed") == 0 && rank % 2 != 0) agree_where_others_shrink(failing);
  amldist_comm* left = shrink_until_healthy(failing, world);
  CHECK(((char*)memory)[4095] == 5); /* the old world's memory stays */
  if (strcmp(how, "split") == 0) {
    OK(amldist_finalize(split));
    OK(amldist_abort(world)); /* it has not failed yet */
  } else if (rank % 2 == 0) { /* in any order */
    OK(amldist_finalize(world));
    amldist_comm* second = NULL;
    CHECK(amldist_init(&second, 1000) == AMLDIST_EINVAL);
    end(left, how);
    exit(0);
  }
  end(left, how);
  OK(amldist_deregister(world, data));
  OK(amldist_finalize(world));
  exit(0);
}
