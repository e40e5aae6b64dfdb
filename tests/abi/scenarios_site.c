/* What the machine and the site have to say: ports that others hold, names that lead nowhere, partitions with a kind.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "expect.h"
#include "fake_machine.h"
#include "journal.h"
#include "scenarios.h"
#include "text.h"

/* ---- rank 0's port ---- */

enum { PORT_OF_STEP = 25940 };

void scenario_port_lease(void) {
  struct run run;
  drive(&run, &usual_step);
  CHECK(run.nodes == 2, "srun does not launch");
  if (run.nodes == 2) {
    CHECK(run.node[0].leases == 1, "rank 0's node holds %zu leases", run.node[0].leases);
    CHECK(run.node[1].leases == 0, "another node holds %zu leases", run.node[1].leases);
  }
  run_free(&run);
  /* TensorFlow's tasks listen on a port each. */
  struct step step = usual_step;
  step.option = "tensorflow";
  drive(&run, &step);
  for (uint32_t node = 0; node < run.nodes; ++node) {
    CHECK(run.node[node].leases == 2, "node %u holds %zu leases", node, run.node[node].leases);
  }
  run_free(&run);
  /* A master that the user runs elsewhere is none of this machine's. */
  static const char* const own[] = {"MASTER_ADDR=my.host.example", NULL};
  step = usual_step;
  step.user_environment = own;
  machine_busy_port = PORT_OF_STEP;
  drive(&run, &step);
  CHECK(run.nodes == 2 && run.node[0].leases == 0, "a lease is held for another machine");
  CHECK(run.nodes == 2 && run.node[0].task[0].status == 0, "a port is tried for another machine");
  run_free(&run);
  /* But rank 0's node is, by whatever the user calls it. */
  static const char* const here[][2] = {
      {"MASTER_ADDR=n1", NULL}, {"MASTER_ADDR=n1.cluster", NULL}, {"MASTER_ADDR=10.11.0.1", NULL}};
  for (size_t i = 0; i < sizeof here / sizeof *here; ++i) {
    step.user_environment = here[i];
    drive(&run, &step);
    CHECK(run.nodes == 2, "srun does not launch");
    if (run.nodes == 2) expect_node_refuses(&run.node[0]);
    run_free(&run);
  }
  machine_busy_port = 0;
}

static void check_port_refused(void) {
  struct run run;
  drive(&run, &usual_step);
  CHECK(run.nodes == 2, "srun does not launch");
  if (run.nodes == 2) {
    expect_node_refuses(&run.node[0]);
    CHECK(run.node[0].kills == 1 && run.node[0].sane_ids, "the step is not ended");
    CHECK(strstr(run.node[0].said, MASTER_PORT_OF_STEP) != NULL && strstr(run.node[0].said, "n1") != NULL,
          "port and host are not both named: %s", run.node[0].said);
    expect_pytorch_node(&run.node[1], &usual_seating, 1);
  }
  run_free(&run);
}

void scenario_port_taken(void) {
  machine_busy_port = PORT_OF_STEP;
  check_port_refused();
  machine_busy_port = PORT_OF_STEP + 1;
  struct run run;
  drive(&run, &usual_step);
  expect_pytorch(&run, &usual_seating);
  run_free(&run);
  machine_busy_port = 0;
}

void scenario_port_leased(void) {
  const int lease = machine_hold_lease(PORT_OF_STEP);
  struct run run;
  drive_srun(&run.srun, &usual_step, NULL);
  struct node node;
  drive_node(&node, &usual_step, 0, &run.srun.environment, NULL);
  expect_node_refuses(&node);
  CHECK(strstr(node.said, MASTER_PORT_OF_STEP) != NULL && strstr(node.said, "n1") != NULL,
        "port and host are not both named: %s", node.said);
  CHECK(machine_leases() == 1, "the other step's lease is gone");
  node_free(&node);
  close(lease); /* its holder has died: what is left of the lease is a file that nobody locks */
  drive_node(&node, &usual_step, 0, &run.srun.environment, NULL);
  expect_pytorch_node(&node, &usual_seating, 0);
  node_free(&node);
  submission_free(&run.srun);
}

