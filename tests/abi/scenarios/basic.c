/* What Slurm finds in the plugin, and what users who do not ask for it, or ask in the usual ways, see of it. */
#include <dirent.h>
#include <dlfcn.h>
#include <slurm/slurm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "expect.h"
#include "journal.h"
#include "output.h"
#include "plugin.h"
#include "scenarios.h"
#include "text.h"

static const struct place nowhere = {NULL, 0, -1, NULL, 0};

/* ---- constants ---- */

static void check_text(void* library, const char* symbol, const char* expected) {
  const char* const value = dlsym(library, symbol);
  CHECK(value != NULL, "no symbol %s", symbol);
  CHECK(value == NULL || strcmp(value, expected) == 0, "%s is %s", symbol, value);
}

static void check_number(void* library, const char* symbol, unsigned expected) {
  const unsigned* const value = dlsym(library, symbol);
  CHECK(value != NULL, "no symbol %s", symbol);
  CHECK(value == NULL || *value == expected, "%s is %#x", symbol, *value);
}

void scenario_symbols(void) {
  struct plugin plugin;
  plugin_load(&plugin, S_CTX_LOCAL, NULL);
  /* The name is part of how sbatch hands the option on to an srun in its script. */
  check_text(plugin.object, "plugin_name", "aml_dist");
  check_text(plugin.object, "plugin_type", "spank");
  check_number(plugin.object, "plugin_version", SLURM_VERSION_NUMBER);
  check_number(plugin.object, "spank_plugin_version", 1);
  static const enum hook needed[] = {HOOK_INIT,      HOOK_INIT_POST_OPT, HOOK_LOCAL_USER_INIT,
                                     HOOK_TASK_INIT, HOOK_TASK_EXIT,     HOOK_EXIT};
  for (size_t i = 0; i < sizeof needed / sizeof *needed; ++i) {
    CHECK(plugin.hook[needed[i]] != NULL, "no %s", hook_name(needed[i]));
  }
  /* Slurm calls whatever dlsym finds by these names, in the plugin and in everything it is linked with. */
  CHECK(dlsym(plugin.object, "init") == NULL, "a function 'init' would be called by Slurm's loader");
  CHECK(dlsym(plugin.object, "fini") == NULL, "a function 'fini' would be called by Slurm's loader");
  plugin_unload(&plugin);
}

static void live(enum spank_context context, unsigned options) {
  struct plugin plugin;
  plugin_load(&plugin, context, NULL);
  CHECK(plugin_call(&plugin, HOOK_INIT, nowhere) == 0, "init fails");
  CHECK(plugin.options == options, "%u options are registered in context %d", plugin.options, (int)context);
  if (options == 1) {
    CHECK(strcmp(plugin.option.name, "aml-dist") == 0, "the option is called %s", plugin.option.name);
    CHECK(plugin.option.has_arg == 1, "the option takes %d arguments", plugin.option.has_arg);
    CHECK(plugin.option.cb != NULL, "the option has no callback");
  }
  CHECK(plugin_call(&plugin, HOOK_EXIT, nowhere) == 0, "exit fails");
  plugin_unload(&plugin);
}

void scenario_contexts(void) {
  live(S_CTX_LOCAL, 1);
  live(S_CTX_ALLOCATOR, 1);
  char* const logged = drive_slurmd(NULL);
  CHECK(*logged == '\0', "slurmd logs: %s", logged);
  free(logged);
  drive_job_scripts(&usual_step);
  struct step step = usual_step;
  struct run run;
  drive(&run, &step); /* srun and slurmstepd, every callback */
  expect_pytorch(&run);
  run_free(&run);
  char* const said = output_take(2);
  CHECK(*said == '\0', "said: %s", said);
  free(said);
}

/* ---- nothing to be noticed ---- */

void scenario_special_steps(void) {
  static const uint32_t ids[] = {SLURM_BATCH_SCRIPT, SLURM_EXTERN_CONT, SLURM_INTERACTIVE_STEP};
  for (size_t i = 0; i < sizeof ids / sizeof *ids; ++i) {
    subject("step %#x", ids[i]);
    struct node node;
    drive_special_step(&node, &usual_step, ids[i]);
    expect_changes(&node.task[0], "");
    CHECK(*node.said == '\0', "said: %s", node.said);
    CHECK(node.kills == 0, "the step is ended");
    node_free(&node);
  }
}

