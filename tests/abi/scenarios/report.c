/* Who died first: what nodes send to srun, when, and what srun makes of what it gets. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "expect.h"
#include "fake_machine.h"
#include "fake_slurm.h"
#include "fault.h"
#include "journal.h"
#include "plugin.h"
#include "sanitizers.h"
#include "scenarios.h"
#include "text.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* Rank 0 succeeds, the others fail in different ways. */
static const int ends[] = {0, 7, -SIGKILL, -SIGTERM};

static struct step failing_step(void) {
  struct step step = usual_step;
  step.ends = ends;
  return step;
}

static size_t reports_of(const struct node* node) {
  size_t reports = 0;
  for (uint32_t local = 0; local < node->tasks; ++local) reports += node->task[local].reports;
  return reports;
}

/* ---- the nodes ---- */

void scenario_report_refused(void) {
  struct submission srun;
  drive_srun(&srun, &usual_step, NULL);
  struct step step = usual_step;
  step.without_launch_record = 1;
  struct node node;
  drive_node(&node, &step, 1, &srun.environment, "pytorch");
  expect_node_refuses(&node);
  CHECK(reports_of(&node) == 2, "srun is told %zu times", reports_of(&node));
  node_free(&node);
  /* Also where Slurm does not even give the step's numbers. */
  fault_order((struct fault_order){FAULT_GET_ITEM, 3, HOOK_INIT_POST_OPT, ANY_TASK});
  drive_node(&node, &usual_step, 1, &srun.environment, "pytorch");
  fault_cancel();
  CHECK(journal->faults == 1, "the fault was not met");
  expect_node_refuses(&node);
  CHECK(reports_of(&node) == 2, "srun is told %zu times", reports_of(&node));
  node_free(&node);
  submission_free(&srun);
}

/* The user's limit of processes is reached when the task monitor of rank 3, the one server, is to be started. */
void scenario_fork_refused(void) {
  struct step step = usual_step;
  step.option = "tensorflow,worker_count=3,parameter_server_count=1";
  step.workers = 3;
  struct run run;
  fault_order((struct fault_order){FAULT_FORK, 1, HOOK_TASK_INIT, ANY_TASK});
  drive(&run, &step);
  fault_cancel();
  CHECK(journal->faults == 1, "the fault was not met");
  CHECK(run.nodes == 2, "srun does not launch");
  for (uint32_t i = 0; i < 2 * run.nodes; ++i) {
    CHECK(run.node[i / 2].task[i % 2].status == 0, "rank %u does not start", i);
  }
  CHECK(*run.node[0].said == '\0', "the workers' node says: %s", run.node[0].said);
  expect_sentences(run.node[1].said, 1);
  run_free(&run);
}

/* ---- what root reads ---- */

/* Steps of each kind, in this process; their tasks, which the user runs, are others. */
void scenario_variables_of_root(void) {
  static const char* const options[] = {"pytorch", "pytorch,launch=per-node", "mpi,trace,verbose",
                                        "jax,master_addr=name", "tensorflow,worker_count=3,parameter_server_count=1"};
  char* list = text_format("\n");
  FILE* const file = fopen(LIST_OF_ROOT, "r");
  char row[512];
  CHECK(file != NULL, "no %s", LIST_OF_ROOT);
  while (file != NULL && fgets(row, sizeof row, file) != NULL) list = text_append(list, "%s", row);
  if (file != NULL) fclose(file);
  for (size_t i = 0; i < COUNT(options); ++i) {
    struct step step = i == 0 ? failing_step() : usual_step;
    step.option = options[i];
    step.workers = strncmp(options[i], "tensorflow", strlen("tensorflow")) == 0 ? 3 : 0;
    struct run run;
    drive(&run, &step);
    run_free(&run);
    struct node node;
    struct submission srun;
    drive_srun(&srun, &step, NULL);
    drive_node(&node, &step, 1, &srun.environment, step.option);
    node_free(&node);
    submission_free(&srun);
  }
  CHECK(fake_spank_variables != NULL, "root reads nothing");
  for (char* name = strtok(fake_spank_variables, "\n"); name != NULL; name = strtok(NULL, "\n")) {
    char* const start = text_format("\n%s |", name);
    CHECK(strstr(list, start) != NULL, "root touches what " LIST_OF_ROOT " does not have: %s", name);
    free(start);
  }
  free(list);
}

