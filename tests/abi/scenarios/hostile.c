/* Text of the user's environment that slurmstepd parses as root, before the user's program runs. */
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>

#include "expect.h"
#include "journal.h"
#include "plugin.h"
#include "sanitizers.h"
#include "scenarios.h"
#include "text.h"

#define GOOD_MAP ";map=(vector,(0,2,2))"
#define GOOD_PORTS ";ports=20000-29999"
#define GOOD_START "1;step=4242.0;addr=10.11.0.1"
static const char good_record[] = GOOD_START GOOD_PORTS GOOD_MAP;

static struct environment sent;

static void launch(void) {
  struct submission srun;
  drive_srun(&srun, &usual_step, NULL);
  environment_copy(&sent, &srun.environment);
  submission_free(&srun);
}

/* Processor time of this process and of the tasks that it has waited for. */
static long spent_milliseconds(void) {
  struct rusage own;
  struct rusage tasks;
  getrusage(RUSAGE_SELF, &own);
  getrusage(RUSAGE_CHILDREN, &tasks);
  const struct timeval times[] = {own.ru_utime, own.ru_stime, tasks.ru_utime, tasks.ru_stime};
  long milliseconds = 0;
  for (size_t i = 0; i < sizeof times / sizeof *times; ++i) {
    milliseconds += times[i].tv_sec * 1000 + times[i].tv_usec / 1000;
  }
  return milliseconds;
}

/* Drives a node and fails a check when that takes long: slurmstepd must not be held up. */
static void drive_quickly(struct node* node, const struct step* step, uint32_t index) {
  enum { LONGEST = HOST_IS_SANITIZED ? 10000 : 1500 };
  const long before = spent_milliseconds();
  drive_node(node, step, index, &sent, "pytorch");
  const long spent = spent_milliseconds() - before;
  CHECK(spent < LONGEST, "that took %ld ms", spent);
}

static void check_refused(const struct step* step) {
  for (uint32_t index = 0; index < 2; ++index) {
    struct node node;
    drive_quickly(&node, step, index);
    expect_node_refuses(&node);
    node_free(&node);
  }
}

void scenario_record_missing(void) {
  launch();
  struct step step = usual_step;
  step.without_launch_record = 1;
  check_refused(&step);
  environment_clear(&sent);
}

void scenario_record_truncated(void) {
  launch();
  struct step step = usual_step;
  for (size_t length = 0; length < sizeof good_record - 1; ++length) {
    char* const cut = text_format("%.*s", (int)length, good_record);
    subject("%s", cut);
    step.launch_record = cut;
    check_refused(&step);
    free(cut);
  }
  subject("%s", "");
  step.launch_record = good_record; /* the same way round, whole: the refusals above were for what was cut */
  struct node node;
  drive_quickly(&node, &step, 0);
  expect_pytorch_node(&node, 0);
  node_free(&node);
  environment_clear(&sent);
}

/* Where the processes meet is the user's to say anyway (MASTER_ADDR), so a changed address or port is as good; who they
 * are is not. */