/* ---- where options meet ---- */

static void drive_inherited(struct submission* srun, const char* of_job, const char* own) {
  struct environment job = {0};
  if (of_job != NULL) environment_set(&job, OPTION_FOR_SRUN, of_job);
  struct step step = usual_step;
  step.option = own;
  subject("sbatch %s, srun %s", of_job != NULL ? of_job : "-", own != NULL ? own : "-");
  drive_srun(srun, &step, &job);
  environment_clear(&job);
}

static void drive_twice_on_node(struct node* node, const char* message, const char* sent) {
  struct submission srun;
  drive_srun(&srun, &usual_step, NULL);
  subject("message %s, environment %s", message, sent);
  environment_set(&srun.environment, OPTION_OF_JOB, sent);
  drive_node(node, &usual_step, 0, &srun.environment, message);
  submission_free(&srun);
}

void scenario_last_mention(void) {
  struct submission srun;
  drive_inherited(&srun, "mpi,no_such_key=1", "pytorch");
  CHECK(!srun.refused && *srun.said == '\0', "the better mention came last: %s", srun.said);
  submission_free(&srun);
  drive_inherited(&srun, "pytorch", "mpi,no_such_key=1");
  expect_srun_refuses(&srun);
  submission_free(&srun);
  drive_inherited(&srun, "pytorch", "none");
  CHECK(!srun.refused && *srun.said == '\0' && *srun.changes == '\0', "none: %s%s", srun.said, srun.changes);
  submission_free(&srun);
  drive_inherited(&srun, "pytorch", NULL);
  CHECK(environment_get(&srun.environment, "SLURM_AMLDIST_LAUNCH") != NULL, "sbatch's option is not inherited");
  submission_free(&srun);
  char* const long_text = text_repeat("pytorch,", 12500);
  drive_inherited(&srun, long_text, "pytorch");
  CHECK(!srun.refused && *srun.said == '\0', "the better mention came last: %s", srun.said);
  submission_free(&srun);
  free(long_text);

  struct node node;
  drive_twice_on_node(&node, "tensorflow,bad=1", "pytorch");
  expect_pytorch_node(&node, 0);
  node_free(&node);
  drive_twice_on_node(&node, "pytorch", "tensorflow,bad=1");
  expect_node_refuses(&node);
  node_free(&node);
  drive_twice_on_node(&node, "pytorch", "none");
  CHECK(*node.said == '\0', "none says: %s", node.said);
  CHECK(environment_get(&node.task[0].environment, "RANK") == NULL, "none sets RANK");
  node_free(&node);
}

/* ---- help ---- */

enum { CAME_BACK = 50 };

/* --------------------------------------------------------------------------------------------------------------
 * daemons */

void scenario_slurmd_arguments(void) {
  char* const long_text = text_repeat("x", 100000);
  char* const long_value = text_format("suffix=%s", long_text);
  const char* const bad[] = {"port_range=abc",
                             "port_range=",
                             "port_range=9-1",
                             "port_range=0-70000",
                             "nonsense",
                             "",
                             "=",
                             "master_addr=maybe",
                             "master_addr",
                             "interface=a/b",
                             "network=10.0.0.0/99",
                             "suffix=%s%n%n%n",
                             "%s%n%n%n",
                             "rdma.=require",
                             "rdma=maybe",
                             "default.gpu=horovod",
                             "disabled=1",
                             "\033[31mred\007",
                             "n\xc3\xa4me=1",
                             long_text,
                             long_value};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; ++i) {
    subject("argument %.60s", bad[i]);
    const char* const arguments[] = {"rdma=off", bad[i], NULL};
    char* const logged = drive_slurmd(arguments);
    expect_sentences(logged, 1);
    free(logged);
    /* The same line must not disturb a step. */
    struct step step = usual_step;
    step.arguments = arguments;
    struct run run;
    drive(&run, &step);
    CHECK(!run.srun.refused && *run.srun.said == '\0', "srun says: %s", run.srun.said);
    for (uint32_t node = 0; node < run.nodes; ++node) expect_pytorch_node(&run.node[node], node);
    run_free(&run);
  }
  free(long_text);
  free(long_value);
}