/* ---- flight recorders ---- */

enum { SOME_USER = 65533, FAILED_TASKS = 3, NODES_WITH_FAILURES = 2 };

/* Drives a step of another user, whose failures must all reach srun. */
static void drive_other_users_failures(void) {
  if (getuid() != 0) skip("only root can read a file with another user's rights");
  struct step step = failing_step();
  step.user = SOME_USER;
  struct run run;
  drive(&run, &step);
  CHECK(run.nodes == 2, "srun does not launch");
  size_t reports = 0;
  for (uint32_t node = 0; node < run.nodes; ++node) reports += reports_of(&run.node[node]);
  CHECK(reports == FAILED_TASKS, "srun is told %zu times", reports);
  CHECK(journal->recorder_opens_by_root == 0, "root opens %zu paths that a user can plant",
        journal->recorder_opens_by_root);
  run_free(&run);
}

void scenario_recorder_as_user(void) {
  drive_other_users_failures();
  CHECK(journal->recorder_opens_by_user >= FAILED_TASKS, "the user's recorders are looked for %zu times",
        journal->recorder_opens_by_user);
}

/* A file system of the user's own can block a process that opens a file on it; that happens to a node once in a step.
 */
void scenario_recorder_hangs(void) {
  machine_recorders_hang = true;
  drive_other_users_failures();
  CHECK(journal->recorder_opens_by_user == NODES_WITH_FAILURES, "%zu processes hang", journal->recorder_opens_by_user);
}

/* Every task of the failing step starts as it should, and srun hears nothing. */
static void check_silent(const struct step* step) {
  struct run run;
  drive(&run, step);
  CHECK(run.nodes == 2, "srun does not launch");
  for (uint32_t node = 0; node < run.nodes; ++node) {
    CHECK(reports_of(&run.node[node]) == 0, "srun is told %zu times", reports_of(&run.node[node]));
    CHECK(*run.node[node].said == '\0', "node %u says: %s", node, run.node[node].said);
    for (uint32_t local = 0; local < run.node[node].tasks; ++local) {
      CHECK(run.node[node].task[local].status == 0, "task %u of node %u does not start", local, node);
      const char* const left = environment_get(&run.node[node].task[local].environment, REPORT_VARIABLE);
      CHECK(left == NULL || step->option == NULL, "the task keeps %s", left);
    }
  }
  run_free(&run);
}

