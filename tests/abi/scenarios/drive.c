#include "drive.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fake_machine.h"
#include "fake_slurm.h"
#include "journal.h"
#include "output.h"
#include "plugin.h"
#include "seal.h"
#include "text.h"

enum { LONGEST_TASK_SECONDS = 20, REFUSED_TASK = 1, LOST_TASK = -99 };

static const struct place nowhere = {NULL, 0, -1, NULL, 0};

/* ---- srun, sbatch ---- */

static struct plugin* new_plugin(enum spank_context context, const struct step* step) {
  static struct plugin plugin;
  plugin_load(&plugin, context, step->arguments);
  return &plugin;
}

/* The option from the environment first, then from the command line: the last mention wins. */
static void take_options(struct plugin* plugin, const struct step* step) {
  const char* const inherited = getenv(OPTION_FOR_SRUN);
  if (inherited != NULL) plugin_take_option(plugin, inherited, false);
  if (step->option != NULL) plugin_take_option(plugin, step->option, false);
  /* For the nodes and for the prolog. */
  if (plugin->option_text != NULL) setenv(OPTION_OF_JOB, plugin->option_text, 1);
}

static void begin(struct submission* submission, const struct step* step, const struct environment* inherited,
                  struct environment* own) {
  memset(submission, 0, sizeof *submission);
  environment_from_process(own);
  struct environment environment = {0};
  environment_of_user(&environment, step);
  for (size_t i = 0; inherited != NULL && i < inherited->count; ++i) {
    environment_put(&environment, inherited->variables[i]);
  }
  environment_to_process(&environment);
  environment_clear(&environment);
}

static void finish(struct submission* submission, struct plugin* plugin, const struct environment* before,
                   struct environment* own) {
  const int status = plugin_call(plugin, HOOK_EXIT, nowhere);
  CHECK(status == 0, "exit returns %d", status);
  environment_from_process(&submission->environment);
  submission->changes = environment_changes(before, &submission->environment);
  plugin_unload(plugin);
  machine_cut_off();
  submission->said = output_take(2);
  submission->out = output_take(1);
  environment_to_process(own);
  environment_clear(own);
}

/* What the network brings to srun while its step runs. */
static void deliver(const struct step* step) {
  const char* const channel = getenv(REPORT_VARIABLE);
  static const char head[] = "aml-dist;1;TOKEN;";
  for (const char* const* each = step->datagrams; channel != NULL && each != NULL && *each != NULL; ++each) {
    if (strncmp(*each, head, strlen(head)) != 0) {
      machine_deliver(*each);
      continue;
    }
    char* const stamp = text_format("0123456789abcdef;%016zx", (size_t)(each - step->datagrams) + 1);
    char* const text = text_format("aml-dist;1;%.16s%s", strstr(channel, "token=") + 6, *each + strlen(head) - 1);
    char* const datagram = seal(channel, 'q', stamp, text);
    machine_deliver(datagram);
    free(stamp);
    free(text);
    free(datagram);
  }
}

static void call_submitter(struct submission* submission, struct plugin* plugin, const struct step* step,
                           enum spank_context context) {
  submission->post_opt = plugin_call(plugin, HOOK_INIT_POST_OPT, nowhere);
  if (submission->post_opt < 0 || context != S_CTX_LOCAL) return;
  fake_step = step;
  const struct place place = {step, 0, -1, NULL, 0};
  submission->local_user_init = plugin_call(plugin, HOOK_LOCAL_USER_INIT, place);
  if (submission->local_user_init == 0) deliver(step);
  fake_step = NULL;
  CHECK(journal->layouts == 0, "%d step layouts were not given back", journal->layouts);
  journal->layouts = 0;
}

static void submit(struct submission* submission, const struct step* step, const struct environment* inherited,
                   enum spank_context context) {
  struct environment own = {0};
  struct environment before = {0};
  begin(submission, step, inherited, &own);
  struct plugin* const plugin = new_plugin(context, step);
  const int status = plugin_call(plugin, HOOK_INIT, nowhere);
  CHECK(status == 0, "init returns %d", status);
  take_options(plugin, step);
  environment_from_process(&before);
  submission->unknown_option = step->option != NULL && plugin->options == 0;
  if (!submission->unknown_option) call_submitter(submission, plugin, step, context);
  submission->refused = submission->unknown_option || submission->post_opt < 0 || submission->local_user_init < 0;
  finish(submission, plugin, &before, &own);
  environment_clear(&before);
}

