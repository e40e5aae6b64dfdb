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
  expect_pytorch(&run, &usual_seating);
  run_free(&run);
  char* const said = output_take(2);
  CHECK(*said == '\0', "said: %s", said);
  free(said);
}

/* ---- nothing to be noticed ---- */

static void check_nothing(const struct step* step) {
  struct run run;
  drive(&run, step);
  expect_nothing(&run);
  run_free(&run);
  struct submission sbatch;
  drive_sbatch(&sbatch, step);
  CHECK(!sbatch.refused && *sbatch.said == '\0' && *sbatch.out == '\0', "sbatch says: %s%s", sbatch.said, sbatch.out);
  CHECK(*sbatch.changes == '\0', "sbatch's environment changes: %s", sbatch.changes);
  submission_free(&sbatch);
}

void scenario_absent(void) {
  struct step step = usual_step;
  step.option = NULL;
  check_nothing(&step);
  static const char* const own[] = {"MASTER_ADDR=elsewhere", "RANK=7", "WORLD_SIZE=9", "SLURM_NTASKS_PER_NODE=3", NULL};
  step.user_environment = own;
  check_nothing(&step);
  step.ranks = "0";
  step.nodelist = "n1";
  check_nothing(&step);
}

void scenario_none(void) {
  struct step step = usual_step;
  step.option = "none";
  check_nothing(&step);
}

void scenario_disabled(void) {
  static const char* const arguments[] = {"disabled", NULL};
  struct step step = usual_step;
  step.arguments = arguments;
  struct run run;
  drive(&run, &step);
  CHECK(!run.srun.refused, "srun refuses");
  expect_sentences(run.srun.said, 1);
  CHECK(*run.srun.changes == '\0', "srun's environment changes: %s", run.srun.changes);
  for (uint32_t node = 0; node < run.nodes; ++node) {
    CHECK(*run.node[node].said == '\0', "node %u says: %s", node, run.node[node].said);
    for (uint32_t local = 0; local < run.node[node].tasks; ++local) expect_changes(&run.node[node].task[local], "");
  }
  run_free(&run);
}

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
  expect_pytorch_node(&node, &usual_seating, 0);
  node_free(&node);
  drive_twice_on_node(&node, "pytorch", "tensorflow,bad=1");
  expect_node_refuses(&node);
  node_free(&node);
  drive_twice_on_node(&node, "pytorch", "none");
  CHECK(*node.said == '\0', "none says: %s", node.said);
  CHECK(environment_get(&node.task[0].environment, "RANK") == NULL, "none sets RANK");
  node_free(&node);
}

void scenario_sbatch_option(void) {
  struct submission sbatch;
  drive_sbatch(&sbatch, &usual_step);
  CHECK(!sbatch.refused && *sbatch.said == '\0' && *sbatch.out == '\0', "sbatch says: %s%s", sbatch.said, sbatch.out);
  CHECK(*sbatch.changes == '\0', "sbatch's environment changes: %s", sbatch.changes);
  const char* const handed_on = environment_get(&sbatch.environment, OPTION_OF_JOB);
  CHECK(handed_on != NULL && strcmp(handed_on, "pytorch") == 0, "handed on: %s", handed_on != NULL ? handed_on : "-");
  submission_free(&sbatch);

  struct step step = usual_step;
  step.option = "pytorhc";
  drive_sbatch(&sbatch, &step);
  CHECK(sbatch.post_opt < 0, "init_post_opt returns %d", sbatch.post_opt);
  expect_srun_refuses(&sbatch);
  CHECK(strstr(sbatch.said, "'pytorch'") != NULL, "the nearest kind is not offered: %s", sbatch.said);
  submission_free(&sbatch);

  /* sbatch cannot know the step's shape: an assertion is none of its business. */
  step.option = "pytorch,node_count=77";
  drive_sbatch(&sbatch, &step);
  CHECK(!sbatch.refused && *sbatch.said == '\0', "sbatch says: %s", sbatch.said);
  submission_free(&sbatch);
}

/* ---- help ---- */

enum { CAME_BACK = 50 };

/* Exit status of a process in which a person asks for help. */
static int ask_for_help(enum spank_context context, const char* text) {
  subject("%s in context %d", text, (int)context);
  const pid_t child = fork();
  if (child == 0) {
    struct plugin plugin;
    plugin_load(&plugin, context, NULL);
    plugin_call(&plugin, HOOK_INIT, nowhere);
    plugin_take_option(&plugin, text, context == S_CTX_REMOTE);
    _exit(CAME_BACK);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void scenario_help(void) {
  static const enum spank_context asked[] = {S_CTX_LOCAL, S_CTX_ALLOCATOR};
  for (size_t i = 0; i < 2; ++i) {
    const int status = ask_for_help(asked[i], "help");
    CHECK(status == 0, "help ends with %d", status);
    char* const out = output_take(1);
    char* const said = output_take(2);
    CHECK(*said == '\0', "help speaks on standard error: %s", said);
    CHECK(text_lines(out) > 10 && out[strlen(out) - 1] == '\n', "help is short or unfinished: %s", out);
    static const char* const words[] = {"pytorch", "tensorflow", "mpi", "jax", "none", "launch=", "master_port="};
    for (size_t word = 0; word < sizeof words / sizeof *words; ++word) {
      CHECK(strstr(out, words[word]) != NULL, "help says nothing of %s", words[word]);
    }
    free(out);
    free(said);
  }
  /* A daemon must neither print nor end. */
  CHECK(ask_for_help(S_CTX_REMOTE, "help") == CAME_BACK, "help ends slurmstepd");
  char* const out = output_take(1);
  CHECK(*out == '\0', "help prints in slurmstepd: %s", out);
  free(out);
  subject("%s", "");
}

void scenario_verbose(void) {
  struct step step = usual_step;
  step.option = "pytorch,verbose";
  static const char* const arguments[] = {"no_such_argument=1", NULL};
  step.arguments = arguments;
  struct run run;
  drive(&run, &step);
  CHECK(!run.srun.refused, "srun refuses: %s", run.srun.said);
  CHECK(text_lines(run.srun.said) >= 2, "verbose says too little: %s", run.srun.said);
  expect_sentences(run.srun.said, text_lines(run.srun.said));
  CHECK(strstr(run.srun.said, "no_such_argument") != NULL, "the bad argument is not named: %s", run.srun.said);
  for (uint32_t node = 0; node < run.nodes; ++node) {
    expect_sentences(run.node[node].said, text_lines(run.node[node].said));
    CHECK(run.node[node].task[0].status == 0, "the task does not start");
  }
  run_free(&run);
}

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
                             "config=/nonexistent/file",
                             "config=/dev",
                             "config=relative",
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
    /* The same line must not trouble anybody's step. */
    struct step step = usual_step;
    step.arguments = arguments;
    struct run run;
    drive(&run, &step);
    CHECK(!run.srun.refused && *run.srun.said == '\0', "srun says: %s", run.srun.said);
    for (uint32_t node = 0; node < run.nodes; ++node) expect_pytorch_node(&run.node[node], &usual_seating, node);
    run_free(&run);
  }
  free(long_text);
  free(long_value);
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
  expect_pytorch(&run, &usual_seating);
  run_free(&run);
}
