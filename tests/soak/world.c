/* One rank of a world that comes together, waits until it may end, and ends. For growth.py. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "amldist/amldist.h"

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

int main(void) {
  amldist_comm* world = NULL;
  const double began = now();
  if (amldist_init(&world, 0) != AMLDIST_OK) {
    fprintf(stderr, "amldist_init: %s\n", amldist_last_error());
    return 3;
  }
  printf("up %.3f %.3f\n", began, now());
  fflush(stdout);
  char go = 0;
  if (read(STDIN_FILENO, &go, 1) < 0) return 4;
  if (amldist_barrier(world) != AMLDIST_OK || amldist_finalize(world) != AMLDIST_OK) {
    fprintf(stderr, "end: %s\n", amldist_last_error());
    return 5;
  }
  return 0;
}