void drive_srun(struct submission* srun, const struct step* step, const struct environment* inherited) {
  submit(srun, step, inherited, S_CTX_LOCAL);
}

void drive_sbatch(struct submission* sbatch, const struct step* step) { submit(sbatch, step, NULL, S_CTX_ALLOCATOR); }

/* ---- slurmstepd ---- */

/* The launch message first, then the environment, as slurmstepd does: the callback runs twice. */
static void take_remote_options(struct plugin* plugin, struct environment* environment, const char* option) {
  if (option != NULL) plugin_take_option(plugin, option, true);
  const char* const sent = environment_get(environment, OPTION_OF_JOB);
  if (sent != NULL) plugin_take_option(plugin, sent, true);
  environment_unset(environment, OPTION_OF_JOB);
}

static void never_drain(struct plugin* plugin, enum hook hook, struct place place) {
  const int status = plugin_call(plugin, hook, place);
  CHECK(status == 0, "%s returns %d, which drains the node", hook_name(hook), status);
}

/* How the step wants this task's program to end. */
static int end_of(struct place place) {
  return place.step->ends != NULL ? place.step->ends[rank_of(place.step, place.node, (uint32_t)place.local)] : 0;
}

/* A server's program is a child of the process that Slurm knows, and the variable names the program. Then it gets back
 * what Slurm wrote, since no scenario can expect a number. */
static void check_task_pid(struct environment* environment, const char* of_slurm) {
  static const char name[] = "SLURM_TASK_PID";
  const char* const now = environment_get(environment, name);
  const bool is_own = now != NULL && atoi(now) == (int)getpid();
  CHECK(is_own || (now != NULL && strcmp(now, of_slurm) == 0), "%s is %s in process %d", name, now, (int)getpid());
  environment_set(environment, name, of_slurm);
}

/* The child: Slurm's task variables, task_init, and the environment that the program would see. */
static _Noreturn void be_task(struct plugin* plugin, struct place place, int pipe_end) {
  const int end = end_of(place);
  alarm(LONGEST_TASK_SECONDS);
  int status = plugin_call(plugin, HOOK_TASK_INIT_PRIVILEGED, place);
  environment_add_task(place.environment, place.step, place.node, (uint32_t)place.local);
  char* const task_pid = text_format("%s", environment_get(place.environment, "SLURM_TASK_PID"));
  if (status == 0) status = plugin_call(plugin, HOOK_TASK_INIT, place);
  if (status < 0) exit(REFUSED_TASK); /* as Slurm does, destructors included */
  check_task_pid(place.environment, task_pid);
  free(task_pid);
  bystanders_check_task(&plugin->before);
  environment_send(place.environment, pipe_end);
  if (end < 0) kill(getpid(), -end);
  _exit(end);
}

static int run_task(struct task* task, struct plugin* plugin, struct place place) {
  int ends[2];
  if (pipe(ends) != 0) abort();
  const pid_t child = fork();
  if (child < 0) abort();
  if (child == 0) {
    /* Away from the descriptors that the checks compare. */
    enum { PIPE_IN_CHILD = 300 };
    dup2(ends[1], PIPE_IN_CHILD);
    close(ends[0]);
    close(ends[1]);
    be_task(plugin, place, PIPE_IN_CHILD);
  }
  close(ends[1]);
  environment_receive(&task->environment, ends[0]);
  close(ends[0]);
  int status = 0;
  if (waitpid(child, &status, 0) != child) abort();
  const int end = end_of(place);
  const bool as_wanted =
      end < 0 ? WIFSIGNALED(status) && WTERMSIG(status) == -end : WIFEXITED(status) && WEXITSTATUS(status) == end;
  const bool refused = WIFEXITED(status) && WEXITSTATUS(status) == REFUSED_TASK;
  const bool ended = as_wanted || refused;
  CHECK(ended, "the task's process ends with wait status %#x", (unsigned)status);
  task->status = !ended ? LOST_TASK : as_wanted ? 0 : -1;
  task->wait_status = status;
  return status;
}

/* `sent` is the job's environment before the plugin has seen it. */
static void run_tasks(struct node* node, struct plugin* plugin, struct place place, const struct environment* sent) {
  int status[MOST_LOCAL_TASKS];
  for (uint32_t local = 0; local < node->tasks; ++local) {
    place.local = (int)local;
    environment_copy(&node->task[local].before, sent);
    environment_add_task(&node->task[local].before, place.step, place.node, local);
    status[local] = run_task(&node->task[local], plugin, place);
  }
  for (uint32_t local = 0; local < node->tasks; ++local) {
    place.local = (int)local;
    never_drain(plugin, HOOK_TASK_POST_FORK, place);
  }
  for (uint32_t local = 0; local < node->tasks; ++local) {
    place.local = (int)local;
    place.exit_status = status[local];
    never_drain(plugin, HOOK_TASK_EXIT, place);
  }
}

