// What GCC's headers and library need from glibc since 2.28, for a wheel that also runs with 2.28
// (python/build-manylinux). Hidden in the library.
#include <errno.h>
#include <pthread.h>
#include <time.h>

// From glibc 2.32: whether the process has only one thread, so that counters need not be atomic. Always atomic is
// correct, too.
__attribute__((visibility("hidden"))) char __libc_single_threaded = 0;

// From glibc 2.30. Without it libstdc++ waits by the wall clock and checks the time afterwards; so does this.
__attribute__((visibility("hidden"))) int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                                                                 clockid_t clock, const struct timespec* until) {
  const long nanoseconds_of_a_second = 1000000000L;
  struct timespec now, today;
  if (clock_gettime(clock, &now) != 0 || clock_gettime(CLOCK_REALTIME, &today) != 0) return errno;
  today.tv_sec += until->tv_sec - now.tv_sec;
  today.tv_nsec += until->tv_nsec - now.tv_nsec;
  if (today.tv_nsec < 0) {
    today.tv_nsec += nanoseconds_of_a_second;
    --today.tv_sec;
  } else if (today.tv_nsec >= nanoseconds_of_a_second) {
    today.tv_nsec -= nanoseconds_of_a_second;
    ++today.tv_sec;
  }
  return pthread_cond_timedwait(condition, mutex, &today);
}
