/* One rank fails in a given way while the others call collectives. The others print the error that they get and exit
 * with status 7; the test checks whom the error names. */
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "program.h"

enum { ROUNDS_BEFORE = 5, COUNT = 1000, MOST = 256, HALF = MOST * 2 * COUNT };
static float data[2 * HALF];

static void nap(long milliseconds) {
  const struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};
  nanosleep(&time, NULL);
}

static int survivor(int status) {
  if (status == AMLDIST_OK) return 0;
  printf("error %d: %s\n", status, amldist_last_error());
  CHECK(amldist_health(world) < 0);
  /* A failed communicator refuses calls at once, with the same message, and can be finalized. */
  CHECK(amldist_barrier(world) == AMLDIST_EABORTED);
  OK(amldist_finalize(world));
  exit(7);
}

/* Calls collectives until something happens, however fast they are; five minutes, if nothing ever does. */
static void go_on(void) {
  const time_t end = time(NULL) + 300;
  while (time(NULL) < end) survivor(amldist_allreduce(world, data, data, COUNT, AMLDIST_FLOAT32, AMLDIST_MAX));
}

/* Alltoallv: only the two ranks of a pair can compare their counts. */
static int exchange(size_t each) {
  size_t counts[MOST], offsets[MOST];
  CHECK(size <= MOST);
  for (int r = 0; r < size; ++r) counts[r] = r == rank ? COUNT : each, offsets[r] = (size_t)r * 2 * COUNT;
  return amldist_alltoallv(world, data, counts, offsets, data + HALF, counts, offsets, AMLDIST_FLOAT32);
}

/* Allgatherv with lists that differ between ranks. */
static int gather_all(size_t of_victim, int victim) {
  size_t counts[MOST], offsets[MOST];
  CHECK(size <= MOST);
  for (int r = 0; r < size; ++r) counts[r] = r == victim ? of_victim : COUNT, offsets[r] = (size_t)r * 2 * COUNT;
  return amldist_allgatherv(world, data, counts[rank], data + HALF, counts, offsets, AMLDIST_FLOAT32);
}

/* Calls that end on most ranks without waiting for the others. */
static int collect(int root, int scatters) {
  enum { EACH = 10 };
  return scatters ? amldist_scatter(world, data, data + HALF, EACH, AMLDIST_FLOAT32, root)
                  : amldist_gather(world, data, data + HALF, EACH, AMLDIST_FLOAT32, root);
}

/* Messages to and from all others at once, longer than what lies between two ranks. The received data is not checked.
 */
static int tell_all(void) {
  enum { LONG = 50000 };
  OK(amldist_group_begin(world));
  for (int r = 0; r < size; ++r) {
    if (r != rank) OK(amldist_recv(world, data + LONG, LONG, AMLDIST_FLOAT32, r));
    if (r != rank) OK(amldist_send(world, data, LONG, AMLDIST_FLOAT32, r));
  }
  return amldist_group_end(world);
}

/* Receives into memory that it may not write. */
/* Where several ranks share a node, which come one after the other. From its own node a rank copies the message itself,
 * and such a buffer ends its process as it would in any program. */
static int of_another_node(int who) { return (who + size / 2) % size; }

static int receive_nowhere(void) {
  enum { BYTES = 1 << 20 };
  void* const memory = mmap(NULL, BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED);
  return amldist_recv(world, memory, BYTES, AMLDIST_UINT8, of_another_node(rank));
}

/* That rank sends what the victim waits for, and the others wait for both. */
static int send_to_victim(int who) {
  static char message[1 << 20];
  if (rank == of_another_node(who)) survivor(amldist_send(world, message, sizeof message, AMLDIST_UINT8, who));
  return amldist_barrier(world);
}

/* Dies while its messages are arriving, so that they are never complete. */
static void die_midway(void) {
  amldist_request* sending = NULL;
  for (int r = 0; r < size; ++r) {
    if (r != rank) OK(amldist_isend(world, data, 50000, AMLDIST_FLOAT32, r, &sending));
  }
  nap(5);
  raise(SIGKILL);
}

