/* Golden environments: what every task of a step gets, to the letter. */
#include <stdlib.h>
#include <string.h>

#include "expect.h"
#include "journal.h"
#include "plugin.h"
#include "scenarios.h"
#include "text.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static void check_layout(const struct step* step, const struct seating* seating) {
  struct run run;
  drive(&run, step);
  const char* const record = environment_get(&run.srun.environment, "SLURM_AMLDIST_LAUNCH");
  char* const expected = text_format("1;step=4242.0;addr=%s;ports=20000-29999;map=%s", seating->master, seating->map);
  CHECK(record != NULL && strcmp(record, expected) == 0, "the launch record is %s instead of %s",
        record != NULL ? record : "missing", expected);
  free(expected);
  expect_pytorch(&run, seating);
  run_free(&run);
}

void scenario_block(void) { check_layout(&usual_step, &usual_seating); }

void scenario_cyclic(void) {
  static const struct seat seats[] = {{0, 0, 0, 2, 0}, {0, 1, 2, 2, 0}, {1, 0, 1, 2, 1}, {1, 1, 3, 2, 1}};
  static const struct seating seating = {seats, COUNT(seats), 2, 2, "10.11.0.1", "(vector,(0,2,1))"};
  struct step step = usual_step;
  step.ranks = "0,2/1,3";
  step.distribution = "cyclic";
  check_layout(&step, &seating);
}

void scenario_plane(void) {
  static const struct seat seats[] = {{0, 0, 0, 5, 0}, {0, 1, 1, 5, 0}, {0, 2, 4, 5, 0}, {0, 3, 5, 5, 0},
                                      {0, 4, 6, 5, 0}, {1, 0, 2, 1, 1}, {2, 0, 3, 1, 2}};
  static const struct seating seating = {seats, COUNT(seats), 3, 0, "10.11.0.1", "(vector,(0,1,2),(1,2,1),(0,1,3))"};
  struct step step = usual_step;
  step.ranks = "0,1,4,5,6/2/3";
  step.nodelist = "n[1-3]";
  step.distribution = "plane";
  check_layout(&step, &seating);
}

void scenario_host_file(void) {
  /* Hosts n3, n1, n3, n2: the first node of the list is not the first of the ranks. */
  static const struct seat seats[] = {{0, 0, 1, 1, 1}, {1, 0, 3, 1, 2}, {2, 0, 0, 2, 0}, {2, 1, 2, 2, 0}};
  static const struct seating seating = {seats, COUNT(seats), 3,
                                         0,     "10.11.0.3",  "(vector,(2,1,1),(0,1,1),(2,1,1),(1,1,1))"};
  struct step step = usual_step;
  step.ranks = "1/3/0,2";
  step.nodelist = "n[1-3]";
  step.distribution = "arbitrary";
  check_layout(&step, &seating);
}

void scenario_uneven(void) {
  static const struct seat seats[] = {{0, 0, 0, 3, 0}, {0, 1, 1, 3, 0}, {0, 2, 2, 3, 0}, {1, 0, 3, 1, 1}};
  static const struct seating seating = {seats, COUNT(seats), 2, 0, "10.11.0.1", "(vector,(0,1,3),(1,1,1))"};
  struct step step = usual_step;
  step.ranks = "0,1,2/3";
  check_layout(&step, &seating);

  /* A number that the batch job's --ntasks-per-node left behind is wrong here. */
  static const char* const inherited[] = {"SLURM_NTASKS_PER_NODE=2", NULL};
  step.user_environment = inherited;
  struct run run;
  drive(&run, &step);
  for (uint32_t node = 0; node < run.nodes; ++node) {
    const char* const value = environment_get(&run.node[node].task[0].environment, "SLURM_NTASKS_PER_NODE");
    CHECK(value == NULL, "SLURM_NTASKS_PER_NODE is still %s", value);
  }
  run_free(&run);
}

