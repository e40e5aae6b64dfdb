/* <slurm/spank.h> as Slurm 22.05 implements it, for the plugin that this program loads. What Slurm refuses in a context
 * is refused here with the same code, and is a failed check: the plugin has no business asking. */
#include <slurm/slurm.h>
#include <slurm/spank.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fake_slurm.h"
#include "fault.h"
#include "journal.h"
#include "plugin.h"
#include "text.h"

/* MAX_ENV_STRLEN: Slurm drops a longer assignment and calls that success. */
enum { LONGEST_ASSIGNMENT = 32 * 4096 };

static bool is_alive(const struct spank_handle* handle) {
  const bool alive = handle != NULL && handle->magic == HANDLE_MAGIC;
  if (!alive) VIOLATION("a handle is used that is not the running callback's");
  return alive;
}

static bool is_remote(const struct spank_handle* handle) { return handle->plugin->context == S_CTX_REMOTE; }

spank_context_t spank_context(void) { return plugin_loaded != NULL ? plugin_loaded->context : S_CTX_ERROR; }

int spank_remote(spank_t spank) { return is_alive(spank) ? is_remote(spank) : -1; }

const char* spank_strerror(spank_err_t code) { return slurm_strerror((int)code); }

int spank_symbol_supported(const char* symbol) {
  if (symbol == NULL) return -1;
  for (int hook = 0; hook < HOOKS; ++hook) {
    if (strcmp(symbol, hook_name((enum hook)hook)) == 0) return 1;
  }
  return 0;
}

/* ---- option ---- */

spank_err_t spank_option_register(spank_t spank, struct spank_option* option) {
  const int paused = fault_pause();
  spank_err_t status = ESPANK_BAD_ARG;
  if (!is_alive(spank)) {
  } else if (spank->hook != HOOK_INIT) {
    VIOLATION("spank_option_register outside init");
  } else if (option == NULL || option->name == NULL || option->usage == NULL ||
             strlen(option->name) > SPANK_OPTION_MAXLEN) {
    VIOLATION("spank_option_register with an impossible option");
  } else {
    struct plugin* const plugin = spank->plugin;
    CHECK(plugin->options++ == 0, "the option is registered again: Slurm disables the second");
    plugin->option = *option;
    plugin->option.name = text_format("%s", option->name);
    plugin->option.usage = text_format("%s", option->usage);
    plugin->option.arginfo = option->arginfo != NULL ? text_format("%s", option->arginfo) : NULL;
    status = ESPANK_SUCCESS;
  }
  fault_resume(paused);
  return status;
}

spank_err_t spank_option_getopt(spank_t spank, struct spank_option* option, char** argument) {
  if (argument != NULL) *argument = NULL;
  if (!is_alive(spank)) return ESPANK_BAD_ARG;
  switch (spank->hook) {
    case HOOK_INIT:
    case HOOK_INIT_POST_OPT:
    case HOOK_TASK_POST_FORK:
    case HOOK_SLURMD_EXIT:
    case HOOK_EXIT:
      VIOLATION("spank_option_getopt in %s", hook_name(spank->hook));
      return ESPANK_NOT_AVAIL;
    default:
      break;
  }
  if (option == NULL || option->name == NULL || (option->has_arg != 0 && argument == NULL)) {
    VIOLATION("spank_option_getopt with a NULL argument");
    return ESPANK_BAD_ARG;
  }
  const struct plugin* const plugin = spank->plugin;
  if (plugin->options == 0 || strcmp(option->name, plugin->option.name) != 0 || plugin->option_text == NULL) {
    return ESPANK_ERROR;
  }
  if (argument != NULL) *argument = plugin->option_text;
  return ESPANK_SUCCESS;
}

/* ---- items ---- */

static bool is_version(spank_item_t item) {
  return item == S_SLURM_VERSION || item == S_SLURM_VERSION_MAJOR || item == S_SLURM_VERSION_MINOR ||
         item == S_SLURM_VERSION_MICRO;
}

