/* What the machine and the site say, where a test cluster cannot be made to say it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "expect.h"
#include "fake_machine.h"
#include "journal.h"
#include "scenarios.h"
#include "text.h"

enum { PORT_OF_STEP = 25940 };

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

/* The port is tried if MASTER_ADDR is rank 0's node by any of its names, and left alone if it is another machine. */
void scenario_port_of_users_master(void) {
  static const char* const masters[][2] = {{"MASTER_ADDR=my.host.example", NULL},
                                           {"MASTER_ADDR=n1", NULL},
                                           {"MASTER_ADDR=n1.cluster", NULL},
                                           {"MASTER_ADDR=10.11.0.1", NULL}};
  struct step step = usual_step;
  machine_busy_port = PORT_OF_STEP;
  for (size_t i = 0; i < sizeof masters / sizeof *masters; ++i) {
    subject("%s", masters[i][0]);
    step.user_environment = masters[i];
    struct run run;
    drive(&run, &step);
    CHECK(run.nodes == 2, "srun does not launch");
    if (run.nodes == 2 && i > 0) expect_node_refuses(&run.node[0]);
    if (run.nodes == 2 && i == 0) {
      CHECK(run.node[0].leases == 0, "a lease is held for another machine");
      CHECK(run.node[0].task[0].status == 0, "a port is tried for another machine");
    }
    run_free(&run);
  }
  machine_busy_port = 0;
}

static void check_features(const struct step* step, bool refused) {
  struct submission srun;
  drive_srun(&srun, step, NULL);
  if (refused) expect_srun_refuses(&srun);
  else CHECK(!srun.refused && *srun.said == '\0', "srun says: %s", srun.said);
  submission_free(&srun);
}

void scenario_features_fail(void) {
  static const char* const rules[] = {"rdma.feature.ib=require", "rdma.sku.HC44rs=off", NULL};
  static const char* const no_rules[] = {"rdma.gpu=require", "rdma_sku=HC44rs", NULL};
  struct step step = usual_step;
  step.arguments = rules;
  check_features(&step, true);
  subject("slurmctld does not know n2");
  step.features = "ib";
  check_features(&step, true);
  subject("no kind");
  step.option = NULL;
  check_features(&step, false);
  subject("no rule about features");
  step = usual_step;
  step.arguments = no_rules;
  check_features(&step, false);
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
    struct step step = usual_step;
    step.option = NULL;
    drive_srun(&srun, &step, NULL);
    expect_sentences(srun.said, 0);
    submission_free(&srun);
  }
}