void scenario_one_node(void) {
  static const struct seat seats[] = {{0, 0, 0, 4, 0}, {0, 1, 1, 4, 0}, {0, 2, 2, 4, 0}, {0, 3, 3, 4, 0}};
  static const struct seating seating = {seats, COUNT(seats), 1, 4, "10.11.0.1", "(vector,(0,1,4))"};
  struct step step = usual_step;
  step.ranks = "0,1,2,3";
  step.nodelist = "n1";
  check_layout(&step, &seating);
}

void scenario_one_task(void) {
  static const struct seat seats[] = {{0, 0, 0, 1, 0}};
  static const struct seating seating = {seats, COUNT(seats), 1, 1, "10.11.0.1", "(vector,(0,1,1))"};
  struct step step = usual_step;
  step.ranks = "0";
  step.nodelist = "n1";
  check_layout(&step, &seating);
}

/* ---- other kinds ---- */

#define ADDRESS "10.11.0.1"
#define MEETING_POINT(kind, map)                                                                     \
  "AZ_BATCH_MASTER_NODE=" ADDRESS ":25940\nMASTER_ADDR=" ADDRESS                                     \
  "\nMASTER_PORT=25940\nAMLDIST_STAMP=4242.0 kind=" kind " nodes=2 map=" map " MASTER_ADDR=" ADDRESS \
  " MASTER_PORT=25940\n-SLURM_AMLDIST_LAUNCH\n-SLURM_AMLDIST_REPORT\n"

/* Checks node 1's task with local id 1, rank 3 of the usual step, and that nobody said anything. */
static void check_rank_3(const struct step* step, const char* changes) {
  struct run run;
  drive(&run, step);
  CHECK(!run.srun.refused && *run.srun.said == '\0', "srun says: %s", run.srun.said);
  CHECK(run.nodes == 2, "srun does not launch");
  for (uint32_t node = 0; node < run.nodes; ++node) {
    CHECK(*run.node[node].said == '\0', "node %u says: %s", node, run.node[node].said);
  }
  if (run.nodes == 2) expect_changes(&run.node[1].task[run.node[1].tasks - 1], changes);
  run_free(&run);
}

void scenario_per_node(void) {
  struct step step = usual_step;
  step.ranks = "0/1";
  step.option = "pytorch,launch=per-node,nproc_per_node=4";
  static const char hidden[] =
      "-PMIX_NAMESPACE\n-PMIX_RANK\n-SLURM_NPROCS\n-SLURM_NTASKS\n-SLURM_STEP_ID\n"
      "AMLDIST_HIDDEN_PMIX_NAMESPACE=slurm.pmix.4242.0\nAMLDIST_HIDDEN_PMIX_RANK=1\n"
      "AMLDIST_HIDDEN_SLURM_NPROCS=2\nAMLDIST_HIDDEN_SLURM_NTASKS=2\nAMLDIST_HIDDEN_SLURM_STEP_ID=0\n";
  static const char shown[] =
      MEETING_POINT("pytorch", "(vector,(0,2,1))") "NODE_RANK=1\nPET_MASTER_ADDR=" ADDRESS
                                                   "\nPET_MASTER_PORT=25940\nPET_NNODES=2\n"
                                                   "PET_NODE_RANK=1\nPET_NPROC_PER_NODE=4\nSLURM_NTASKS_PER_NODE=1\n";
  char* const both = text_format("%s%s", hidden, shown);
  check_rank_3(&step, both);
  free(both);
  step.option = "pytorch,launch=per-node,nproc_per_node=4,slurm_env=keep";
  check_rank_3(&step, shown);
}