void scenario_report_hostile(void) {
#define TOKEN_DIGITS "00c0ffee00c0ffee00c0ffee00c0ffee"
  static const char* const hostile[] = {
      "",
      "1",
      ";",
      ";;",
      "=",
      "%s%n%n%n",
      "2;port=;token=",
      "2;port=0;token=" TOKEN_DIGITS,
      "2;port=65536;token=" TOKEN_DIGITS,
      "2;port=-1;token=" TOKEN_DIGITS,
      "2;port=+80;token=" TOKEN_DIGITS,
      "2;port= 80;token=" TOKEN_DIGITS,
      "2;port=80 ;token=" TOKEN_DIGITS,
      "2;port=0x50;token=" TOKEN_DIGITS,
      "2;port=18446744073709551696;token=" TOKEN_DIGITS,
      "2;port=80;token=",
      "2;port=80;token=0",
      "2;port=80;token=00c0ffee00c0ffee",
      "2;port=80;token=" TOKEN_DIGITS "0",
      "2;port=80;token=00C0FFEE00C0FFEE00C0FFEE00C0FFEE",
      "2;port=80;token=0x00c0ffee00c0ff00c0ffee00c0ffee",
      "2;port=80;token=-0c0ffee00c0ffee00c0ffee00c0ffee",
      "2;port=80;token=" TOKEN_DIGITS ";",
      "2;port=80;token=" TOKEN_DIGITS ";x=1",
      "2;token=" TOKEN_DIGITS ";port=80",
      "1;port=80;token=" TOKEN_DIGITS,
      "2;port=80",
      "2;token=" TOKEN_DIGITS,
      " 2;port=80;token=" TOKEN_DIGITS,
      "2;PORT=80;TOKEN=" TOKEN_DIGITS,
      "2;port=80;token=" TOKEN_DIGITS "\r",
      "2;port=80;token=\xff\xfe\x80\x01\x02\x03\x04\x05\x06\x07\x08\x0b\x0c\x0e\x0f\x10",
      "2;port==80;token==0"};
#undef TOKEN_DIGITS
  struct step step = failing_step();
  for (size_t i = 0; i < COUNT(hostile); ++i) {
    subject("%s", hostile[i]);
    char* const variable = text_format(REPORT_VARIABLE "=%s", hostile[i]);
    step.node_variables = variable;
    check_silent(&step);
    free(variable);
  }
  static const char* const pieces[] = {"x", ";", "9", "2;port=80;token=", "%n"};
  for (size_t i = 0; i < COUNT(pieces); ++i) {
    subject("120 kB of %s", pieces[i]);
    char* const value = text_repeat(pieces[i], 120000 / strlen(pieces[i]));
    char* const variable = text_format(REPORT_VARIABLE "=%s", value);
    step.node_variables = variable;
    check_silent(&step);
    free(variable);
    free(value);
  }
  subject("no option, and the variable comes from somewhere");
  step.option = NULL;
  step.node_variables = REPORT_VARIABLE "=2;port=40123;token=00c0ffee00c0ffee00c0ffee00c0ffee\n";
  check_silent(&step);
  step.option = "pytorch";
  /* The other half of the address. */
  static const char* const hosts[] = {"",           "::g",       "1::2::3", "login", "10.11.0", "10.11.0.256",
                                      "10.11.0.1 ", "$(reboot)", "\xff"};
  for (size_t i = 0; i < COUNT(hosts); ++i) {
    subject("srun on %s", hosts[i]);
    char* const variable = text_format("SLURM_SRUN_COMM_HOST=%s", hosts[i]);
    step.node_variables = variable;
    check_silent(&step);
    free(variable);
  }
}

/* ---- srun ---- */

#define REPORT "aml-dist;1;TOKEN;failed;2;0;1792;1234;n2"
static const char line[] = "aml-dist: first failure: rank 2 (local 0) on n2: exit status 7, 1.2 s after the start\n";

static void check_heard(const char* const* datagrams, const char* said) {
  struct step step = usual_step;
  step.datagrams = datagrams;
  struct submission srun;
  drive_srun(&srun, &step, NULL);
  expect_launch(&srun, true);
  CHECK(strcmp(srun.said, said) == 0, "srun says '%s' instead of '%s'", srun.said, said);
  CHECK(*srun.out == '\0', "srun prints: %s", srun.out);
  submission_free(&srun);
}

