/* Bursts of short calls, each followed by a call to which one rank comes late. A recorder keeps all of them, and
 * recorded_times.py reads it. */
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "program.h"

enum { BURST = 1300, LATE_MS = 500, TAG = 3 };
static float value;

static void be_late(int late_rank) {
  if (rank == late_rank) nanosleep(&(struct timespec){0, LATE_MS * 1000000L}, NULL);
}
static void add(void) { OK(amldist_allreduce(world, &value, &value, 1, AMLDIST_FLOAT32, AMLDIST_MAX)); }
static void pass(void) {
  if (rank == 0) OK(amldist_send(world, &value, 1, AMLDIST_FLOAT32, 1));
  else OK(amldist_recv(world, &value, 1, AMLDIST_FLOAT32, 0));
}
static void pass_with_tag(void) {
  if (rank == 0) OK(amldist_send_tagged(world, &value, 1, AMLDIST_FLOAT32, 1, TAG));
  else OK(amldist_recv_tagged(world, &value, 1, AMLDIST_FLOAT32, AMLDIST_ANY_SOURCE, TAG, NULL));
}

/* Of two ranks. They are killed at the end, so that their recorders stay. */
void run_recorded(void) {
  void (*const calls[])(void) = {add, pass, pass_with_tag};
  for (size_t i = 0; i < sizeof calls / sizeof *calls; ++i) {
    for (int k = 0; k < BURST; ++k) calls[i]();
    be_late(calls[i] == add);
    calls[i]();
  }
  OK(amldist_barrier(world));
  raise(SIGKILL);
}