void scenario_mpi(void) {
  struct step step = usual_step;
  step.option = "mpi";
  check_rank_3(&step, MEETING_POINT("mpi", "(vector,(0,2,2))")
               "RANK=3\nWORLD_SIZE=4\nLOCAL_RANK=1\nLOCAL_WORLD_SIZE=2\nNODE_RANK=1\n"
               "OMPI_COMM_WORLD_RANK=3\nOMPI_COMM_WORLD_SIZE=4\nOMPI_COMM_WORLD_LOCAL_RANK=1\n"
               "OMPI_COMM_WORLD_LOCAL_SIZE=2\nMASTER_ADDRESS=" ADDRESS "\nAZ_BATCHAI_MPI_MASTER_NODE=" ADDRESS
               "\n"
               "AZ_BATCH_HOST_LIST=n1,n2\nAZUREML_NODE_COUNT=2\nAZUREML_CR_NODE_RANK=1\nSLURM_NTASKS_PER_NODE=2\n");
}

void scenario_tensorflow(void) {
  struct step step = usual_step;
  step.option = "tensorflow,worker_count=3,parameter_server_count=1";
  step.workers = 3;
  check_rank_3(&step, MEETING_POINT("tensorflow", "(vector,(0,2,2))")
               "RANK=3\nWORLD_SIZE=4\nLOCAL_RANK=1\nLOCAL_WORLD_SIZE=2\nNODE_RANK=1\n"
               "SLURM_NTASKS_PER_NODE=2\n"
               "TF_CONFIG={\"cluster\":{\"worker\":[\"" ADDRESS
               ":25940\",\"" ADDRESS ":25941\",\"10.11.0.2:25940\"],"
               "\"ps\":[\"10.11.0.2:25941\"]},\"task\":{\"type\":\"ps\",\"index\":0},\"environment\":\"cloud\"}\n");
}

void scenario_jax(void) {
  struct step step = usual_step;
  step.option = "jax";
  step.node_variables = "CUDA_VISIBLE_DEVICES=3\n";
  check_rank_3(&step, MEETING_POINT("jax", "(vector,(0,2,2))")
               "RANK=3\nWORLD_SIZE=4\nLOCAL_RANK=1\nLOCAL_WORLD_SIZE=2\nNODE_RANK=1\n"
               "JAX_COORDINATOR_ADDRESS=" ADDRESS ":25940\nJAX_LOCAL_DEVICE_IDS=0\nSLURM_NTASKS_PER_NODE=2\n");
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
  expect_pytorch(&run, &usual_seating);
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
  expect_pytorch(&run, &usual_seating);
  run_free(&run);
  free(values);
  free(stamp);
}

/* ---- the user's own values ---- */

/* Lines that the whole step says, with the meeting point that every task must have. */
static void check_meeting_point(const struct step* step, size_t lines, const char* address, const char* port) {
  struct run run;
  drive(&run, step);
  CHECK(!run.srun.refused, "srun refuses: %s", run.srun.said);
  char* said = text_format("%s", run.srun.said);
  char* const both = text_format("%s:%s", address, port);
  for (uint32_t node = 0; node < run.nodes; ++node) {
    said = text_append(said, "%s", run.node[node].said);
    for (uint32_t local = 0; local < run.node[node].tasks; ++local) {
      const struct task* const task = &run.node[node].task[local];
      const char* const names[] = {"MASTER_ADDR", "MASTER_PORT", "AZ_BATCH_MASTER_NODE"};
      const char* const expected[] = {address, port, both};
      for (size_t i = 0; i < COUNT(names); ++i) {
        const char* const value = environment_get(&task->environment, names[i]);
        CHECK(value != NULL && strcmp(value, expected[i]) == 0, "%s is %s instead of %s", names[i],
              value != NULL ? value : "not set", expected[i]);
      }
      CHECK(has_right_numbers(task, &usual_seating, seat_of(&usual_seating, node, local)), "wrong numbers");
    }
  }
  expect_sentences(said, lines);
  free(said);
  free(both);
  run_free(&run);
}

