/* Faults on demand: the k-th call of one of Slurm's functions, or of malloc, fails. */
#ifndef AMLDIST_TESTS_ABI_FAULT_H
#define AMLDIST_TESTS_ABI_FAULT_H

#include <stdbool.h>

enum fault {
  NO_FAULT,
  FAULT_GET_ITEM,
  FAULT_GETENV,
  FAULT_SETENV,
  FAULT_UNSETENV,
  FAULT_LAYOUT,
  FAULT_ADDRESS,
  FAULT_MALLOC,
  FAULT_FORK,
  FAULT_LISTENER_MALLOC /* in the plugin's own thread, whatever callback runs */
};

enum { ANY_CALLBACK = -1, ANY_TASK = -1 };

/* What fails: call number `call` (from 1) of `kind`, counted in each process for itself. */
struct fault_order {
  enum fault kind;
  unsigned call;
  int callback; /* enum hook: counted and met only there; or ANY_CALLBACK */
  int task;     /* local id: met only there; or ANY_TASK */
};

void fault_order(struct fault_order order);
void fault_cancel(void);

/* Whether this call has to fail. */
bool fault_is_met(enum fault kind);

/* The host's own work inside the plugin's calls must not meet its own faults. */
void fault_enter_callback(int callback, int task);
void fault_leave_callback(void);
/* Whether the caller is the plugin: one of its callbacks, or its own thread in srun. */
bool fault_in_plugin(void);
int fault_pause(void);
void fault_resume(int paused);

#endif
