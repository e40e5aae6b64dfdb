#include "cost.h"

#include <time.h>

#include "journal.h"

static int callback;
static struct cost running;
static uint64_t resumed;

static uint64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return (uint64_t)time.tv_sec * 1000000000U + (uint64_t)time.tv_nsec;
}

void cost_begin(int which) {
  callback = which;
  running = (struct cost){0, 0};
  resumed = now();
}

void cost_pause(void) { running.nanoseconds += now() - resumed; }

void cost_resume(void) { resumed = now(); }

void cost_add_memory(size_t bytes) { running.bytes += bytes; }

void cost_end(void) {
  cost_pause();
  if (callback >= 0 && callback < JOURNAL_CALLBACKS) journal->cost[callback] = running;
}