void scenario_own_master(void) {
  struct step step = usual_step;
  static const char* const both[] = {"MASTER_ADDR=my.host.example", "MASTER_PORT=12345", NULL};
  static const char* const port[] = {"MASTER_PORT=12345", NULL};
  static const char* const address[] = {"MASTER_ADDR=my.host.example", NULL};
  static const char* const empty[] = {"MASTER_ADDR=", "MASTER_PORT=", NULL};
  step.user_environment = both;
  check_meeting_point(&step, 1, "my.host.example", "12345");
  step.user_environment = port;
  check_meeting_point(&step, 1, ADDRESS, "12345");
  step.user_environment = address;
  check_meeting_point(&step, 1, "my.host.example", MASTER_PORT_OF_STEP);
  step.user_environment = empty;
  check_meeting_point(&step, 0, ADDRESS, MASTER_PORT_OF_STEP);
  /* Rank 0 speaks for the step wherever it runs, and whatever its local id is. */
  step.user_environment = both;
  step.ranks = "2,3/0,1";
  struct run run;
  drive(&run, &step);
  CHECK(run.nodes == 2, "srun does not launch");
  if (run.nodes == 2) {
    expect_sentences(run.node[0].said, 0);
    expect_sentences(run.node[1].said, 1);
  }
  run_free(&run);
}

void scenario_own_master_and_key(void) {
  static const char* const both[] = {"MASTER_ADDR=my.host.example", "MASTER_PORT=12345", NULL};
  struct step step = usual_step;
  step.user_environment = both;
  step.option = "pytorch,master_addr=10.9.9.9,master_port=23456";
  check_meeting_point(&step, 0, "10.9.9.9", "23456");
  step.option = "pytorch,master_addr=name,master_port=23456";
  check_meeting_point(&step, 0, "n1", "23456");
  step.option = "pytorch,master_addr=ip,master_port=23456";
  check_meeting_point(&step, 0, ADDRESS, "23456");
}

void scenario_own_master_bad(void) {
  static const char* const bad[] = {"MASTER_PORT=0",   "MASTER_PORT=65536",       "MASTER_PORT=http",
                                    "MASTER_PORT=-1",  "MASTER_PORT=12 ",         "MASTER_ADDR=a b",
                                    "MASTER_ADDR=::1", "MASTER_ADDR=%s%n%n%n",    "MASTER_ADDR=h\nost",
                                    "MASTER_ADDR=-x",  "MASTER_ADDR=\033[31mred", "MASTER_ADDR=h\xc3\xb6st"};
  struct step step = usual_step;
  for (size_t i = 0; i < COUNT(bad); ++i) {
    subject("%s", bad[i]);
    const char* const own[] = {bad[i], NULL};
    step.user_environment = own;
    struct run run;
    drive(&run, &step);
    expect_refused(&run);
    run_free(&run);
  }
}

void scenario_stale_master(void) {
  static const char* const left_behind[] = {"AMLDIST_STAMP=4242.7 MASTER_ADDR=10.11.0.9 MASTER_PORT=20123",
                                            "MASTER_ADDR=10.11.0.9",
                                            "MASTER_PORT=20123",
                                            "AZ_BATCH_MASTER_NODE=10.11.0.9:20123",
                                            "RANK=31",
                                            "WORLD_SIZE=64",
                                            "LOCAL_RANK=7",
                                            "NODE_RANK=3",
                                            NULL};
  struct step step = usual_step;
  step.user_environment = left_behind;
  check_meeting_point(&step, 0, ADDRESS, MASTER_PORT_OF_STEP);
  /* What the user changed since is the user's. */
  static const char* const changed[] = {"AMLDIST_STAMP=4242.7 MASTER_ADDR=10.11.0.9 MASTER_PORT=20123",
                                        "MASTER_ADDR=10.11.0.9", "MASTER_PORT=20124", NULL};
  step.user_environment = changed;
  check_meeting_point(&step, 1, ADDRESS, "20124");
  /* Another kind's names go as well. */
  static const char* const other_kind[] = {"AMLDIST_STAMP=4242.7 MASTER_ADDR=10.11.0.9 MASTER_PORT=20123",
                                           "TF_CONFIG={}",
                                           "OMPI_COMM_WORLD_RANK=5",
                                           "PET_NNODES=9",
                                           "JAX_COORDINATOR_ADDRESS=x:1",
                                           NULL};
  step.user_environment = other_kind;
  struct run run;
  drive(&run, &step);
  for (uint32_t node = 0; node < run.nodes; ++node) {
    for (const char* const* name = other_kind + 1; *name != NULL; ++name) {
      const char* const value = environment_get(&run.node[node].task[0].environment, *name);
      CHECK(value == NULL, "%s is left behind", *name);
    }
  }
  run_free(&run);
}

