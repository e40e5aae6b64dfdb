/* One program for all tests with real ranks: it runs the case that its first argument names. */
#ifndef PROGRAM_H
#define PROGRAM_H

#include <stdio.h>
#include <stdlib.h>

#include "amldist/amldist.h"

extern amldist_comm* world;
extern int rank, size;

#define CHECK(condition)                                                                                             \
  do {                                                                                                               \
    if (!(condition)) {                                                                                              \
      fprintf(stderr, "%s:%d: %s is false; last error: %s\n", __FILE__, __LINE__, #condition, amldist_last_error()); \
      exit(1);                                                                                                       \
    }                                                                                                                \
  } while (0)
#define OK(call) CHECK((call) == AMLDIST_OK)

void run_operations(void);
void run_many_nodes(void);
void run_misuse(void);
void run_large(void);
void run_requests(void);
void run_short_messages(void);
void run_crossing(void);
void run_congestion(void);
void run_itself(void);
void run_handles(void);
void run_messages(void);
void run_random_messages(void);
void run_exchanges(void);
void run_relay(void);
void run_split(void);
void run_shrunk(void);
void run_completions(void);
void run_short_waits(void);
void run_blame(void);
void run_blame_in_part(void);
void run_tags(void);
void run_other_lengths(void);
void run_interrupted(void);
void run_left_alone(void);
void run_no_thread(void);
void run_single_copy(void);
void run_recorded(void);
void run_registered(void);
void run_registered_unasked(void);
void run_nowhere(void);
void run_fetching(void);
void run_stop(void);
void run_stop_unasked(void);
void run_victim(int argc, char** argv);    /* HOW WHO DEADLINE_MS */
void run_survivors(int argc, char** argv); /* HOW VICTIMS DEADLINE_MS */

#endif
