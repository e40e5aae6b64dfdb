/* What happens to messages while the program computes, and where it may have no second thread. */
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "program.h"

enum { LONG_BYTES = 64 << 20, SOON = 5 };

static void nap(int milliseconds) {
  nanosleep(&(struct timespec){milliseconds / 1000, milliseconds % 1000 * 1000000L}, NULL);
}

/* ---- rank 0 computes ---- */
/* A file that one rank makes for another, past the library. */
static const char* signal_file(void) {
  static char path[64];
  snprintf(path, sizeof path, "/tmp/amldist-received-%d", (int)getppid());
  return path;
}

/* Waits for each message soon after it began, so that the progress thread is left alone; at last for one that is late.
 */
static void wait_for_small_ones(void) {
  for (int i = 0; i <= SOON; ++i) {
    int32_t x = 0;
    amldist_request* request = NULL;
    OK(amldist_irecv(world, &x, 1, AMLDIST_INT32, 1, &request));
    OK(amldist_wait(&request));
    CHECK(x == i);
  }
}

/* A long message goes on while its sender computes, whatever the sender has waited for before. */
void run_left_alone(void) {
  unsigned char* const data = calloc(LONG_BYTES, 1);
  CHECK(data != NULL);
  if (rank == 0) {
    amldist_request* request = NULL;
    memset(data, 7, LONG_BYTES);
    OK(amldist_isend(world, data, LONG_BYTES, AMLDIST_UINT8, 1, &request));
    wait_for_small_ones();
    for (int i = 0; i < 2000 && access(signal_file(), F_OK) != 0; ++i) nap(10);
    CHECK(access(signal_file(), F_OK) == 0);
    OK(amldist_wait(&request));
    unlink(signal_file());
  } else if (rank == 1) {
    for (int32_t i = 0; i <= SOON; ++i) {
      nap(i == SOON ? 300 : 10);
      OK(amldist_send(world, &i, 1, AMLDIST_INT32, 0));
    }
    OK(amldist_recv(world, data, LONG_BYTES, AMLDIST_UINT8, 0));
    CHECK(data[0] == 7 && data[LONG_BYTES - 1] == 7);
    FILE* const file = fopen(signal_file(), "w");
    CHECK(file != NULL && fclose(file) == 0);
  }
  free(data);
  OK(amldist_barrier(world));
}

/* ---- the system gives no other thread ---- */
void run_no_thread(void) {
  enum { NOBODY = 65534 };
  const int peer = (rank + 1) % size;
  const int from = (rank + size - 1) % size;
  int32_t sent = rank;
  int32_t got = -1;
  amldist_request *receive = NULL, *send = NULL, *reduce = NULL;
  OK(amldist_barrier(world));
  CHECK(setrlimit(RLIMIT_NPROC, &(struct rlimit){0, 0}) == 0);
  if (geteuid() == 0) CHECK(setuid(NOBODY) == 0); /* root may have any number of them */
  OK(amldist_irecv(world, &got, 1, AMLDIST_INT32, from, &receive));
  OK(amldist_isend(world, &sent, 1, AMLDIST_INT32, peer, &send));
  OK(amldist_wait(&receive));
  OK(amldist_wait(&send));
  CHECK(got == from);
  OK(amldist_iallreduce(world, &sent, &sent, 1, AMLDIST_INT32, AMLDIST_SUM, &reduce));
  for (int done = 0; !done;) OK(amldist_test(&reduce, &done));
  CHECK(sent == size * (size - 1) / 2);
}
