/* Every function that the plugin calls fails in turn. A refusal has to be said in one sentence and to come where it
 * costs no node; going on with less than the truth is the one thing that is never right. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "expect.h"
#include "fake_machine.h"
#include "fault.h"
#include "journal.h"
#include "plugin.h"
#include "sanitizers.h"
#include "scenarios.h"
#include "text.h"

enum { MOST_CALLS = 5000 };

/* Whether an injected fault was met since the last time this was asked. */
static bool fault_was_met(void) {
  const bool met = journal->faults > 0;
  journal->faults = 0;
  fault_cancel();
  return met;
}

static void good_launch(struct environment* environment) {
  struct submission srun;
  drive_srun(&srun, &usual_step, NULL);
  CHECK(!srun.refused, "srun refuses: %s", srun.said);
  environment_copy(environment, &srun.environment);
  environment_unset(environment, OPTION_OF_JOB); /* the launch message has it as well */
  submission_free(&srun);
}

/* Fails call after call in srun until one run meets no fault. Returns how many were met. */
static unsigned sweep_srun(enum fault kind, const struct step* step) {
  for (unsigned call = 1; call < MOST_CALLS; ++call) {
    subject("call %u", call);
    fault_order((struct fault_order){kind, call, ANY_CALLBACK, ANY_TASK});
    struct submission srun;
    drive_srun(&srun, step, NULL);
    const bool met = fault_was_met();
    /* Without its name the program is taken for no launcher's daemon; without the number of tasks the listener knows
     * less; and that is all. */
    const bool is_harmless = kind == FAULT_GET_ITEM && (call == 1 || call == 4);
    if (met && !is_harmless) expect_srun_refuses(&srun);
    else CHECK(!srun.refused && *srun.said == '\0', "srun says: %s", srun.said);
    if (!srun.refused) expect_launch(&srun, true);
    else CHECK(*srun.changes == '\0', "a refused step leaves %s", srun.changes);
    submission_free(&srun);
    if (!met) return call - 1;
  }
  CHECK(false, "no end of calls");
  return 0;
}

/* Each task refused, or with exactly what it would have had: a getter that fails must not turn into a guess. The node
 * gives one reason, behind what rank 0 has to say of the step in any case. */
static void expect_refused_or_same(const struct node* node, const struct node* good) {
  bool refused = false;
  for (uint32_t local = 0; local < node->tasks; ++local) {
    const struct task* const task = &node->task[local];
    refused = refused || task->status == -1;
    if (task->status == -1) continue;
    char* const changes = environment_changes(&good->task[local].environment, &task->environment);
    CHECK(task->status == 0, "local task %u ends with %d", local, task->status);
    CHECK(*changes == '\0', "local task %u starts with an environment that is wrong by\n%s\n", local, changes);
    free(changes);
  }
  if (!refused) CHECK(strcmp(node->said, good->said) == 0, "said: %s", node->said);
  const size_t notes = text_lines(good->said);
  const bool after_notes = text_lines(node->said) > 1 && strncmp(node->said, good->said, strlen(good->said)) == 0;
  if (refused) expect_sentences(node->said, after_notes ? notes + 1 : 1);
}

/* Steps in which every variable that the plugin looks at means something. */
static struct step telling_step(int which) {
  static const char* const own[] = {"MASTER_ADDR=my.host.example", "MASTER_PORT=12345", "SLURM_RESTART_COUNT=3", NULL};
  static const char* const left_behind[] = {
      "AMLDIST_STAMP=4242.7 MASTER_ADDR=10.11.0.9 MASTER_PORT=20123",
      "MASTER_ADDR=10.11.0.9",
      "MASTER_PORT=20123",
      "RANK=31",
      "WORLD_SIZE=64",
      "LOCAL_RANK=7",
      "LOCAL_WORLD_SIZE=8",
      "GROUP_RANK=9",
      "TF_CONFIG={}",
      "OMPI_COMM_WORLD_RANK=5",
      "JAX_COORDINATOR_ADDRESS=x:1",
      "SLURM_RESTART_COUNT=3",
      NULL,
  };
  struct step step = usual_step;
  if (which == 1) step.user_environment = own;
  if (which >= 2) step.user_environment = left_behind;
  if (which == 3) {
    step.ranks = "0/1";
    step.option = "pytorch,launch=per-node";
    step.node_variables = "CUDA_VISIBLE_DEVICES=0,1,2\n";
  }
  if (which == 4) step.node_variables = "SLURM_STEP_RESV_PORTS=12001-12003\n";
  return step;
}
enum { TELLING_STEPS = 5 };