void scenario_kernel_ports(void) {
  struct submission srun;
  machine_says("/proc/sys/net/ipv4/ip_local_port_range", "25000\t60999\n");
  machine_says("/proc/sys/net/ipv4/ip_local_reserved_ports", "20000,21000-21999\n");
  drive_srun(&srun, &usual_step, NULL);
  const char* const record = environment_get(&srun.environment, "SLURM_AMLDIST_LAUNCH");
  CHECK(record != NULL && strstr(record, ";ports=20001-20999,22000-24999;") != NULL, "the record is %s", record);
  submission_free(&srun);
  machine_says("/proc/sys/net/ipv4/ip_local_port_range", "20000\t60999\n");
  drive_srun(&srun, &usual_step, NULL);
  expect_srun_refuses(&srun);
  submission_free(&srun);
}

/* What srun says, and the record that it leaves, under a site's rules. */
static void check_features(const struct step* step, const char* recorded, const char* said) {
  struct submission srun;
  drive_srun(&srun, step, NULL);
  const char* const record = environment_get(&srun.environment, "SLURM_AMLDIST_LAUNCH");
  const char* const features = record != NULL ? strstr(record, ";features=") : NULL;
  CHECK(record != NULL && strcmp(features != NULL ? features : "", recorded) == 0, "the record is %s", record);
  CHECK(*said != '\0' ? strstr(srun.said, said) != NULL : *srun.said == '\0', "srun says: %s", srun.said);
  submission_free(&srun);
}

void scenario_features(void) {
  static const char* const rules[] = {"rdma.feature.ib=require", "rdma.sku.HC44rs=off", NULL};
  static const char* const none[] = {"rdma.gpu=require", "rdma_sku=HC44rs", NULL};
  struct step step = usual_step;
  check_features(&step, "", "");
  step.arguments = none;
  check_features(&step, "", ""); /* slurmctld does not answer, and is not asked */
  step.arguments = rules;
  step.features = "gpu,ib,standard_hc44rs/ib";
  check_features(&step, ";features=HC44rs:0+ib:0-1", "");
  step.features = "gpu/";
  check_features(&step, "", "");
  step.option = "pytorch,rdma=off";
  step.features = "gpu/ib";
  check_features(&step, ";features=ib:1", "lowers the site's rdma.feature.ib=require");
  /* Without an answer the step must not start unverified. */
  struct submission srun;
  step = usual_step;
  step.arguments = rules;
  drive_srun(&srun, &step, NULL);
  expect_srun_refuses(&srun);
  submission_free(&srun);
  step.features = "ib"; /* slurmctld does not know n2 */
  drive_srun(&srun, &step, NULL);
  expect_srun_refuses(&srun);
  submission_free(&srun);
  /* A step that is of no kind is nobody's. */
  step.option = NULL;
  drive_srun(&srun, &step, NULL);
  CHECK(!srun.refused && *srun.said == '\0', "srun says: %s", srun.said);
  submission_free(&srun);
}

/* GLOO_SOCKET_IFNAME of a node's first task, "" if it is not set. */
static void check_gloo(const struct step* step, uint32_t node, const char* expected) {
  struct run run;
  drive(&run, step);
  CHECK(run.nodes > node && run.node[node].task[0].status == 0, "the task does not start");
  const char* const value = environment_get(&run.node[node].task[0].environment, "GLOO_SOCKET_IFNAME");
  CHECK(strcmp(value != NULL ? value : "", expected) == 0, "node %u has GLOO_SOCKET_IFNAME=%s", node, value);
  CHECK(*run.node[node].said == '\0', "node %u says: %s", node, run.node[node].said);
  run_free(&run);
}

