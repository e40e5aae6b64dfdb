/* State of the process that loads the plugin, which must be the same after the plugin is unloaded. */
#ifndef AMLDIST_TESTS_ABI_BYSTANDERS_H
#define AMLDIST_TESTS_ABI_BYSTANDERS_H

#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>

enum { WATCHED_DESCRIPTORS = 256, WATCHED_SIGNALS = 32, WATCHED_PATH = 4096 };

struct bystanders {
  bool open[WATCHED_DESCRIPTORS];
  struct sigaction action[WATCHED_SIGNALS];
  sigset_t mask;
  mode_t creation_mask;
  long threads;
  long listeners; /* threads that the plugin must have besides: srun's, with all signals blocked */
  uid_t uid;
  gid_t gid;
  char directory[WATCHED_PATH];
};

void bystanders_note(struct bystanders* bystanders);

/* During a callback the plugin may hold descriptors of its own; everything else must already be as before. */
void bystanders_check_during(const struct bystanders* before);
/* After the plugin has gone. */
void bystanders_check_after(const struct bystanders* before);
/* In a task, before its program starts: what the plugin holds must not reach the program. */
void bystanders_check_task(const struct bystanders* before);

#endif
