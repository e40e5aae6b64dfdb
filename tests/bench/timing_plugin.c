/* A SPANK plugin that stands in front of the real one, hands every callback on, and writes down how long it took.
 *
 *   required .../timing_plugin.so real=FILE out=FOLDER [detail] [marks] [-- ARGUMENTS OF THE REAL ONE]
 *
 * The real plugin is the very file that is installed. One text file per process under FOLDER, with a line per callback
 * and per call of slurm_job_step_layout_get:
 *
 *   process parent context callback task begin_ns ns page_faults calls
 *
 * detail  also times the real plugin's calls into SPANK, which makes the callbacks themselves a little slower
 * marks   brackets every callback, and what this plugin does itself, with failing write()s for strace to see
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <slurm/spank.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "import_hooks.h"

/* ---- what was measured ---- */

struct moment {
  int64_t ns;
  long faults;
};

static char out_folder[512];
static int with_detail, with_marks;

static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static long page_faults(void) {
  struct rusage usage;
  return getrusage(RUSAGE_SELF, &usage) == 0 ? usage.ru_minflt : 0;
}

static const char* context_name(void) {
  switch (spank_context()) {
    case S_CTX_LOCAL:
      return "srun";
    case S_CTX_REMOTE:
      return "slurmstepd";
    case S_CTX_ALLOCATOR:
      return "allocator";
    case S_CTX_SLURMD:
      return "slurmd";
    default:
      return "other";
  }
}

static char lines[8192];
static size_t used;

static void keep_line(const char* callback, long task, int64_t begin, int64_t ns, long faults, long calls) {
  const size_t room = sizeof lines - used;
  const int length =
      snprintf(lines + used, room, "%d\t%d\t%s\t%s\t%ld\t%lld\t%lld\t%ld\t%ld\n", (int)getpid(), (int)getppid(),
               context_name(), callback, task, (long long)begin, (long long)ns, faults, calls);
  if (length > 0 && (size_t)length < room) used += (size_t)length;
}

/* Opened anew each time: callbacks come under different identities, and from forked children. */
static void write_lines(void) {
  char host[65] = "", path[640];
  const int kept_errno = errno;
  if (out_folder[0] != '\0') {
    gethostname(host, sizeof host - 1);
    snprintf(path, sizeof path, "%s/%s.%d.%d", out_folder, host, (int)getpid(), (int)geteuid());
    const int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd >= 0) {
      if (write(fd, lines, used) < 0) slurm_error("timing plugin: %s: %m", path);
      close(fd);
    }
  }
  used = 0;
  errno = kept_errno;
}

static void mark(const char* word, const char* callback) {
  char text[96];
  if (!with_marks) return;
  const int length = snprintf(text, sizeof text, "aml-dist-bench %s %s", word, callback);
  const ssize_t ignored = write(-1, text, (size_t)length);
  (void)ignored;
}

static int depth; /* a call within a callback is written down when that one has ended */

static struct moment begin(const char* callback) {
  mark("pause", callback);
  const long faults = page_faults();
  ++depth;
  mark("begin", callback);
  return (struct moment){now(), faults};
}

/* Takes the end of the interval as an argument, so that nothing of ours comes before it is read. */
static void end(const char* callback, struct moment start, int64_t stop, long task) {
  mark("end", callback);
  keep_line(callback, task, start.ns, stop - start.ns, page_faults() - start.faults, 1);
  if (--depth == 0) write_lines();
  mark("resume", callback);
}

/* ---- calls of the real plugin into Slurm: detail ---- */

enum { GETENV, SETENV, UNSETENV, GET_ITEM, CALLS };
static const char* const call_names[CALLS] = {"spank_getenv", "spank_setenv", "spank_unsetenv", "spank_get_item"};
static struct {
  int64_t ns;
  long count;
} calls[CALLS];

static void count_call(int call, int64_t start) {
  calls[call].ns += now() - start;
  ++calls[call].count;
}

static void write_calls(const char* callback, long task) {
  for (int i = 0; i < CALLS; ++i) {
    if (calls[i].count != 0) {
      char name[96];
      snprintf(name, sizeof name, "%s/%s", callback, call_names[i]);
      keep_line(name, task, 0, calls[i].ns, 0, calls[i].count);
    }
    calls[i].ns = calls[i].count = 0;
  }
  if (used != 0) write_lines();
}

static spank_err_t timed_getenv(spank_t spank, const char* name, char* value, int size) {
  const int64_t start = now();
  const spank_err_t status = spank_getenv(spank, name, value, size);
  count_call(GETENV, start);
  return status;
}

static spank_err_t timed_setenv(spank_t spank, const char* name, const char* value, int overwrite) {
  const int64_t start = now();
  const spank_err_t status = spank_setenv(spank, name, value, overwrite);
  count_call(SETENV, start);
  return status;
}

static spank_err_t timed_unsetenv(spank_t spank, const char* name) {
  const int64_t start = now();
  const spank_err_t status = spank_unsetenv(spank, name);
  count_call(UNSETENV, start);
  return status;
}

/* No item takes more than three arguments, each in a register that may be read whether it was set or not. */
static spank_err_t timed_get_item(spank_t spank, spank_item_t item, ...) {
  va_list arguments;
  va_start(arguments, item);
  void* const a = va_arg(arguments, void*);
  void* const b = va_arg(arguments, void*);
  void* const c = va_arg(arguments, void*);
  va_end(arguments);
  const int64_t start = now();
  const spank_err_t status = spank_get_item(spank, item, a, b, c);
  count_call(GET_ITEM, start);
  return status;
}

