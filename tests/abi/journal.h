/* What happens during one scenario, in memory that the host shares with the tasks it forks: failed checks, what the
 * plugin said to whom, what it asked of slurmctld, and which injected faults it met. */
#ifndef AMLDIST_TESTS_ABI_JOURNAL_H
#define AMLDIST_TESTS_ABI_JOURNAL_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "cost.h"

/* Who hears a line. */
enum audience {
  TO_USER,          /* slurm_spank_log: the step's standard error */
  TO_ADMINISTRATOR, /* slurm_error: the daemon's log */
  TO_DEBUGGER,      /* slurm_info and below */
  TO_SRUN,          /* a datagram: address, port, text */
  AUDIENCES
};

enum { JOURNAL_TEXT = 1 << 20, JOURNAL_KILLS = 64, JOURNAL_CALLBACKS = 16 };

struct journal {
  int failures; /* failed checks */
  int faults;   /* injected faults that were met */
  int layouts;  /* step layouts and lists of nodes given and not yet destroyed */
  int layout_requests;
  int job_requests;
  int wall_clock_readings;       /* by the plugin */
  int questions;                 /* of nodes to srun for the record of a heterogeneous step */
  size_t recorder_opens_by_root; /* of folders in which users keep their flight recorders */
  _Atomic size_t recorder_opens_by_user;
  size_t kills; /* requests to end a step */
  uint32_t killed_job[JOURNAL_KILLS];
  uint32_t killed_step[JOURNAL_KILLS];
  struct cost cost[JOURNAL_CALLBACKS]; /* of the last call of each, by enum hook */
  char callback[64];                   /* the plugin's function that runs now, or ran last */
  char subject[256];                   /* what the scenario is trying, printed with a failed check */
  size_t said_length[AUDIENCES];
  char said[AUDIENCES][JOURNAL_TEXT]; /* lines, each ended by a newline */
};

extern struct journal* journal;

/* Maps the journal. Call once, before anything else here. */
void journal_open(void);

/* Adds a line for an audience. */
void journal_say(enum audience audience, const char* format, va_list arguments);

/* What an audience has heard since the last call; the caller frees it. */
char* journal_take(enum audience audience);

/* Names what is tried next, for the messages of failed checks; "" for nothing. */
void subject(const char* format, ...) __attribute__((format(printf, 1, 2)));

/* A failed check is printed with its place and counted; the scenario goes on. */
void check_failed(const char* file, int line, const char* format, ...) __attribute__((format(printf, 3, 4)));

#define CHECK(condition, ...)                                        \
  do {                                                               \
    if (!(condition)) check_failed(__FILE__, __LINE__, __VA_ARGS__); \
  } while (0)

/* A call that Slurm refuses in this context, or that is known to crash or hang it. */
#define VIOLATION(...) check_failed(__FILE__, __LINE__, "violation: " __VA_ARGS__)

#endif