static bool srun_knows(spank_item_t item) {
  switch (item) {
    case S_JOB_UID:
    case S_JOB_GID:
    case S_JOB_ID:
    case S_JOB_STEPID:
    case S_JOB_ARGV:
    case S_JOB_ENV:
    case S_JOB_TOTAL_TASK_COUNT:
    case S_JOB_NNODES:
      return true;
    default:
      return false;
  }
}

static spank_err_t item_status(const struct spank_handle* handle, spank_item_t item) {
  if (is_version(item)) return ESPANK_SUCCESS;
  const bool has_step = handle->place.step != NULL;
  switch (handle->plugin->context) {
    case S_CTX_REMOTE:
      if (!has_step) return ESPANK_BAD_ARG;
      if (item >= S_TASK_ID && item <= S_TASK_PID && handle->place.local < 0) return ESPANK_NOT_TASK;
      return ESPANK_SUCCESS;
    case S_CTX_LOCAL:
      if (!srun_knows(item)) return ESPANK_NOT_REMOTE;
      return has_step ? ESPANK_SUCCESS : ESPANK_NOT_AVAIL;
    case S_CTX_ALLOCATOR:
      if (item == S_JOB_UID || item == S_JOB_GID) return ESPANK_NOT_AVAIL;
      return srun_knows(item) ? ESPANK_BAD_ARG : ESPANK_NOT_REMOTE;
    case S_CTX_JOB_SCRIPT:
      return item == S_JOB_UID || item == S_JOB_GID || item == S_JOB_ID ? ESPANK_SUCCESS : ESPANK_NOT_AVAIL;
    default:
      return ESPANK_NOT_AVAIL;
  }
}

static spank_err_t give_number(va_list arguments, uint32_t value) {
  uint32_t* const out = va_arg(arguments, uint32_t*);
  *out = value;
  return ESPANK_SUCCESS;
}

static spank_err_t give_text(va_list arguments, const char* text) {
  const char** const out = va_arg(arguments, const char**);
  *out = text;
  return ESPANK_SUCCESS;
}

static spank_err_t give_global_id(va_list arguments, const struct step* step, uint32_t node) {
  const uint32_t local = va_arg(arguments, uint32_t);
  uint32_t* const out = va_arg(arguments, uint32_t*);
  *out = UINT32_MAX;
  /* Slurm compares with <= and reads beyond its array: asking is wrong whatever it answers. */
  if (local >= local_tasks_of(step, node)) {
    VIOLATION("S_JOB_LOCAL_TO_GLOBAL_ID of local task %u, of %u", local, local_tasks_of(step, node));
    return ESPANK_NOEXIST;
  }
  *out = rank_of(step, node, local);
  return ESPANK_SUCCESS;
}

static spank_err_t give_item(const struct spank_handle* handle, spank_item_t item, va_list arguments) {
  const struct step* const step = handle->place.step;
  const uint32_t node = handle->place.node;
  const int local = handle->place.local;
  static char* argv[] = {"python", "train.py", NULL};
  static char* no_variables[] = {NULL};
  switch (item) {
    case S_JOB_UID:
      *va_arg(arguments, uid_t*) = step->user != 0 ? step->user : getuid();
      return ESPANK_SUCCESS;
    case S_JOB_GID:
      *va_arg(arguments, gid_t*) = step->user != 0 ? step->user : getgid();
      return ESPANK_SUCCESS;
    case S_JOB_ID:
      return give_number(arguments, job_of(step));
    case S_JOB_STEPID:
      return give_number(arguments, step->step_id);
    case S_JOB_NNODES:
      return give_number(arguments, nodes_of(step));
    case S_JOB_NODEID:
      return give_number(arguments, node);
    case S_JOB_LOCAL_TASK_COUNT:
      return give_number(arguments, local_tasks_of(step, node));
    case S_JOB_TOTAL_TASK_COUNT:
      return give_number(arguments, tasks_of(step));
    case S_JOB_NCPUS:
      *va_arg(arguments, uint16_t*) = 8;
      return ESPANK_SUCCESS;
    case S_STEP_CPUS_PER_TASK:
      return give_number(arguments, 1);
    case S_JOB_ARGV:
      *va_arg(arguments, int*) = 2;
      *va_arg(arguments, char***) = argv;
      return ESPANK_SUCCESS;
    case S_JOB_ENV:
      *va_arg(arguments, char***) = handle->plugin->context == S_CTX_LOCAL ? NULL : no_variables;
      return ESPANK_SUCCESS;
    case S_TASK_ID:
      *va_arg(arguments, int*) = local;
      return ESPANK_SUCCESS;
    case S_TASK_GLOBAL_ID:
      return give_number(arguments, rank_of(step, node, (uint32_t)local));
    case S_TASK_PID:
      *va_arg(arguments, pid_t*) = getpid();
      return ESPANK_SUCCESS;
    case S_TASK_EXIT_STATUS:
      if (handle->hook != HOOK_TASK_EXIT) return ESPANK_NOT_TASK;
      *va_arg(arguments, int*) = handle->place.exit_status;
      return ESPANK_SUCCESS;
    case S_JOB_LOCAL_TO_GLOBAL_ID:
      return give_global_id(arguments, step, node);
    case S_SLURM_RESTART_COUNT:
    case S_JOB_ARRAY_ID:
    case S_JOB_ARRAY_TASK_ID:
      return give_number(arguments, 0);
    default:
      VIOLATION("item %d is not known to this host: add it", (int)item);
      return ESPANK_BAD_ARG;
  }
}