void scenario_report_heard(void) {
  static const char* const later = "aml-dist;1;TOKEN;failed;3;1;9;1250;n2";
  static const char* const refusal = "aml-dist;1;TOKEN;refused;0;0;256;3;n1";
  check_heard((const char* const[]){REPORT, REPORT, later, NULL}, line);
  check_heard((const char* const[]){refusal, REPORT, NULL}, "");
  check_heard((const char* const[]){REPORT, refusal, NULL}, "");
  char* const long_one = text_format("%s%0600d", REPORT, 0);
  const char* const nonsense[] = {
      "",
      "x",
      "aml-dist;1;0000000000000000;failed;2;0;1792;1234;n2",
      "aml-dist;2;0123456789abcdef;0123456789abcdef;0123456789abcdef;failed;2;0;1792;1234;n2",
      "aml-dist;1;TOKEN;killed;2;0;1792;1234;n2",
      "aml-dist;1;TOKEN;failed;4;0;1792;1234;n2",
      "aml-dist;1;TOKEN;failed;-1;0;1792;1234;n2",
      "aml-dist;1;TOKEN;failed;2;0;0;1234;n2",
      "aml-dist;1;TOKEN;failed;2;0;99999999;1234;n2",
      "aml-dist;1;TOKEN;failed;2;0;1792;1234;\033[31m",
      "aml-dist;1;TOKEN;failed;2;0;1792;1234;n2\naml-dist: all is well",
      "%s%n%n%n;1;TOKEN;failed;2;0;1792;1234;n2",
      long_one,
      NULL};
  check_heard(nonsense, "");
  free(long_one);
}

void scenario_report_channel(void) {
  struct submission first;
  struct submission second;
  fake_srun_ports[0] = 61000;
  fake_srun_ports[1] = 61001;
  machine_busy_port = 61000;
  drive_srun(&first, &usual_step, NULL);
  drive_srun(&second, &usual_step, NULL);
  expect_launch(&first, true);
  expect_launch(&second, true);
  const char* const one = environment_get(&first.environment, REPORT_VARIABLE);
  const char* const other = environment_get(&second.environment, REPORT_VARIABLE);
  CHECK(one != NULL && strncmp(one, "2;port=61001;", strlen("2;port=61001;")) == 0, "srun listens at %s", one);
  CHECK(one != NULL && other != NULL && strcmp(one, other) != 0, "two steps share the token of %s", one);
  submission_free(&first);
  submission_free(&second);

  /* No port is left: the step runs without. */
  fake_srun_ports[1] = 61000;
  drive_srun(&first, &usual_step, NULL);
  expect_launch(&first, false);
  CHECK(*first.said == '\0', "srun says: %s", first.said);
  submission_free(&first);
  fake_srun_ports[0] = 0;
  machine_busy_port = 0;

  /* An outer step's channel is not handed on, whatever becomes of this one. */
  static const char* const outer[] = {REPORT_VARIABLE "=2;port=40999;token=00c0ffee00c0ffee00c0ffee00c0ffee", NULL};
  static const char* const options[] = {NULL, "none", "pytorhc", "pytorch,node_count=77"};
  for (size_t i = 0; i < COUNT(options); ++i) {
    subject("%s", options[i] != NULL ? options[i] : "no option");
    struct step step = usual_step;
    step.option = options[i];
    step.user_environment = outer;
    drive_srun(&first, &step, NULL);
    CHECK(strcmp(first.changes, "-" REPORT_VARIABLE) == 0 || strcmp(first.changes, "-" REPORT_VARIABLE "\n") == 0,
          "srun's environment changes by %s", first.changes);
    submission_free(&first);
  }
}

void scenario_malloc_fails_listener(void) {
  if (HOST_IS_SANITIZED) skip("the sanitizer has its own malloc");
  enum { MOST_CALLS = 500 };
  struct step step = usual_step;
  step.datagrams = (const char* const[]){REPORT, NULL};
  unsigned call = 1;
  for (bool met = true; met && call < MOST_CALLS; ++call) {
    subject("malloc %u", call);
    fault_order((struct fault_order){FAULT_LISTENER_MALLOC, call, ANY_CALLBACK, ANY_TASK});
    struct submission srun;
    drive_srun(&srun, &step, NULL);
    met = journal->faults > 0;
    journal->faults = 0;
    fault_cancel();
    expect_launch(&srun, true);
    CHECK(strcmp(srun.said, line) == 0 || (met && *srun.said == '\0'), "srun says: %s", srun.said);
    submission_free(&srun);
  }
  CHECK(call > 4 && call < MOST_CALLS, "%u allocations: are they the listener's?", call - 2);
}