void scenario_reserved_ports(void) {
  struct step step = usual_step;
  step.node_variables = "SLURM_STEP_RESV_PORTS=12001-12003\n";
  check_meeting_point(&step, 0, ADDRESS, "12001");
}

/* ---- the step's secret ---- */

#define OUTER_SECRET "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

/* The secret of a run, which all its tasks have. The caller frees it. */
static char* secret_of(const struct step* step) {
  struct run run;
  drive(&run, step);
  CHECK(run.nodes == 2, "srun does not launch: %s", run.srun.said);
  char* const secret = text_format("%s", environment_get(&run.srun.environment, SECRET_VARIABLE));
  CHECK(strlen(secret) == 64, "srun's secret is %s", secret);
  CHECK(strstr(run.srun.said, secret) == NULL, "srun tells it: %s", run.srun.said);
  for (uint32_t node = 0; node < run.nodes; ++node) {
    CHECK(strstr(run.node[node].said, secret) == NULL, "node %u tells it: %s", node, run.node[node].said);
    for (uint32_t local = 0; local < run.node[node].tasks; ++local) {
      const struct environment* const environment = &run.node[node].task[local].environment;
      const char* const has = environment_get(environment, SECRET_OF_TASK);
      CHECK(has != NULL && strcmp(has, secret) == 0, "task %u of node %u has %s", local, node, has);
      CHECK(environment_get(environment, SECRET_VARIABLE) == NULL, "task %u of node %u has srun's", local, node);
    }
  }
  run_free(&run);
  return secret;
}

static void check_no_secret(const struct step* step) {
  struct run run;
  drive(&run, step);
  CHECK(environment_get(&run.srun.environment, SECRET_OF_TASK) == NULL, "srun passes the outer step's secret on");
  for (uint32_t node = 0; node < run.nodes; ++node) {
    for (uint32_t local = 0; local < run.node[node].tasks; ++local) {
      const struct environment* const environment = &run.node[node].task[local].environment;
      CHECK(environment_get(environment, SECRET_OF_TASK) == NULL, "task %u of node %u has a secret", local, node);
    }
  }
  run_free(&run);
}

void scenario_secret(void) {
  static const char* const inherited[] = {SECRET_OF_TASK "=" OUTER_SECRET, SECRET_VARIABLE "=" OUTER_SECRET, NULL};
  struct step step = usual_step;
  step.option = "pytorch,verbose";
  char* const one = secret_of(&step);
  char* const other = secret_of(&step);
  CHECK(strcmp(one, other) != 0, "two steps have one secret");
  subject("an outer step's is replaced");
  step.user_environment = inherited;
  char* const inner = secret_of(&step);
  CHECK(strcmp(inner, OUTER_SECRET) != 0, "it is the outer step's");
  subject("none");
  step.option = "none";
  check_no_secret(&step);
  subject("no option");
  step.option = NULL;
  check_no_secret(&step);
  subject("what is no secret is not passed on");
  step.option = "pytorch";
  step.node_variables = SECRET_VARIABLE "=hunter2\n";
  check_no_secret(&step);
  subject("a site that requires it");
  static const char* const arguments[] = {"secret=require", NULL};
  step = usual_step;
  step.arguments = arguments;
  struct run run;
  drive(&run, &step);
  const char* const policy = environment_get(&run.node[0].task[0].environment, "AMLDIST_SECRET");
  CHECK(policy != NULL && strcmp(policy, "require") == 0, "AMLDIST_SECRET is %s", policy);
  run_free(&run);
  free(one);
  free(other);
  free(inner);
}