static spank_err_t give_version(spank_item_t item, va_list arguments) {
  static char version[32];
  static char part[8];
  const int major = SLURM_VERSION_MAJOR(SLURM_VERSION_NUMBER);
  const int minor = SLURM_VERSION_MINOR(SLURM_VERSION_NUMBER);
  const int micro = SLURM_VERSION_MICRO(SLURM_VERSION_NUMBER);
  snprintf(version, sizeof version, "%d.%02d.%d", major, minor, micro);
  if (item == S_SLURM_VERSION) return give_text(arguments, version);
  const int number = item == S_SLURM_VERSION_MAJOR ? major : item == S_SLURM_VERSION_MINOR ? minor : micro;
  snprintf(part, sizeof part, item == S_SLURM_VERSION_MICRO ? "%d" : "%02d", number);
  return give_text(arguments, part);
}

spank_err_t spank_get_item(spank_t spank, spank_item_t item, ...) {
  const int paused = fault_pause();
  spank_err_t status = ESPANK_BAD_ARG;
  va_list arguments;
  va_start(arguments, item);
  if (is_alive(spank)) {
    status = item_status(spank, item);
    if (status != ESPANK_SUCCESS) {
      VIOLATION("spank_get_item(%d) in this context: %s", (int)item, spank_strerror(status));
    } else if (fault_is_met(FAULT_GET_ITEM)) {
      status = ESPANK_NOT_AVAIL;
    } else {
      status = is_version(item) ? give_version(item, arguments) : give_item(spank, item, arguments);
    }
  }
  va_end(arguments);
  fault_resume(paused);
  return status;
}

/* ---- environment ---- */

char* fake_spank_variables;

/* Each variable once, in a line: "read variable RANK". */
static void note_variable(const char* what, const char* name) {
  char* const line = text_format("\n%s variable %s\n", what, name);
  if (fake_spank_variables == NULL || strstr(fake_spank_variables, line) == NULL)
    fake_spank_variables = text_append(fake_spank_variables, "%s", line);
  free(line);
}

static spank_err_t environment_status(const struct spank_handle* handle, const char* function) {
  if (!is_alive(handle)) return ESPANK_BAD_ARG;
  if (is_remote(handle) && handle->place.environment != NULL) return ESPANK_SUCCESS;
  VIOLATION("%s outside slurmstepd", function);
  return is_remote(handle) ? ESPANK_BAD_ARG : ESPANK_NOT_REMOTE;
}

