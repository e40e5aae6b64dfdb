/* The plugin as Slurm holds it: loaded with dlopen, its callbacks found by name, called with a handle that is valid
 * only during the call. */
#ifndef AMLDIST_TESTS_ABI_PLUGIN_H
#define AMLDIST_TESTS_ABI_PLUGIN_H

#include <slurm/spank.h>
#include <stdbool.h>
#include <stdint.h>

#include "bystanders.h"
#include "environment.h"
#include "step.h"

/* What srun tells the nodes about its listener. */
#define REPORT_VARIABLE "SLURM_AMLDIST_REPORT"
/* The step's secret on its way to the nodes, and in the tasks. */
#define SECRET_VARIABLE "SLURM_AMLDIST_SECRET"
#define SECRET_OF_TASK "AMLDIST_STEP_SECRET"

enum hook {
  HOOK_INIT,
  HOOK_JOB_PROLOG,
  HOOK_INIT_POST_OPT,
  HOOK_LOCAL_USER_INIT,
  HOOK_USER_INIT,
  HOOK_TASK_INIT_PRIVILEGED,
  HOOK_TASK_INIT,
  HOOK_TASK_POST_FORK,
  HOOK_TASK_EXIT,
  HOOK_JOB_EPILOG,
  HOOK_SLURMD_EXIT,
  HOOK_EXIT,
  HOOKS,
  HOOK_OPTION = HOOKS /* the option's callback, which is no symbol */
};

/* Slurm's name for a hook: "slurm_spank_task_init". */
const char* hook_name(enum hook hook);

struct plugin {
  void* object;
  spank_f* hook[HOOKS];
  enum spank_context context;
  int argc;
  char** argv;
  struct spank_option option; /* as registered, copied */
  unsigned options;           /* registered in this life of the plugin */
  char* option_text;          /* the last one that the callback took */
  struct bystanders before;
};

/* Where in a step a callback runs. */
struct place {
  const struct step* step; /* NULL: Slurm knows no step yet */
  uint32_t node;
  int local;                       /* -1: not in a task */
  struct environment* environment; /* what spank_getenv and spank_setenv work on; NULL outside slurmstepd */
  int exit_status;                 /* wait status of the task, in task_exit */
};

/* What the plugin's callbacks get as spank_t. */
struct spank_handle {
  unsigned magic;
  enum hook hook;
  struct plugin* plugin;
  struct place place;
};
enum { HANDLE_MAGIC = 0x5a4d1d, HANDLE_DEAD = 0xdead };

extern const char* plugin_path;

/* The plugin that is loaded now, for spank_context(); NULL if none. */
extern struct plugin* plugin_loaded;

/* Loads, or ends the scenario. `arguments` as in struct step. */
void plugin_load(struct plugin* plugin, enum spank_context context, const char* const* arguments);
void plugin_unload(struct plugin* plugin);

/* Calls a hook that the plugin has; 0 without it. Checks what every callback must leave alone. */
int plugin_call(struct plugin* plugin, enum hook hook, struct place place);
/* Calls the option's callback; `text` may be NULL. */
int plugin_take_option(struct plugin* plugin, const char* text, bool remote);

#endif
