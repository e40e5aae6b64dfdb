#include "bystanders.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "journal.h"
#include "sanitizers.h"

static long count_threads(void) {
  if (HOST_IS_SANITIZED) return 1; /* the sanitizer may have one of its own, and start it anew in a fork */
  long threads = 0;
  char line[128];
  FILE* const status = fopen("/proc/self/status", "r");
  if (status == NULL) return 0;
  while (fgets(line, sizeof line, status) != NULL) {
    if (sscanf(line, "Threads: %ld", &threads) == 1) break;
  }
  fclose(status);
  return threads;
}

/* Every signal that a thread can block: not SIGKILL, SIGSTOP, nor the two that the C library keeps for itself. */
static const unsigned long long all_signals = 0xfffffffe7ffbfeffULL;

/* What a thread of this process blocks; false if there is no such thread (any more). */
static bool read_blocked_signals(const char* thread, unsigned long long* blocked) {
  char path[512];
  char line[128];
  snprintf(path, sizeof path, "/proc/self/task/%s/status", thread);
  FILE* const status = fopen(path, "r");
  if (status == NULL) return false;
  bool is_found = false;
  while (!is_found && fgets(line, sizeof line, status) != NULL) is_found = sscanf(line, "SigBlk: %llx", blocked) == 1;
  fclose(status);
  return is_found;
}

/* Whether a thread of this process can be given a signal. The kernel says that a thread blocks nothing when it is about
 * to go, so such a thread is read again for a while. */
static bool takes_signals(const char* thread, unsigned long long* blocked) {
  enum { TRIES = 2000 };
  static const struct timespec pause = {0, 1000000};
  for (int i = 0; i < TRIES; ++i) {
    if (!read_blocked_signals(thread, blocked) || (*blocked & all_signals) == all_signals) return false;
    nanosleep(&pause, NULL);
  }
  return true;
}

/* Fails a check for every other thread of this process that could be given a signal. */
static void check_other_threads(void) {
  DIR* const tasks = opendir("/proc/self/task");
  for (const struct dirent* entry; tasks != NULL && (entry = readdir(tasks)) != NULL;) {
    if (entry->d_name[0] == '.' || strtol(entry->d_name, NULL, 10) == (long)getpid()) continue;
    unsigned long long blocked = 0;
    CHECK(!takes_signals(entry->d_name, &blocked), "a thread of the plugin's takes signals: %llx", blocked);
  }
  if (tasks != NULL) closedir(tasks);
}

/* A thread that was joined is still counted for a moment. */
static long count_threads_down_to(long expected) {
  enum { TRIES = 2000 };
  static const struct timespec pause = {0, 1000000};
  long threads = count_threads();
  for (int i = 0; i < TRIES && threads > expected; ++i) {
    nanosleep(&pause, NULL);
    threads = count_threads();
  }
  return threads;
}

static void check_threads(const struct bystanders* before) {
  if (HOST_IS_SANITIZED) return;
  const long expected = before->threads + before->listeners;
  const long threads = count_threads_down_to(expected);
  /* Without memory there may be no listener. */
  const bool right = threads == expected || (threads == before->threads && journal->faults > 0);
  CHECK(right, "%ld threads instead of %ld", threads, expected);
  if (before->listeners > 0) check_other_threads();
}

static bool is_open(int descriptor) { return fcntl(descriptor, F_GETFD) >= 0; }

void bystanders_note(struct bystanders* bystanders) {
  memset(bystanders, 0, sizeof *bystanders);
  for (int i = 0; i < WATCHED_DESCRIPTORS; ++i) bystanders->open[i] = is_open(i);
  for (int i = 1; i < WATCHED_SIGNALS; ++i) sigaction(i, NULL, &bystanders->action[i]);
  sigprocmask(SIG_SETMASK, NULL, &bystanders->mask);
  bystanders->creation_mask = umask(0);
  umask(bystanders->creation_mask);
  bystanders->threads = count_threads();
  bystanders->uid = geteuid();
  bystanders->gid = getegid();
  if (getcwd(bystanders->directory, sizeof bystanders->directory) == NULL) bystanders->directory[0] = '\0';
}

void bystanders_check_during(const struct bystanders* before) {
  static struct bystanders now;
  bystanders_note(&now);
  for (int i = 0; i < WATCHED_DESCRIPTORS; ++i) {
    CHECK(now.open[i] || !before->open[i], "descriptor %d was closed", i);
  }
  for (int i = 1; i < WATCHED_SIGNALS; ++i) {
    CHECK(now.action[i].sa_handler == before->action[i].sa_handler, "signal %d has another handler", i);
  }
  for (int i = 1; i < WATCHED_SIGNALS; ++i) {
    CHECK(sigismember(&now.mask, i) == sigismember(&before->mask, i), "signal %d is blocked or unblocked", i);
  }
  CHECK(now.creation_mask == before->creation_mask, "the umask is %o", (unsigned)now.creation_mask);
  check_threads(before);
  CHECK(now.uid == before->uid && now.gid == before->gid, "the process has become %u:%u", now.uid, now.gid);
  CHECK(strcmp(now.directory, before->directory) == 0, "the working directory is %s", now.directory);
}

void bystanders_check_after(const struct bystanders* before) {
  bystanders_check_during(before);
  for (int i = 0; i < WATCHED_DESCRIPTORS; ++i) {
    CHECK(before->open[i] || !is_open(i), "descriptor %d was left open", i);
  }
}

void bystanders_check_task(const struct bystanders* before) {
  bystanders_check_during(before);
  for (int i = 0; i < WATCHED_DESCRIPTORS; ++i) {
    const int flags = fcntl(i, F_GETFD);
    CHECK(before->open[i] || flags < 0 || (flags & FD_CLOEXEC) != 0, "descriptor %d reaches the user's program", i);
  }
}