void scenario_loopback_name(void) {
  static const char* const own[] = {"GLOO_SOCKET_IFNAME=mine", NULL};
  struct step step = usual_step;
  machine_says("/etc/hosts", "127.0.0.1 localhost\n127.0.1.1 n2.example n2 # Debian\n10.11.0.1 n1\n");
  check_gloo(&step, 0, "");
  check_gloo(&step, 1, "ib0");
  step.user_environment = own;
  check_gloo(&step, 1, "mine");
  step = usual_step;
  step.ranks = "0,1";
  step.nodelist = "n1";
  machine_says("/etc/hosts", "127.0.0.1 localhost\n127.0.1.1 n1\n");
  check_gloo(&step, 0, "");
  /* A name that is loopback on its own node must not be the master's address. */
  step = usual_step;
  step.option = "pytorch,master_addr=name";
  struct run run;
  drive(&run, &step);
  CHECK(run.nodes == 2, "srun does not launch: %s", run.srun.said);
  if (run.nodes == 2) {
    expect_node_refuses(&run.node[0]);
    CHECK(strstr(run.node[0].said, "127.0.1.1") != NULL, "127.0.1.1 is not named: %s", run.node[0].said);
  }
  run_free(&run);
  /* Whatever is in that file, it is only read. */
  static const char* const odd[] = {"",
                                    "\n\n",
                                    "garbage",
                                    "127.0.1.1",
                                    "# 127.0.1.1 n2",
                                    "::1 n2\n",
                                    "999.0.0.1 n2\n",
                                    "127.0.1.1 n22 xn2 n2x\n",
                                    "\xff\xfe n2\n"};
  for (size_t i = 0; i < sizeof odd / sizeof *odd; ++i) {
    subject("%s", odd[i]);
    machine_says("/etc/hosts", odd[i]);
    check_gloo(&usual_step, 1, "");
  }
}

void scenario_partition_default(void) {
  static const char* const arguments[] = {"default.gpu=pytorch", "default.cpu=none", NULL};
  static const char* const gpu[] = {"SLURM_JOB_PARTITION=gpu", NULL};
  static const char* const cpu[] = {"SLURM_JOB_PARTITION=cpu", NULL};
  struct step step = usual_step;
  step.option = NULL;
  step.arguments = arguments;
  step.user_environment = gpu;
  struct run run;
  drive(&run, &step);
  expect_pytorch(&run, &usual_seating);
  run_free(&run);
  step.user_environment = cpu;
  drive(&run, &step);
  expect_nothing(&run);
  run_free(&run);
  step.user_environment = NULL;
  drive(&run, &step);
  expect_nothing(&run);
  run_free(&run);
  step.user_environment = gpu;
  step.option = "none";
  drive(&run, &step);
  expect_nothing(&run);
  run_free(&run);
}

void scenario_gpu_advice(void) {
  static const struct {
    const char* variables;
    size_t lines;
  } cases[] = {
      {"CUDA_VISIBLE_DEVICES=0,1\n", 0}, {"CUDA_VISIBLE_DEVICES=0\n", 1}, {"ROCR_VISIBLE_DEVICES=0,1,2,3\n", 1}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    subject("%s", cases[i].variables);
    struct step step = usual_step;
    step.node_variables = cases[i].variables;
    struct run run;
    drive(&run, &step);
    char* said = text_format("%s", run.srun.said);
    for (uint32_t node = 0; node < run.nodes; ++node) {
      said = text_append(said, "%s", run.node[node].said);
      CHECK(run.node[node].task[0].status == 0, "the task does not start");
    }
    expect_sentences(said, cases[i].lines);
    free(said);
    run_free(&run);
  }
}

void scenario_loaded_as_optional(void) {
  static const struct {
    const char* content;
    size_t lines;
  } cases[] = {{"required spank_aml_dist.so\n", 0},
               {"optional spank_aml_dist.so port_range=20000-29999\n", 1},
               {"# optional spank_aml_dist.so\nrequired /usr/lib/slurm/spank_aml_dist.so\n", 0},
               {"optional\t/usr/lib/slurm/spank_aml_dist.so", 1},
               {"optional other.so\n", 0},
               {"include /run/plugstack.conf\n", 0},
               {"include\n", 0},
               {"optional\n\n\xff\xfe", 0},
               {"", 0}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    subject("%s", cases[i].content);
    machine_says("/run/plugstack.conf", cases[i].content);
    struct submission srun;
    drive_srun(&srun, &usual_step, NULL);
    CHECK(!srun.refused, "srun refuses");
    expect_sentences(srun.said, cases[i].lines);
    submission_free(&srun);
    /* Who does not ask is told nothing. */
    struct step step = usual_step;
    step.option = NULL;
    drive_srun(&srun, &step, NULL);
    expect_sentences(srun.said, 0);
    submission_free(&srun);
  }
}