spank_err_t spank_getenv(spank_t spank, const char* name, char* buffer, int size) {
  const int paused = fault_pause();
  spank_err_t status = environment_status(spank, "spank_getenv");
  if (status == ESPANK_SUCCESS) {
    if (name != NULL) note_variable("read", name);
    const char* const value = name != NULL ? environment_get(spank->place.environment, name) : NULL;
    CHECK(name != NULL && buffer != NULL && size >= 0, "spank_getenv with impossible arguments");
    if (name == NULL || size < 0 || fault_is_met(FAULT_GETENV)) {
      status = ESPANK_BAD_ARG;
    } else if (value == NULL) {
      status = ESPANK_ENV_NOEXIST;
    } else {
      /* strlcpy: what fits is written, with its zero, and the rest is lost. */
      const size_t length = strlen(value);
      if (size > 0) snprintf(buffer, (size_t)size, "%s", value);
      if (length >= (size_t)size) status = ESPANK_NOSPACE;
    }
  }
  fault_resume(paused);
  return status;
}

spank_err_t spank_setenv(spank_t spank, const char* name, const char* value, int overwrite) {
  const int paused = fault_pause();
  spank_err_t status = environment_status(spank, "spank_setenv");
  if (status == ESPANK_SUCCESS) {
    if (name != NULL) note_variable("set", name);
    if (name == NULL || value == NULL || *name == '\0' || strchr(name, '=') != NULL) {
      VIOLATION("spank_setenv with impossible arguments");
      status = ESPANK_BAD_ARG;
    } else if (fault_is_met(FAULT_SETENV)) {
      status = ESPANK_ERROR;
    } else if (overwrite == 0 && environment_get(spank->place.environment, name) != NULL) {
      status = ESPANK_ENV_EXISTS;
    } else if (strlen(name) + strlen(value) + 2 > LONGEST_ASSIGNMENT) {
      VIOLATION("spank_setenv of a %zu byte value for %s, which Slurm drops without a word", strlen(value), name);
    } else {
      environment_set(spank->place.environment, name, value);
    }
  }
  fault_resume(paused);
  return status;
}

spank_err_t spank_unsetenv(spank_t spank, const char* name) {
  const int paused = fault_pause();
  spank_err_t status = environment_status(spank, "spank_unsetenv");
  if (status == ESPANK_SUCCESS) {
    if (name != NULL) note_variable("remove", name);
    if (name == NULL) {
      VIOLATION("spank_unsetenv(NULL)");
      status = ESPANK_BAD_ARG;
    } else if (fault_is_met(FAULT_UNSETENV)) {
      status = ESPANK_BAD_ARG;
    } else {
      environment_unset(spank->place.environment, name);
    }
  }
  fault_resume(paused);
  return status;
}

/* ---- job control ---- */

/* Where Slurm's own check lets a call pass, the call still crashed srun or drained nodes. */
static spank_err_t job_control_status(const struct spank_handle* handle, const char* function) {
  if (!is_alive(handle)) return ESPANK_BAD_ARG;
  const enum spank_context context = handle->plugin->context;
  const bool submits = context == S_CTX_LOCAL || context == S_CTX_ALLOCATOR;
  if (submits && (handle->hook == HOOK_INIT || handle->hook == HOOK_INIT_POST_OPT)) return ESPANK_SUCCESS;
  VIOLATION("%s in %s", function, hook_name(handle->hook));
  return context == S_CTX_REMOTE ? ESPANK_NOT_LOCAL : ESPANK_NOT_AVAIL;
}

spank_err_t spank_job_control_setenv(spank_t spank, const char* name, const char* value, int overwrite) {
  (void)overwrite;
  const spank_err_t status = job_control_status(spank, "spank_job_control_setenv");
  if (status != ESPANK_SUCCESS) return status;
  return name != NULL && value != NULL ? ESPANK_SUCCESS : ESPANK_BAD_ARG;
}

spank_err_t spank_job_control_getenv(spank_t spank, const char* name, char* buffer, int size) {
  const spank_err_t status = job_control_status(spank, "spank_job_control_getenv");
  if (status != ESPANK_SUCCESS) return status;
  return name != NULL && buffer != NULL && size > 0 ? ESPANK_ENV_NOEXIST : ESPANK_BAD_ARG;
}

spank_err_t spank_job_control_unsetenv(spank_t spank, const char* name) {
  const spank_err_t status = job_control_status(spank, "spank_job_control_unsetenv");
  if (status != ESPANK_SUCCESS) return status;
  return name != NULL ? ESPANK_SUCCESS : ESPANK_BAD_ARG;
}