/* ---- the option callback, and slurmctld ---- */

static spank_opt_cb_f real_option_callback;

static int timed_option(int value, const char* text, int remote) {
  const struct moment start = begin("option");
  const int status = real_option_callback(value, text, remote);
  end("option", start, now(), -1);
  return status;
}

static spank_err_t timed_option_register(spank_t spank, struct spank_option* option) {
  if (option == NULL || option->cb == NULL || real_option_callback != NULL) return spank_option_register(spank, option);
  struct spank_option replaced = *option;
  real_option_callback = option->cb;
  replaced.cb = timed_option;
  return spank_option_register(spank, &replaced);
}

static void* (*real_layout_get)(void*);

static void* timed_layout_get(void* step) {
  const struct moment start = begin("slurm_job_step_layout_get");
  void* const layout = real_layout_get(step);
  end("slurm_job_step_layout_get", start, now(), -1);
  return layout;
}

static void* watching_dlsym(void* handle, const char* name) {
  void* const found = dlsym(handle, name);
  if (found == NULL || strcmp(name, "slurm_job_step_layout_get") != 0) return found;
  *(void**)&real_layout_get = found;
  return (void*)timed_layout_get;
}

/* ---- the real one ---- */

static void* real;
static int first_argument; /* of the real plugin */

static void install_hooks(void) {
  static const struct import_hook always[] = {
      {"spank_option_register", (void*)timed_option_register},
      {"dlsym", (void*)watching_dlsym},
  };
  static const struct import_hook detail[] = {
      {"spank_getenv", (void*)timed_getenv},
      {"spank_setenv", (void*)timed_setenv},
      {"spank_unsetenv", (void*)timed_unsetenv},
      {"spank_get_item", (void*)timed_get_item},
  };
  int done = hook_imports(real, always, sizeof always / sizeof *always);
  if (done >= 0 && with_detail) done = hook_imports(real, detail, sizeof detail / sizeof *detail);
  if (done < 0) slurm_error("timing plugin: calls inside the real plugin cannot be watched");
}

static int read_arguments(int argc, char** argv, const char** file) {
  for (first_argument = 0; first_argument < argc; ++first_argument) {
    const char* const word = argv[first_argument];
    if (strncmp(word, "real=", 5) == 0) *file = word + 5;
    else if (strncmp(word, "out=", 4) == 0) snprintf(out_folder, sizeof out_folder, "%s", word + 4);
    else if (strcmp(word, "detail") == 0) with_detail = 1;
    else if (strcmp(word, "marks") == 0) with_marks = 1;
    else if (strcmp(word, "--") == 0) break;
    else return -1;
  }
  if (first_argument < argc) ++first_argument;
  return *file != NULL ? 0 : -1;
}

static int load_real(int argc, char** argv) {
  const char* file = NULL;
  if (read_arguments(argc, argv, &file) != 0) {
    slurm_error("timing plugin: arguments are real=FILE out=FOLDER [detail] [marks] [-- ARGUMENTS]");
    return -1;
  }
  const struct moment start = begin("load");
  real = dlopen(file, RTLD_LAZY); /* as Slurm does it */
  end("load", start, now(), -1);
  if (real == NULL) {
    slurm_error("timing plugin: %s", dlerror());
    return -1;
  }
  install_hooks();
  return 0;
}

typedef int (*callback)(spank_t, int, char**);

static int hand_on(const char* symbol, spank_t spank, int argc, char** argv) {
  const char* const name = symbol + sizeof "slurm_spank_" - 1;
  callback function = NULL;
  if (real == NULL) return 0;
  *(void**)&function = dlsym(real, symbol);
  if (function == NULL) return 0;
  const struct moment start = begin(name);
  const int status = function(spank, argc - first_argument, argv + first_argument);
  const int64_t stop = now();
  uint32_t id = 0;
  const int in_task = strncmp(name, "task_", 5) == 0 && spank_get_item(spank, S_TASK_ID, &id) == ESPANK_SUCCESS;
  end(name, start, stop, in_task ? (long)id : -1);
  write_calls(name, in_task ? (long)id : -1);
  return status;
}

#pragma GCC visibility push(default)
SPANK_PLUGIN(aml_dist, 1) /* the real one's name: options travel under it */

int slurm_spank_init(spank_t spank, int argc, char** argv) {
  if (load_real(argc, argv) != 0) return -1;
  return hand_on("slurm_spank_init", spank, argc, argv);
}

#define HAND_ON(name) \
  int name(spank_t spank, int argc, char** argv) { return hand_on(#name, spank, argc, argv); }
HAND_ON(slurm_spank_slurmd_exit)
HAND_ON(slurm_spank_init_post_opt)
HAND_ON(slurm_spank_local_user_init)
HAND_ON(slurm_spank_user_init)
HAND_ON(slurm_spank_task_init_privileged)
HAND_ON(slurm_spank_task_init)
HAND_ON(slurm_spank_task_post_fork)
HAND_ON(slurm_spank_task_exit)
HAND_ON(slurm_spank_exit)
#pragma GCC visibility pop
