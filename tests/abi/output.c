#include "output.h"

#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "journal.h"
#include "sanitizers.h"
#include "text.h"

enum { FIRST_DECOY = 3, LAST_DECOY = 6, REAL_STDERR = 100, MOST_DESCRIPTORS = 1024 };

void output_print(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vdprintf(REAL_STDERR, format, arguments);
  va_end(arguments);
}

/* What was printed just before a crash is usually the reason for it. */
static void report_crash(int number) {
  char message[512];
  const int length = snprintf(message, sizeof message, "crash: signal %d, last callback: %s [%s]\n", number,
                              journal->callback, journal->subject);
  if (length > 0) (void)!write(REAL_STDERR, message, (size_t)length);
  char said[512];
  const ssize_t got = pread(2, said, sizeof said, 0);
  if (got > 0) (void)!write(REAL_STDERR, said, (size_t)got);
  ++journal->failures;
  _exit(99);
}

static void watch_for_crashes(void) {
  static const int fatal[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
  signal(SIGALRM, report_crash);
#if HOST_IS_SANITIZED
  (void)fatal; /* the sanitizer explains crashes better */
  __sanitizer_set_report_fd((void*)(intptr_t)REAL_STDERR);
#else
  for (size_t i = 0; i < sizeof fatal / sizeof *fatal; ++i) signal(fatal[i], report_crash);
#endif
}

static void lead_into_memory(int descriptor) {
  const int memory = memfd_create("abi_host", MFD_CLOEXEC);
  if (memory < 0) abort();
  fcntl(memory, F_SETFL, O_APPEND);
  if (memory == descriptor) return;
  if (dup2(memory, descriptor) < 0) abort();
  close(memory);
}

void output_open(void) {
  if (dup2(2, REAL_STDERR) < 0) abort();
  for (int descriptor = FIRST_DECOY; descriptor < MOST_DESCRIPTORS; ++descriptor) {
    if (descriptor != REAL_STDERR) close(descriptor); /* whatever the caller left open */
  }
  for (int descriptor = 1; descriptor <= LAST_DECOY; ++descriptor) lead_into_memory(descriptor);
  watch_for_crashes();
}

char* output_take(int descriptor) {
  fflush(stdout);
  fflush(stderr);
  struct stat status;
  if (fstat(descriptor, &status) != 0) abort();
  char* const text = calloc(1, (size_t)status.st_size + 1);
  if (text == NULL || pread(descriptor, text, (size_t)status.st_size, 0) != status.st_size) abort();
  if (ftruncate(descriptor, 0) != 0) abort();
  lseek(descriptor, 0, SEEK_SET);
  return text;
}

void output_check_decoys(void) {
  for (int descriptor = FIRST_DECOY; descriptor <= LAST_DECOY; ++descriptor) {
    struct stat status;
    const int there = fstat(descriptor, &status) == 0;
    CHECK(there, "descriptor %d, which is not the plugin's, was closed", descriptor);
    CHECK(!there || status.st_size == 0, "%ld bytes were written to descriptor %d", there ? (long)status.st_size : 0L,
          descriptor);
  }
}