/* Whether a line of the journal is the report of one task's end, word for word but for the time that it ran. */
static bool is_report_of(const char* line, const struct node* node, uint32_t index, uint32_t local, bool refused,
                         const struct step* step, const char* channel) {
  const uint32_t rank = rank_of(step, index, local);
  char* const start =
      text_format(ADDRESS_OF_SRUN ":%ld aml-dist;1;%.16s;%s;%u;%u;%d;", strtol(strstr(channel, "port=") + 5, NULL, 10),
                  strstr(channel, "token=") + 6, refused ? "refused" : "failed", refused ? 0 : rank,
                  refused ? 0 : local, node->task[local].wait_status);
  char* const end = text_format(";n%u", index + 1);
  static const char killed[] = ";;killed;SIGKILL came from outside and not for want of memory"; /* where it is known */
  static const char nameless[] = ";unknown\n"; /* where Slurm did not give the node's name */
  const char* rest = line + strlen(start);
  bool same = strncmp(line, start, strlen(start)) == 0;
  const size_t digits = same ? strspn(rest, "0123456789") : 0;
  same = same && digits > 0 && digits < 6;
  const bool nameless_here =
      same && refused && journal->faults > 0 && strncmp(rest + digits, nameless, strlen(nameless)) == 0;
  if (same && !nameless_here) {
    same = strncmp(rest + digits, end, strlen(end)) == 0;
    rest += digits + strlen(end);
    same = same && (*rest == '\n' || strncmp(rest, killed, strlen(killed)) == 0);
  }
  free(start);
  free(end);
  return same;
}

/* Whether it is the report of a worker's end, word for word. */
static bool is_end_of(const char* line, const struct node* node, uint32_t index, uint32_t local,
                      const struct step* step, const char* channel) {
  const uint32_t rank = rank_of(step, index, local);
  char* const whole = text_format(ADDRESS_OF_SRUN ":%ld aml-dist;1;%.16s;ended;worker;%u;%d;0;%u\n",
                                  strtol(strstr(channel, "port=") + 5, NULL, 10), strstr(channel, "token=") + 6, rank,
                                  node->task[local].wait_status, step->workers);
  const bool same = rank < step->workers && strncmp(line, whole, strlen(whole)) == 0;
  free(whole);
  return same;
}

/* srun is told of each task that failed, and of each worker's end, until it answers; and of nothing else. */
static void count_reports(struct node* node, const struct step* step, uint32_t index, const char* channel) {
  bool refuses = false;
  for (uint32_t local = 0; local < node->tasks; ++local) refuses = refuses || node->task[local].status < 0;
  char* const sent = journal_take(TO_SRUN);
  for (const char* line = sent; *line != '\0'; line = strchr(line, '\n') + 1) {
    bool known = false;
    for (uint32_t local = 0; channel != NULL && local < node->tasks && !known; ++local) {
      struct task* const task = &node->task[local];
      known = is_end_of(line, node, index, local, step, channel);
      if (known) break;
      if (task->wait_status == 0 || task->reports == 1) continue;
      known = is_report_of(line, node, index, local, refuses, step, channel);
      if (known) ++task->reports;
    }
    CHECK(known, "srun is told what it should not be: %s", line);
  }
  free(sent);
}

