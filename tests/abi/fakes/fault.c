#include "fault.h"

#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "cost.h"
#include "journal.h"
#include "sanitizers.h"

static struct fault_order current = {NO_FAULT, 0, ANY_CALLBACK, ANY_TASK};
static unsigned calls;
static int running_callback = ANY_CALLBACK;
static int running_task = ANY_TASK;
/* Of each thread for itself: only the host's own runs callbacks. */
static _Thread_local int in_plugin;
static _Thread_local bool is_host;
static bool host_is_known;

void fault_order(struct fault_order order) {
  is_host = true;
  current = order;
  calls = 0;
}

void fault_cancel(void) { current.kind = NO_FAULT; }

bool fault_is_met(enum fault kind) {
  if (kind != current.kind || running_callback == ANY_CALLBACK) return false;
  if (current.callback != ANY_CALLBACK && current.callback != running_callback) return false;
  if (current.task != ANY_TASK && current.task != running_task) return false;
  if (++calls != current.call) return false;
  ++journal->faults;
  return true;
}

void fault_enter_callback(int callback, int task) {
  is_host = true;
  host_is_known = true;
  running_callback = callback;
  running_task = task;
  in_plugin = 1;
  cost_begin(callback);
}

void fault_leave_callback(void) {
  cost_end();
  in_plugin = 0;
  running_callback = ANY_CALLBACK;
  running_task = ANY_TASK;
}

bool fault_in_plugin(void) { return in_plugin != 0 || (host_is_known && !is_host); }

int fault_pause(void) {
  const int paused = in_plugin;
  in_plugin = 0;
  if (paused != 0) cost_pause();
  return paused;
}

void fault_resume(int paused) {
  if (paused != 0) cost_resume();
  in_plugin = paused;
}

/* Comes before libc's, for the plugin and for the host itself, whose own calls are outside any callback. */
pid_t fork(void) {
  if (fault_is_met(FAULT_FORK)) {
    errno = EAGAIN;
    return -1;
  }
  void* const found = dlsym(RTLD_NEXT, "fork");
  pid_t (*next)(void) = NULL;
  memcpy(&next, &found, sizeof next); /* ISO C has no cast between the two */
  return next();
}

#if !HOST_IS_SANITIZED && defined(__GLIBC__)
/* The plugin's thread begins after fault_order() and ends before fault_cancel(). */
static bool listener_fault_is_met(void) {
  if (current.kind != FAULT_LISTENER_MALLOC || is_host || ++calls != current.call) return false;
  ++journal->faults;
  return true;
}

/* The executable's malloc comes before libc's for everything in the process, so the plugin's operator new gets this
 * one. The rest of the family stays glibc's, which owns the memory. */
void* __libc_malloc(size_t size);
void* malloc(size_t size);

void* malloc(size_t size) {
  if ((in_plugin && fault_is_met(FAULT_MALLOC)) || listener_fault_is_met()) {
    errno = ENOMEM;
    return NULL;
  }
  if (in_plugin != 0) cost_add_memory(size);
  return __libc_malloc(size);
}
#endif