/* A sanitizer makes a fork ten times as slow: with one, each step tries every third call, from another one on. */
enum { FAULT_STRIDE = HOST_IS_SANITIZED ? 3 : 1 };

static unsigned sweep_step(enum fault kind, const struct step* step, unsigned first) {
  struct submission srun;
  struct node good;
  drive_srun(&srun, step, NULL);
  CHECK(!srun.refused, "srun refuses: %s", srun.said);
  drive_node(&good, step, 0, &srun.environment, step->option);
  unsigned call = 1 + first % FAULT_STRIDE;
  for (bool met = true; met && call < MOST_CALLS; call += FAULT_STRIDE) {
    subject("%s with%s user's variables, call %u", step->option, step->user_environment != NULL ? "" : "out", call);
    fault_order((struct fault_order){kind, call, ANY_CALLBACK, ANY_TASK});
    struct node node;
    drive_node(&node, step, 0, &srun.environment, step->option);
    met = fault_was_met();
    expect_refused_or_same(&node, &good);
    node_free(&node);
  }
  CHECK(call < MOST_CALLS, "no end of calls");
  node_free(&good);
  submission_free(&srun);
  return call < 1 + FAULT_STRIDE ? 0 : call - 1 - FAULT_STRIDE;
}

static unsigned sweep_node(enum fault kind) {
  unsigned calls = 0;
  for (int which = 0; which < TELLING_STEPS; ++which) {
    const struct step step = telling_step(which);
    calls += sweep_step(kind, &step, (unsigned)which);
  }
  return calls / TELLING_STEPS;
}

void scenario_item_fails_srun(void) {
  const unsigned met = sweep_srun(FAULT_GET_ITEM, &usual_step);
  CHECK(met >= 2, "only %u calls", met);
}

void scenario_item_fails_node(void) {
  const unsigned met = sweep_node(FAULT_GET_ITEM);
  CHECK(met >= 6, "only %u calls", met);
}

void scenario_getenv_fails(void) {
  const unsigned met = sweep_node(FAULT_GETENV);
  CHECK(met >= 3, "only %u calls", met);
}

void scenario_setenv_fails(void) {
  const unsigned met = sweep_node(FAULT_SETENV);
  CHECK(met >= 10, "only %u calls", met);
}

void scenario_unsetenv_fails(void) {
  const unsigned met = sweep_node(FAULT_UNSETENV);
  CHECK(met >= 1, "only %u calls", met);
}

void scenario_layout_fails(void) {
  const unsigned met = sweep_srun(FAULT_LAYOUT, &usual_step);
  CHECK(met >= 1, "only %u calls", met);
}

void scenario_address_fails(void) {
  /* Slurm has no address and the name service none either. */
  const unsigned met = sweep_srun(FAULT_ADDRESS, &usual_step);
  CHECK(met >= 1, "only %u calls", met);
  /* The name service does: its address is as good. */
  struct step step = usual_step;
  step.names_of_nodes = "n1=10.12.0.1 n2=10.12.0.2";
  fault_order((struct fault_order){FAULT_ADDRESS, 1, ANY_CALLBACK, ANY_TASK});
  struct submission srun;
  drive_srun(&srun, &step, NULL);
  CHECK(fault_was_met(), "slurm_conf_get_addr was not asked");
  CHECK(!srun.refused && *srun.said == '\0', "srun says: %s", srun.said);
  const char* const record = environment_get(&srun.environment, "SLURM_AMLDIST_LAUNCH");
  CHECK(record != NULL && strstr(record, ";addr=10.12.0.1;") != NULL, "the record is %s", record);
  submission_free(&srun);
}

void scenario_layout_defects(void) {
  struct step step = usual_step;
  for (int defect = NO_LAYOUT; defect < LAYOUT_DEFECTS; ++defect) {
    subject("defect %d", defect);
    step.layout_defect = (enum layout_defect)defect;
    struct submission srun;
    drive_srun(&srun, &step, NULL);
    expect_srun_refuses(&srun);
    submission_free(&srun);
  }
}

/* ---- memory ---- */

/* The usual step's option in so many letters that a std::string has to allocate for them. */
static const char long_option[] = "pytorch,launch=per-process";