static void check_changed(const struct step* step, bool meeting_point_changed) {
  for (uint32_t index = 0; index < 2; ++index) {
    struct node node;
    drive_quickly(&node, step, index);
    if (node.task[0].status != 0) {
      expect_node_refuses(&node);
    } else if (!meeting_point_changed) {
      expect_pytorch_node(&node, index);
    } else {
      for (uint32_t local = 0; local < node.tasks; ++local) {
        const struct task* const task = &node.task[local];
        CHECK(has_right_numbers(task, step, index, local), "wrong numbers");
        const char* const address = environment_get(&task->environment, "MASTER_ADDR");
        const char* const port = environment_get(&task->environment, "MASTER_PORT");
        CHECK(address != NULL && strspn(address, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") ==
                                     strlen(address),
              "MASTER_ADDR=%s", address);
        CHECK(port != NULL && strtol(port, NULL, 10) > 0 && strtol(port, NULL, 10) < 65536, "MASTER_PORT=%s", port);
      }
    }
    node_free(&node);
  }
}

void scenario_record_flipped(void) {
  launch();
  struct step step = usual_step;
  const size_t meeting_point = strlen("1;step=4242.0;addr=");
  const size_t meeting_point_end = strlen(GOOD_START GOOD_PORTS);
  static const char replacements[] = "0123459;,=().- x";
  /* Every byte in a few ways, others for each; a sanitizer makes a fork ten times as slow. */
  const size_t stride = HOST_IS_SANITIZED ? 23 : 3;
  for (size_t at = 0; at < sizeof good_record - 1; ++at) {
    for (size_t change = at % stride; change < 8 + sizeof replacements - 1; change += stride) {
      char record[sizeof good_record];
      memcpy(record, good_record, sizeof record);
      const char flipped = (char)((unsigned char)record[at] ^ (1U << (change & 7U)));
      record[at] = change < 8 ? flipped : replacements[change - 8];
      if (record[at] == '\0' || record[at] == good_record[at]) continue;
      subject("%s", record);
      step.launch_record = record;
      check_changed(&step, at >= meeting_point && at < meeting_point_end);
    }
  }
  environment_clear(&sent);
}

void scenario_record_absurd(void) {
  launch();
  static const char* const absurd[] = {
      "", "1", ";", ";;;;", "=", "%s%n%n%n", "\n", GOOD_START, "2" GOOD_PORTS, GOOD_START GOOD_PORTS,
      /* other steps, other versions, fields twice, in another order, too many */
      "1;step=4242.1;addr=10.11.0.1" GOOD_PORTS GOOD_MAP, "1;step=4243.0;addr=10.11.0.1" GOOD_PORTS GOOD_MAP,
      "1;step=0.0;addr=10.11.0.1" GOOD_PORTS GOOD_MAP, "1;step=4242;addr=10.11.0.1" GOOD_PORTS GOOD_MAP,
      "1;step=-1.-1;addr=10.11.0.1" GOOD_PORTS GOOD_MAP, "1;step=4294971538.0;addr=10.11.0.1" GOOD_PORTS GOOD_MAP,
      "2;step=4242.0;addr=10.11.0.1" GOOD_PORTS GOOD_MAP, "01;step=4242.0;addr=10.11.0.1" GOOD_PORTS GOOD_MAP,
      GOOD_START GOOD_PORTS GOOD_PORTS GOOD_MAP, GOOD_START GOOD_PORTS GOOD_MAP ";", GOOD_START GOOD_MAP GOOD_PORTS,
      GOOD_START GOOD_PORTS GOOD_MAP GOOD_MAP, GOOD_START GOOD_PORTS GOOD_MAP ";x=1",
      " " GOOD_START GOOD_PORTS GOOD_MAP,
      /* addresses */
      "1;step=4242.0;addr=" GOOD_PORTS GOOD_MAP, "1;step=4242.0;addr=a b" GOOD_PORTS GOOD_MAP,
      "1;step=4242.0;addr=::1" GOOD_PORTS GOOD_MAP, "1;step=4242.0;addr=$(reboot)" GOOD_PORTS GOOD_MAP,
      "1;step=4242.0;addr=h\nost" GOOD_PORTS GOOD_MAP, "1;step=4242.0;addr=\xff" GOOD_PORTS GOOD_MAP,
      /* ports */
      GOOD_START ";ports=" GOOD_MAP, GOOD_START ";ports=0" GOOD_MAP, GOOD_START ";ports=0-0" GOOD_MAP,
      GOOD_START ";ports=65536" GOOD_MAP, GOOD_START ";ports=2-1" GOOD_MAP, GOOD_START ";ports=1-99999999999" GOOD_MAP,
      GOOD_START ";ports=-" GOOD_MAP, GOOD_START ";ports=," GOOD_MAP, GOOD_START ";ports=1-" GOOD_MAP,
      /* maps: of other shapes, endless, overflowing, with tasks elsewhere or nowhere */
      GOOD_START GOOD_PORTS ";map=", GOOD_START GOOD_PORTS ";map=()", GOOD_START GOOD_PORTS ";map=(vector)",
      GOOD_START GOOD_PORTS ";map=(vector,)", GOOD_START GOOD_PORTS ";map=(vector,())",
      GOOD_START GOOD_PORTS ";map=(vector,(0,2,2)", GOOD_START GOOD_PORTS ";map=(vector,(0,2,2)))",
      GOOD_START GOOD_PORTS ";map=(vector,(0,0,0))", GOOD_START GOOD_PORTS ";map=(vector,(0,2,0))",
      GOOD_START GOOD_PORTS ";map=(vector,(0,1,2))", GOOD_START GOOD_PORTS ";map=(vector,(0,2,1))",
      GOOD_START GOOD_PORTS ";map=(vector,(1,2,2))", GOOD_START GOOD_PORTS ";map=(vector,(0,4,1))",
      GOOD_START GOOD_PORTS ";map=(vector,(0,2,3))", GOOD_START GOOD_PORTS ";map=(vector,(1,1,2),(0,1,2))",
      GOOD_START GOOD_PORTS ";map=(vector,(0,1,4))", GOOD_START GOOD_PORTS ";map=(vector,(0,1,1))",
      GOOD_START GOOD_PORTS ";map=(vector,(0,1048576,1048576))", GOOD_START GOOD_PORTS ";map=(vector,(4294967295,1,4))",
      GOOD_START GOOD_PORTS ";map=(vector,(0,65536,65536))", GOOD_START GOOD_PORTS ";map=(vector,(0,2,2147483648))",
      GOOD_START GOOD_PORTS ";map=(vector,(-1,2,2))", GOOD_START GOOD_PORTS ";map=(vector,(0,2,2),)",
      GOOD_START GOOD_PORTS ";map=(vector,(0,2,1),(0,1,1))", GOOD_START GOOD_PORTS ";map=(VECTOR,(0,2,2))"};
  struct step step = usual_step;
  for (size_t i = 0; i < sizeof absurd / sizeof *absurd; ++i) {
    subject("%s", absurd[i]);
    step.launch_record = absurd[i];
    check_refused(&step);
  }
  /* Up to what fits into one variable. */
  static const struct {
    const char* start;
    const char* piece;
    size_t count;
    const char* end;
  } long_ones[] = {{"", "x", 120000, ""},
                   {"", ";", 120000, ""},
                   {GOOD_START GOOD_PORTS ";map=(vector,", "(0,1,1),(1,1,1),", 7500, "(0,1,1))"},
                   {GOOD_START GOOD_PORTS ";map=(vector,", "(0,1,0),", 15000, "(0,2,2))"},
                   {GOOD_START GOOD_PORTS ";map=", "(", 120000, ""},
                   {GOOD_START GOOD_PORTS ";map=(vector,(", "9", 120000, ",1,1))"},
                   {"1;step=4242.0;addr=", "h", 120000, GOOD_PORTS GOOD_MAP},
                   {"1;step=4242.0;addr=", "h", 254, GOOD_PORTS GOOD_MAP},
                   {GOOD_START ";ports=0", ",20000-29999", 10000, GOOD_MAP},
                   {"1;step=", "4", 120000, ".0;addr=10.11.0.1" GOOD_PORTS GOOD_MAP}};
  for (size_t i = 0; i < sizeof long_ones / sizeof *long_ones; ++i) {
    char* const middle = text_repeat(long_ones[i].piece, long_ones[i].count);
    char* const record = text_format("%s%s%s", long_ones[i].start, middle, long_ones[i].end);
    subject("long record %zu", i);
    step.launch_record = record;
    check_refused(&step);
    free(record);
    free(middle);
  }
  environment_clear(&sent);
}

void scenario_nodelist_hostile(void) {
  launch();
  static const char* const hostile[] = {
      "",
      ",",
      ",,",
      "n",
      "n1",
      "n1,n2,n3",
      "n[1-3]",
      "n[1-2",
      "n1-2]",
      "n]1-2[",
      "n[[1-2]]",
      "n[",
      "n[]",
      "[]",
      "[",
      "]",
      "n[1-2],",
      ",n[1-2]",
      "n[1-2],,n3",
      "n[1-99999999999]",
      "n[0-1048576]",
      "n[1-18446744073709551616]",
      "n[99999999999999999999-1]",
      "n[2-1]",
      "n[-1-2]",
      "n[1--2]",
      "n[1-2-3]",
      "n[a-b]",
      "n[1-2,]",
      "n[,1-2]",
      "n[1;2]",
      "n[1-1000][1-1000][1-1000]",
      "n[1-2][1-2][1-2][1-2][1-2][1-2][1-2][1-2][1-2][1-2][1-2][1-2][1-2][1-2][1-2][1-2][1-2][1-2][1-2][1-2]",
      "n 1,n2",
      "n1,n\n2",
      "n1,\"n2\"",
      "n1,n2;reboot",
      "%s%n%n%n",
      "../../etc/passwd,n2",
      "n1,n\xffx",
      "n1, n2"};
  struct step step = usual_step;
  for (size_t i = 0; i < sizeof hostile / sizeof *hostile; ++i) {
    subject("%s", hostile[i]);
    step.hostile_nodelist = hostile[i];
    check_refused(&step);
  }
  static const struct {
    const char* piece;
    size_t count;
    const char* end;
  } long_ones[] = {{"n1,", 43000, "n1"}, {"[", 130000, ""}, {"n[1-2]", 21000, ""}, {"n[1-1],", 18000, "n2"},
                   {",", 130000, ""},    {"x", 130000, ""}, {"n[1", 43000, ""},    {"n[1-9999999],", 10000, "n2"}};
  for (size_t i = 0; i < sizeof long_ones / sizeof *long_ones; ++i) {
    char* const start = text_repeat(long_ones[i].piece, long_ones[i].count);
    char* const list = text_format("%s%s", start, long_ones[i].end);
    subject("long list %zu", i);
    step.hostile_nodelist = list;
    check_refused(&step);
    free(list);
    free(start);
  }
  environment_clear(&sent);
}

/* More tasks than SPANK knows of is how a node tells a heterogeneous step: it looks for the other components. */
void scenario_step_size_hostile(void) {
  enum { MOST_REQUESTS = 1, MOST_QUESTIONS = 20 }; /* of a node */
  launch();
  static const char* const sizes[] = {"5",
                                      "4096",
                                      "16777216",
                                      "4294967295",
                                      "4294967295\nSLURM_HET_SIZE=4294967295",
                                      "9\nSLURM_HET_SIZE=128\nSLURM_JOB_ID_HET_GROUP_0=4294967290",
                                      "9\nSLURM_HET_SIZE=2\nSLURM_JOB_ID_HET_GROUP_0=1"};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
    subject("%s", sizes[i]);
    char* const variables = text_format("SLURM_STEP_NUM_TASKS=%s\n", sizes[i]);
    struct step step = usual_step;
    step.node_variables = variables;
    journal->layout_requests = 0;
    journal->job_requests = 0;
    journal->questions = 0;
    check_refused(&step);
    CHECK(journal->layout_requests <= 2 * MOST_REQUESTS && journal->job_requests <= 2 * MOST_REQUESTS,
          "slurmctld is asked for %d layouts and %d jobs", journal->layout_requests, journal->job_requests);
    CHECK(journal->questions <= 2 * MOST_QUESTIONS, "srun is asked %d times", journal->questions);
    free(variables);
  }
  /* Text that is not a number, and numbers that are too small, change nothing. */
  static const char* const odd[] = {"0", "1", "4", "-1", "", "four", "18446744073709551616", "4 "};
  for (size_t i = 0; i < sizeof odd / sizeof *odd; ++i) {
    subject("%s", odd[i]);
    char* const variables = text_format("SLURM_STEP_NUM_TASKS=%s\n", odd[i]);
    struct step step = usual_step;
    step.node_variables = variables;
    struct node node;
    drive_quickly(&node, &step, 1);
    expect_pytorch_node(&node, 1);
    node_free(&node);
    free(variables);
  }
  environment_clear(&sent);
}