void scenario_site_file(void) {
  /* /etc/passwd is root's, and each of its lines is wrong. */
  static const char* const bad[] = {"config=/nonexistent/file", "config=/dev",          "config=relative",
                                    "config=/etc/passwd",       "config_optional=/dev", "config_optional=/etc/passwd"};
  static const char* const in_partition[] = {"SLURM_JOB_PARTITION=gpu", NULL};
  static const char* const with_default[] = {"default.gpu=pytorch", NULL};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; ++i) {
    subject("%s", bad[i]);
    const char* const arguments[] = {"rdma=off", bad[i], NULL};
    char* const logged = drive_slurmd(arguments);
    expect_sentences(logged, 1);
    CHECK(strstr(logged, "no step with --aml-dist starts") != NULL, "slurmd logs: %s", logged);
    free(logged);
    struct step step = usual_step;
    step.arguments = arguments;
    step.user_environment = in_partition;
    struct submission srun;
    drive_srun(&srun, &step, NULL);
    expect_srun_refuses(&srun);
    submission_free(&srun);
    /* Where only a node has the fault: with the option, and with a kind that only srun's settings give. */
    for (int has_option = 0; has_option < 2; ++has_option) {
      struct step whole = step;
      whole.arguments = with_default;
      whole.option = has_option ? usual_step.option : NULL;
      drive_srun(&srun, &whole, NULL);
      CHECK(environment_get(&srun.environment, "SLURM_AMLDIST_LAUNCH") != NULL, "srun says: %s", srun.said);
      step.option = whole.option;
      struct node node;
      drive_node(&node, &step, 1, &srun.environment, step.option);
      expect_node_refuses(&node);
      CHECK(strstr(node.said, "on node ") != NULL && strstr(node.said, "the administrator") != NULL,
            "the node says: %s", node.said);
      node_free(&node);
      submission_free(&srun);
    }
    /* Steps without the option, and a plugin that is switched off, are as they were. */
    struct run run;
    step.option = NULL;
    drive(&run, &step);
    expect_nothing(&run);
    run_free(&run);
    const char* const off[] = {bad[i], "disabled", NULL};
    step.arguments = off;
    step.option = "pytorch";
    drive(&run, &step);
    CHECK(!run.srun.refused && strstr(run.srun.said, "switched off") != NULL, "srun says: %s", run.srun.said);
    for (uint32_t node = 0; node < run.nodes; ++node)
      CHECK(run.node[node].task[0].status == 0, "a task of a plugin that is switched off does not start");
    run_free(&run);
  }
  subject("%s", "");
  static const char* const absent[] = {"config_optional=/nonexistent/file", NULL};
  char* const logged = drive_slurmd(absent);
  CHECK(*logged == '\0', "slurmd logs: %s", logged);
  free(logged);
  struct step step = usual_step;
  step.arguments = absent;
  struct run run;
  drive(&run, &step);
  expect_pytorch(&run);
  run_free(&run);
}

static size_t count_entries(const char* directory) {
  size_t entries = 0;
  DIR* const stream = opendir(directory);
  while (stream != NULL && readdir(stream) != NULL) ++entries;
  if (stream != NULL) closedir(stream);
  return entries;
}

void scenario_reload(void) {
  enum { LIVES = 200 };
  static const enum spank_context contexts[] = {S_CTX_LOCAL, S_CTX_ALLOCATOR, S_CTX_SLURMD, S_CTX_REMOTE};
  const size_t before = count_entries("/proc/self/fd");
  for (int life = 0; life < LIVES; ++life) {
    const enum spank_context context = contexts[life % 4];
    struct plugin plugin;
    plugin_load(&plugin, context, NULL);
    CHECK(plugin_call(&plugin, HOOK_INIT, nowhere) == 0, "init fails in life %d", life);
    plugin_take_option(&plugin, life % 3 == 0 ? "pytorch,oops" : "pytorch", context == S_CTX_REMOTE);
    if (life % 5 != 0) plugin_call(&plugin, HOOK_EXIT, nowhere); /* slurmd never calls it */
    plugin_unload(&plugin);
    void* const still_there = dlopen(plugin_path, RTLD_NOLOAD | RTLD_LAZY);
    CHECK(still_there == NULL, "dlclose does not unload the plugin");
    if (still_there != NULL) break;
  }
  CHECK(count_entries("/proc/self/fd") == before, "descriptors were left open");
  struct run run;
  drive(&run, &usual_step);
  expect_pytorch(&run);
  run_free(&run);
}