/* Each task is refused or gets what is right; a line for each at most, since each meets the fault for itself. */
static void expect_refused_or_right(const struct node* node) {
  CHECK(text_lines(node->said) <= node->tasks, "too many lines: %s", node->said);
  expect_sentences(node->said, text_lines(node->said));
  for (uint32_t local = 0; local < node->tasks; ++local) {
    if (node->task[local].status == -1) continue;
    expect_pytorch_task(&node->task[local], 0, local);
  }
}

static unsigned sweep_node_memory(enum hook from, enum hook to) {
  if (HOST_IS_SANITIZED) skip("the sanitizer has its own malloc");
  unsigned calls = 0;
  struct environment sent = {0};
  good_launch(&sent);
  for (int hook = (int)from; hook <= (int)to; ++hook) {
    for (unsigned call = 1; call < MOST_CALLS; ++call) {
      subject("malloc %u in %s", call, hook_name((enum hook)hook));
      fault_order((struct fault_order){FAULT_MALLOC, call, hook, ANY_TASK});
      struct node node;
      drive_node(&node, &usual_step, 0, &sent, long_option);
      const bool met = fault_was_met();
      expect_refused_or_right(&node);
      /* The other nodes must not wait for what was not started for lack of memory: srun ends the step if it has heard
       * of it. */
      const bool refused_task = hook == HOOK_TASK_INIT && node.task[0].status == -1;
      CHECK(!refused_task || node.kills <= 1, "the step is ended %zu times", node.kills);
      node_free(&node);
      if (!met) break;
      ++calls;
    }
  }
  environment_clear(&sent);
  return calls;
}

void scenario_malloc_fails_node(void) {
  const unsigned met = sweep_node_memory(HOOK_INIT_POST_OPT, HOOK_EXIT);
  CHECK(met >= 20, "only %u allocations: are they the plugin's?", met);
}

void scenario_malloc_fails_node_start(void) {
  unsigned met = sweep_node_memory(HOOK_INIT, HOOK_INIT);
  met += sweep_node_memory(HOOK_OPTION, HOOK_OPTION);
  CHECK(met >= 1, "no allocation at all: are they the plugin's?");
}

void scenario_malloc_fails_srun(void) {
  if (HOST_IS_SANITIZED) skip("the sanitizer has its own malloc");
  struct step step = usual_step;
  step.option = long_option;
  for (unsigned call = 1; call < MOST_CALLS; ++call) {
    subject("malloc %u", call);
    fault_order((struct fault_order){FAULT_MALLOC, call, ANY_CALLBACK, ANY_TASK});
    struct submission srun;
    drive_srun(&srun, &step, NULL);
    const bool met = fault_was_met();
    const char* const record = environment_get(&srun.environment, "SLURM_AMLDIST_LAUNCH");
    const bool right =
        record != NULL && strcmp(record, "1;step=4242.0;addr=10.11.0.1;ports=20000-29999;map=(vector,(0,2,2))") == 0;
    CHECK(srun.refused || right, "srun launches with the record %s", record != NULL ? record : "(none)");
    /* The report variable may be what there was no memory for: the step runs without. */
    const bool listens = !met || environment_get(&srun.environment, REPORT_VARIABLE) != NULL;
    if (!srun.refused) expect_launch(&srun, listens);
    CHECK(!srun.refused || *srun.changes == '\0', "a refused step leaves %s", srun.changes);
    CHECK(!srun.refused || record == NULL, "a refused step has a launch record");
    if (srun.unknown_option) expect_sentences(srun.said, text_lines(srun.said)); /* Slurm has a line of its own */
    else expect_sentences(srun.said, srun.refused ? 1 : 0);
    submission_free(&srun);
    if (!met) break;
  }
}

/* ---- parts of a node ---- */

void scenario_one_task_fails(void) {
  static const enum fault kinds[] = {FAULT_SETENV, FAULT_GET_ITEM};
  enum { CALLS = 3 };
  struct environment sent = {0};
  good_launch(&sent);
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; ++i) {
    unsigned refusals = 0;
    for (unsigned call = 1; call <= CALLS; ++call) {
      subject("fault %d, call %u", (int)kinds[i], call);
      fault_order((struct fault_order){kinds[i], call, HOOK_TASK_INIT, 1});
      struct node node;
      drive_node(&node, &usual_step, 0, &sent, "pytorch");
      fault_was_met();
      CHECK(node.task[0].status == 0, "its neighbour does not start (%d)", node.task[0].status);
      if (node.task[1].status == -1) ++refusals;
      expect_sentences(node.said, node.task[1].status == -1 ? 1 : 0);
      node_free(&node);
    }
    CHECK(refusals > 0, "no fault is refused");
  }
  environment_clear(&sent);
}

