#include "plugin.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fault.h"
#include "journal.h"
#include "output.h"
#include "text.h"

const char* plugin_path;
struct plugin* plugin_loaded;

static const char* const hook_names[HOOKS] = {
    [HOOK_INIT] = "slurm_spank_init",
    [HOOK_JOB_PROLOG] = "slurm_spank_job_prolog",
    [HOOK_INIT_POST_OPT] = "slurm_spank_init_post_opt",
    [HOOK_LOCAL_USER_INIT] = "slurm_spank_local_user_init",
    [HOOK_USER_INIT] = "slurm_spank_user_init",
    [HOOK_TASK_INIT_PRIVILEGED] = "slurm_spank_task_init_privileged",
    [HOOK_TASK_INIT] = "slurm_spank_task_init",
    [HOOK_TASK_POST_FORK] = "slurm_spank_task_post_fork",
    [HOOK_TASK_EXIT] = "slurm_spank_task_exit",
    [HOOK_JOB_EPILOG] = "slurm_spank_job_epilog",
    [HOOK_SLURMD_EXIT] = "slurm_spank_slurmd_exit",
    [HOOK_EXIT] = "slurm_spank_exit",
};

const char* hook_name(enum hook hook) { return hook < HOOKS ? hook_names[hook] : "option callback"; }

static const char* context_name(enum spank_context context) {
  static const char* const names[] = {"error", "local", "remote", "allocator", "slurmd", "job_script"};
  return names[context];
}

static void copy_arguments(struct plugin* plugin, const char* const* arguments) {
  while (arguments != NULL && arguments[plugin->argc] != NULL) ++plugin->argc;
  /* As in Slurm, NULL without any argument, else ended by NULL. */
  if (plugin->argc == 0) return;
  plugin->argv = calloc((size_t)plugin->argc + 1, sizeof *plugin->argv);
  if (plugin->argv == NULL) abort();
  for (int i = 0; i < plugin->argc; ++i) plugin->argv[i] = text_format("%s", arguments[i]);
}

void plugin_load(struct plugin* plugin, enum spank_context context, const char* const* arguments) {
  memset(plugin, 0, sizeof *plugin);
  plugin->context = context;
  bystanders_note(&plugin->before);
  plugin->object = dlopen(plugin_path, RTLD_NOW);
  if (plugin->object == NULL) {
    output_print("dlopen: %s\n", dlerror());
    exit(1);
  }
  for (int hook = 0; hook < HOOKS; ++hook) {
    void* const symbol = dlsym(plugin->object, hook_names[hook]);
    memcpy(&plugin->hook[hook], &symbol, sizeof symbol);
  }
  copy_arguments(plugin, arguments);
  plugin_loaded = plugin;
}

static void forget_option(struct plugin* plugin) {
  free(plugin->option.name);
  free(plugin->option.arginfo);
  free(plugin->option.usage);
  free(plugin->option_text);
}

void plugin_unload(struct plugin* plugin) {
  CHECK(dlclose(plugin->object) == 0, "dlclose: %s", dlerror());
  bystanders_check_after(&plugin->before);
  for (int i = 0; i < plugin->argc; ++i) free(plugin->argv[i]);
  free(plugin->argv);
  forget_option(plugin);
  memset(plugin, 0, sizeof *plugin);
  plugin_loaded = NULL;
}

static void enter(struct plugin* plugin, enum hook hook, int local) {
  snprintf(journal->callback, sizeof journal->callback, "%s, %s", hook_name(hook), context_name(plugin->context));
  fault_enter_callback((int)hook, local);
}

/* The one thread that the plugin may have: srun's, once it has promised the nodes to listen, until it ends. */
static void expect_listener(struct plugin* plugin, enum hook hook, int status) {
  if (plugin->context != S_CTX_LOCAL) return;
  const bool promised = getenv(REPORT_VARIABLE) != NULL;
  if (hook == HOOK_LOCAL_USER_INIT) plugin->before.listeners = status == 0 && promised ? 1 : 0;
  if (hook == HOOK_EXIT) plugin->before.listeners = 0;
}

int plugin_call(struct plugin* plugin, enum hook hook, struct place place) {
  if (plugin->hook[hook] == NULL) return 0;
  /* On the heap and spoilt afterwards: a plugin that keeps the handle is caught. */
  struct spank_handle* const handle = malloc(sizeof *handle);
  if (handle == NULL) abort();
  *handle = (struct spank_handle){HANDLE_MAGIC, hook, plugin, place};
  enter(plugin, hook, place.local);
  const int status = plugin->hook[hook](handle, plugin->argc, plugin->argv);
  fault_leave_callback();
  handle->magic = HANDLE_DEAD;
  free(handle);
  expect_listener(plugin, hook, status);
  CHECK(status <= 0, "the callback returns %d: Slurm takes a positive value for success", status);
  bystanders_check_during(&plugin->before);
  return status;
}

int plugin_take_option(struct plugin* plugin, const char* text, bool remote) {
  if (plugin->option.cb == NULL) return 0;
  char* const copy = text != NULL ? text_format("%s", text) : NULL;
  enter(plugin, HOOK_OPTION, -1);
  const int status = plugin->option.cb(plugin->option.val, copy, remote ? 1 : 0);
  fault_leave_callback();
  if (copy != NULL) memset(copy, '!', strlen(copy)); /* Slurm frees its copy as well */
  free(copy);
  /* Slurm would echo the whole text in srun, and only log it on a node. */
  CHECK(status == 0, "the option's callback returns %d", status);
  free(plugin->option_text);
  plugin->option_text = text != NULL ? text_format("%s", text) : NULL;
  bystanders_check_during(&plugin->before);
  return status;
}