void scenario_long_variables(void) {
  /* Long ones that mean nothing, in front of the others. */
  char* const long_text = text_repeat("0123456789", 12000);
  char* const user = text_format("TRAINING_NOTES=%s", long_text);
  char* const ports = text_format("SLURM_STEP_RESV_PORTS=%s", long_text);
  const char* const own[] = {user, NULL};
  struct step step = usual_step;
  step.user_environment = own;
  step.node_variables = ports;
  struct run run;
  drive(&run, &step);
  expect_pytorch(&run);
  run_free(&run);
  free(long_text);
  free(user);
  free(ports);

  /* One whose end matters: what says that MASTER_ADDR is stale. */
  char* const values = text_repeat("SOME_VARIABLE=value ", 350);
  char* const stamp = text_format("AMLDIST_STAMP=4242.7 %sMASTER_ADDR=10.11.0.9 MASTER_PORT=20123", values);
  const char* const left_behind[] = {stamp, "MASTER_ADDR=10.11.0.9", "MASTER_PORT=20123", NULL};
  step = usual_step;
  step.user_environment = left_behind;
  drive(&run, &step);
  CHECK(strstr(run.srun.changes, "-AMLDIST_STAMP\n") != NULL && strstr(run.srun.changes, "-MASTER_ADDR\n") != NULL &&
            strstr(run.srun.changes, "-MASTER_PORT\n") != NULL,
        "srun keeps what an outer step left: its environment changes by %s", run.srun.changes);
  for (uint32_t node = 0; node < run.nodes; ++node) expect_pytorch_node(&run.node[node], node);
  run_free(&run);
  free(values);
  free(stamp);
}