/* By this node, unless srun has heard of the refusal: then srun does, once for all nodes. `told_late`: a task that was
 * not refused has ended before srun was told. */
static void expect_step_ended(const struct node* node, bool told_late) {
  const size_t least = machine_srun_is_silent ? 1 : 0;
  const size_t most = machine_srun_is_silent || told_late ? 1 : 0;
  CHECK(node->kills >= least && node->kills <= most, "the step is ended %zu times", node->kills);
  CHECK(node->sane_ids, "another step is ended: %u.%u", journal->killed_job[0], journal->killed_step[0]);
  journal->kills = 0;
}

static void refuse_in_each_way(void) {
  struct environment sent = {0};
  struct node node;
  good_launch(&sent);

  struct step step = usual_step;
  step.without_launch_record = 1;
  subject("no launch record");
  drive_node(&node, &step, 1, &sent, "pytorch");
  expect_node_refuses(&node);
  expect_step_ended(&node, false);
  node_free(&node);

  subject("bad option");
  drive_node(&node, &usual_step, 1, &sent, "pytorhc");
  expect_node_refuses(&node);
  expect_step_ended(&node, false);
  node_free(&node);

  subject("spank_get_item fails");
  fault_order((struct fault_order){FAULT_GET_ITEM, 4, ANY_CALLBACK, ANY_TASK});
  drive_node(&node, &usual_step, 1, &sent, "pytorch");
  CHECK(fault_was_met(), "the fault was not met");
  expect_node_refuses(&node);
  expect_step_ended(&node, false);
  node_free(&node);

  /* Where not even the step's own numbers can be had, no other step may be ended in its place. */
  for (unsigned call = 1; call <= 3; ++call) {
    subject("spank_get_item %u fails", call);
    fault_order((struct fault_order){FAULT_GET_ITEM, call, ANY_CALLBACK, ANY_TASK});
    drive_node(&node, &usual_step, 1, &sent, "pytorch");
    CHECK(fault_was_met(), "the fault was not met");
    CHECK(node.sane_ids, "another step is ended: %u.%u", journal->killed_job[0], journal->killed_step[0]);
    journal->kills = 0;
    node_free(&node);
  }

  subject("nothing wrong");
  drive_node(&node, &usual_step, 1, &sent, "pytorch");
  CHECK(node.kills == 0, "a good step is ended");
  node_free(&node);
  environment_clear(&sent);
}

static void refuse_each_task(void) {
  struct environment sent = {0};
  struct node node;
  good_launch(&sent);
  for (int task = ANY_TASK; task <= 1; ++task) {
    subject("task %d", task);
    fault_order((struct fault_order){FAULT_SETENV, 1, HOOK_TASK_INIT, task});
    drive_node(&node, &usual_step, 0, &sent, "pytorch");
    CHECK(fault_was_met(), "the fault was not met");
    expect_step_ended(&node, task == 1);
    node_free(&node);
  }
  environment_clear(&sent);
}

static void with_and_without_srun(void (*refuse)(void)) {
  machine_srun_is_silent = true;
  refuse();
  machine_srun_is_silent = false;
  refuse();
}

void scenario_refusal_ends_step(void) { with_and_without_srun(refuse_in_each_way); }

void scenario_task_refusal_ends_step(void) { with_and_without_srun(refuse_each_task); }

/* The clock itself is watched in every scenario (clock.c); these are the ways that a step can go, one after the other.
 */
void scenario_clock_jumps(void) {
  static const int ends[] = {0, 0, 7, 0};
  static const char* const options[] = {
      "pytorch", "pytorch,process_count=77", "mpi", "jax", "ray", "tensorflow,worker_count=3,parameter_server_count=1"};
  for (size_t i = 0; i < sizeof options / sizeof *options; ++i) {
    struct step step = usual_step;
    step.option = options[i];
    step.ends = i == 0 ? ends : NULL;
    step.workers = strncmp(options[i], "tensorflow", strlen("tensorflow")) == 0 ? 3 : 0;
    subject("%s", options[i]);
    struct run run;
    drive(&run, &step);
    run_free(&run);
  }
  CHECK(journal->wall_clock_readings == 0, "the wall clock is read %d times", journal->wall_clock_readings);
}