/* A short message is sent, but its receiver never posts a receive. */
static void leave_unreceived(int who) {
  if (rank == (who + 1) % size) survivor(amldist_send(world, data, 10, AMLDIST_FLOAT32, who));
  const int status = amldist_finalize(world);
  CHECK(status != AMLDIST_OK);
  printf("error %d: %s\n", status, amldist_last_error());
  exit(7);
}

void run_victim(int argc, char** argv) {
  CHECK(argc == 5);
  const char* how = argv[2];
  const int who = atoi(argv[3]), deadline = atoi(argv[4]);
  OK(amldist_set_timeout(world, deadline));
  /* A victim that leaves early may be missed as early as in the last of these. */
  for (int i = 0; i < ROUNDS_BEFORE; ++i)
    survivor(amldist_allreduce(world, data, data, COUNT, AMLDIST_FLOAT32, AMLDIST_MAX));
  printf("ready\n");
  fflush(stdout);
  if (rank == who) {
    if (strcmp(how, "late") == 0) nap(4L * deadline);
    if (strcmp(how, "exit") == 0) _exit(0);
    if (strcmp(how, "die") == 0) raise(SIGKILL);
    if (strcmp(how, "halt") == 0) raise(SIGSTOP);
    if (strcmp(how, "operation") == 0) survivor(amldist_broadcast(world, data, COUNT, AMLDIST_FLOAT32, 0));
    if (strcmp(how, "size") == 0)
      survivor(amldist_allreduce(world, data, data, COUNT + 1, AMLDIST_FLOAT32, AMLDIST_MAX));
    if (strcmp(how, "longer") == 0) survivor(amldist_allreduce(world, data, data, 50000, AMLDIST_FLOAT32, AMLDIST_MAX));
    if (strcmp(how, "message") == 0) survivor(amldist_send(world, data, 50000, AMLDIST_FLOAT32, (rank + 1) % size));
    if (strcmp(how, "type") == 0) survivor(amldist_allreduce(world, data, data, COUNT, AMLDIST_INT32, AMLDIST_MAX));
    if (strcmp(how, "redop") == 0) survivor(amldist_allreduce(world, data, data, COUNT, AMLDIST_FLOAT32, AMLDIST_MIN));
    if (strcmp(how, "counts") == 0) survivor(exchange(COUNT + 1));
    if (strcmp(how, "lists") == 0) survivor(gather_all(COUNT + 1, who));
    if (strcmp(how, "midway") == 0) die_midway();
    if (strcmp(how, "root") == 0) survivor(collect(1 % size, 0));
    if (strcmp(how, "across") == 0) survivor(collect(0, 1));
    if (strcmp(how, "alone") == 0) go_on();
    if (strcmp(how, "abort") == 0) {
      nap(20);
      OK(amldist_abort(world));
    }
  }
  if (strcmp(how, "buffer") == 0) survivor(rank == who ? receive_nowhere() : send_to_victim(who));
  while (strcmp(how, "pairs") == 0) survivor(tell_all());
  const int receives = strcmp(how, "message") == 0 && rank == (who + 1) % size;
  if (receives) survivor(amldist_recv(world, data, 10, AMLDIST_FLOAT32, who));
  const int wrong = strcmp(how, "root") == 0 || strcmp(how, "across") == 0;
  if ((wrong && rank != who) || strcmp(how, "alone") == 0) survivor(collect(0, 0));
  if (strcmp(how, "unreceived") == 0) leave_unreceived(who);
  if (strcmp(how, "counts") == 0) survivor(exchange(COUNT));
  if (strcmp(how, "lists") == 0) survivor(gather_all(COUNT, who));
  if (strcmp(how, "midway") == 0) survivor(tell_all());
  go_on();
  exit(1);
}