static const char* task_variable(const struct run* run, const char* name) {
  return run->nodes > 0 ? environment_get(&run->node[0].task[0].environment, name) : NULL;
}

void scenario_bad_secret(void) {
  static const char* const arguments[] = {"secret=require", NULL};
  struct step step = usual_step;
  step.node_variables = SECRET_VARIABLE "=hunter2\n";
  struct run run;
  drive(&run, &step);
  CHECK(run.nodes == 2, "srun does not launch");
  CHECK(task_variable(&run, SECRET_OF_TASK) == NULL, "the task gets %s", task_variable(&run, SECRET_OF_TASK));
  run_free(&run);
  subject("secret=require");
  step.arguments = arguments;
  drive(&run, &step);
  const char* const policy = task_variable(&run, "AMLDIST_SECRET");
  CHECK(policy != NULL && strcmp(policy, "require") == 0, "AMLDIST_SECRET is %s", policy);
  run_free(&run);
}

/* Without srun's answer the components are those of the step's own heterogeneous job, whatever the environment says. */
void scenario_het_group_hostile(void) {
  enum { LEADER = 4242, COMPONENTS = 2 };
  launch();
  static const char* const claims[] = {"", "SLURM_HET_SIZE=128\nSLURM_JOB_ID_HET_GROUP_0=9000\n",
                                       "SLURM_HET_SIZE=1\nSLURM_JOB_ID_PACK_GROUP_0=4200\n"};
  for (size_t i = 0; i < sizeof claims / sizeof *claims; ++i) {
    for (uint32_t job_id = LEADER; job_id < LEADER + COMPONENTS; ++job_id) {
      subject("job %u: %s", job_id, claims[i]);
      char* const variables = text_format("SLURM_STEP_NUM_TASKS=8\n%s", claims[i]);
      struct step step = usual_step;
      step.node_variables = variables;
      step.job_id = job_id;
      step.het_job.leader = LEADER;
      step.het_job.components = COMPONENTS;
      journal->layout_requests = 0;
      journal->job_requests = 0;
      struct node node;
      drive_quickly(&node, &step, 1);
      for (uint32_t local = 0; local < node.tasks; ++local) {
        CHECK(node.task[local].status == 0, "a task does not start: %s", node.said);
        const char* const size = environment_get(&node.task[local].environment, "WORLD_SIZE");
        CHECK(size != NULL && strcmp(size, "8") == 0, "WORLD_SIZE=%s", size != NULL ? size : "(unset)");
      }
      CHECK(journal->layout_requests == 1 + COMPONENTS && journal->job_requests == 2,
            "slurmctld is asked for %d layouts and %d jobs", journal->layout_requests, journal->job_requests);
      node_free(&node);
      free(variables);
    }
  }
  environment_clear(&sent);
}