void drive_node(struct node* node, const struct step* step, uint32_t index, const struct environment* sent,
                const char* option) {
  memset(node, 0, sizeof *node);
  node->tasks = local_tasks_of(step, index);
  struct environment environment = {0};
  environment_copy(&environment, sent);
  environment_add_node(&environment, step, index);
  if (step->without_launch_record != 0) environment_unset(&environment, "SLURM_AMLDIST_LAUNCH");
  if (step->launch_record != NULL) environment_set(&environment, "SLURM_AMLDIST_LAUNCH", step->launch_record);
  const size_t kills_before = journal->kills;
  const size_t leases_before = machine_leases();
  struct environment own_before = {0};
  environment_from_process(&own_before);

  fake_step = step;
  char name[16];
  snprintf(name, sizeof name, "n%u", index + 1);
  machine_is(name);
  machine_channel = environment_get(sent, REPORT_VARIABLE);
  struct plugin* const plugin = new_plugin(S_CTX_REMOTE, step);
  struct place place = {step, index, -1, &environment, 0};
  never_drain(plugin, HOOK_INIT, place);
  take_remote_options(plugin, &environment, option);
  struct environment given = {0};
  environment_copy(&given, &environment);
  never_drain(plugin, HOOK_INIT_POST_OPT, place);
  never_drain(plugin, HOOK_USER_INIT, place);
  run_tasks(node, plugin, place, &given);
  environment_clear(&given);
  node->leases = machine_leases();
  never_drain(plugin, HOOK_EXIT, place);
  plugin_unload(plugin);
  machine_is("login");
  fake_step = NULL;
  /* A file that is not locked is no lease any more: without memory for its name it may stay. */
  CHECK(machine_leases() <= leases_before || journal->faults > 0, "a lease is left behind");
  count_reports(node, step, index, machine_channel);
  machine_channel = NULL;
  environment_clear(&environment);

  struct environment own_after = {0};
  environment_from_process(&own_after);
  char* const changes = environment_changes(&own_before, &own_after);
  CHECK(*changes == '\0', "slurmstepd's own environment was changed: %s", changes);
  free(changes);
  environment_clear(&own_before);
  environment_clear(&own_after);

  node->said = journal_take(TO_USER);
  node->kills = journal->kills - kills_before;
  node->sane_ids = true;
  for (size_t i = kills_before; i < journal->kills && i < JOURNAL_KILLS; ++i) {
    const bool same = journal->killed_job[i] == job_of(step) && journal->killed_step[i] == step->step_id;
    if (!same) node->sane_ids = false;
  }
  char* const written = output_take(2);
  char* const printed = output_take(1);
  CHECK(*written == '\0' && *printed == '\0', "slurmstepd's own output was written to: %s%s", written, printed);
  free(written);
  free(printed);
}

void drive_special_step(struct node* node, const struct step* step, uint32_t step_id) {
  struct submission sbatch;
  drive_sbatch(&sbatch, step);
  struct step special = *step;
  special.ranks = "0";
  special.nodelist = "n1";
  special.step_id = step_id;
  drive_node(node, &special, 0, &sbatch.environment, NULL);
  submission_free(&sbatch);
}

/* ---- slurmd ---- */

char* drive_slurmd(const char* const* arguments) {
  struct step step = {.arguments = arguments};
  struct plugin* const plugin = new_plugin(S_CTX_SLURMD, &step);
  never_drain(plugin, HOOK_INIT, nowhere);
  CHECK(plugin->options == 0, "an option is registered in slurmd");
  never_drain(plugin, HOOK_SLURMD_EXIT, nowhere);
  plugin_unload(plugin);
  return journal_take(TO_ADMINISTRATOR);
}

/* Prolog and epilog run in processes of their own, without init. */
void drive_job_scripts(const struct step* step) {
  static const enum hook hooks[] = {HOOK_JOB_PROLOG, HOOK_JOB_EPILOG};
  for (size_t i = 0; i < sizeof hooks / sizeof *hooks; ++i) {
    struct plugin* const plugin = new_plugin(S_CTX_JOB_SCRIPT, step);
    const struct place place = {step, 0, -1, NULL, 0};
    never_drain(plugin, hooks[i], place);
    plugin_unload(plugin);
  }
}

/* ---- whole step ---- */

void drive(struct run* run, const struct step* step) {
  memset(run, 0, sizeof *run);
  drive_srun(&run->srun, step, NULL);
  if (run->srun.refused) return;
  run->nodes = nodes_of(step);
  for (uint32_t node = 0; node < run->nodes; ++node) {
    drive_node(&run->node[node], step, node, &run->srun.environment,
               environment_get(&run->srun.environment, OPTION_OF_JOB));
  }
}

void submission_free(struct submission* submission) {
  free(submission->said);
  free(submission->out);
  free(submission->changes);
  environment_clear(&submission->environment);
}

void node_free(struct node* node) {
  for (uint32_t local = 0; local < node->tasks; ++local) {
    environment_clear(&node->task[local].before);
    environment_clear(&node->task[local].environment);
  }
  free(node->said);
}

void run_free(struct run* run) {
  submission_free(&run->srun);
  for (uint32_t node = 0; node < run->nodes; ++node) node_free(&run->node[node]);
}
