/* The wall clock may jump, and no code of the plugin may depend on it: every reading of it by the plugin is counted. */
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "fault.h"
#include "journal.h"

static void note(const char* function) {
  if (!fault_in_plugin()) return;
  ++journal->wall_clock_readings;
  VIOLATION("%s reads the wall clock", function);
}

/* These come before libc's for the plugin, as getaddrinfo() does. */
int clock_gettime(clockid_t clock, struct timespec* out) {
  if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) note("clock_gettime");
  return (int)syscall(SYS_clock_gettime, clock, out);
}

int gettimeofday(struct timeval* restrict out, void* restrict zone) {
  note("gettimeofday");
  return (int)syscall(SYS_gettimeofday, out, zone);
}

time_t time(time_t* out) {
  note("time");
  struct timespec now = {0, 0};
  syscall(SYS_clock_gettime, CLOCK_REALTIME, &now);
  if (out != NULL) *out = now.tv_sec;
  return now.tv_sec;
}
