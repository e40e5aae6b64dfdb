/* Steps as large as machines get, with slurmctld's answer fabricated: srun, and of the nodes the first, the last and
 * one between. What they cost is measured by abi_host --measure. */
#include <stdlib.h>
#include <string.h>

#include "expect.h"
#include "journal.h"
#include "plugin.h"
#include "sanitizers.h"
#include "scenarios.h"
#include "text.h"

enum { NODES = 10240, PER_NODE = 8, LONGEST_RECORD = 1024, MEBIBYTE = 1 << 20 };

static const struct step large_step = {
    .even = {NODES, PER_NODE}, .nodelist = "n[1-10240]", .option = "pytorch", .distribution = "block"};

/* All that a callback asked malloc for. A task map of this size would take 640 kB as a plain list of numbers. */
static void check_memory(enum hook hook, uint64_t limit) {
  const uint64_t bytes = journal->cost[hook].bytes;
  CHECK(bytes > 0 || HOST_IS_SANITIZED, "nothing was measured in %s", hook_name(hook));
  CHECK(bytes <= limit, "%s asks for %llu bytes", hook_name(hook), (unsigned long long)bytes);
}

static void check_node(const struct step* step, const struct environment* sent, uint32_t index) {
  struct node node;
  drive_node(&node, step, index, sent, step->option);
  CHECK(*node.said == '\0', "node %u says: %s", index, node.said);
  for (uint32_t local = 0; local < node.tasks; ++local) {
    const struct task* const task = &node.task[local];
    CHECK(task->status == 0, "task %u of node %u does not start", local, index);
    CHECK(has_right_numbers(task, step, index, local), "task %u of node %u has wrong numbers", local, index);
    const char* const address = environment_get(&task->environment, "MASTER_ADDR");
    CHECK(address != NULL && strcmp(address, "10.11.0.1") == 0, "task %u of node %u has MASTER_ADDR=%s", local, index,
          address);
  }
  node_free(&node);
}

static void check_large_step(const char* distribution, const char* map) {
  subject("%s", distribution);
  struct step step = large_step;
  step.distribution = distribution;
  struct submission srun;
  drive_srun(&srun, &step, NULL);
  expect_launch(&srun, true);
  check_memory(HOOK_LOCAL_USER_INIT, MEBIBYTE);
  const char* const record = environment_get(&srun.environment, "SLURM_AMLDIST_LAUNCH");
  CHECK(record != NULL && strlen(record) < LONGEST_RECORD, "the launch record has %zu bytes",
        record != NULL ? strlen(record) : 0);
  CHECK(record != NULL && strstr(record, map) != NULL, "the launch record is %s", record);
  static const uint32_t some[] = {0, 1, NODES / 2, NODES - 1};
  for (size_t i = 0; i < sizeof some / sizeof *some; ++i) {
    check_node(&step, &srun.environment, some[i]);
    check_memory(HOOK_INIT_POST_OPT, MEBIBYTE / 8);
    check_memory(HOOK_TASK_INIT, MEBIBYTE / 16);
  }
  submission_free(&srun);
}

void scenario_large_steps(void) {
  check_large_step("block", ";map=(vector,(0,10240,8))");
  check_large_step("cyclic", ";map=(vector,(0,10240,1))");
}

/* "n1024:25947", is 14 bytes: 8192 workers fit into the 131,072 that Linux takes for one variable, 81,920 do not. */
void scenario_large_tensorflow(void) {
  struct step step = large_step;
  step.option = "tensorflow";
  struct submission srun;
  drive_srun(&srun, &step, NULL);
  expect_srun_refuses(&srun);
  CHECK(strstr(srun.said, "131072") != NULL, "the limit is not named: %s", srun.said);
  submission_free(&srun);

  step.even.nodes = 640;
  step.nodelist = "n[1-640]";
  drive_srun(&srun, &step, NULL);
  expect_launch(&srun, true);
  struct node node;
  drive_node(&node, &step, step.even.nodes - 1, &srun.environment, step.option);
  CHECK(*node.said == '\0', "the node says: %s", node.said);
  const struct task* const last = &node.task[PER_NODE - 1];
  const char* const config = environment_get(&last->environment, "TF_CONFIG");
  static const char end[] = "]},\"task\":{\"type\":\"worker\",\"index\":5119},\"environment\":\"cloud\"}";
  CHECK(config != NULL && strlen(config) > 100000 && strstr(config, end) != NULL, "TF_CONFIG is %.80s", config);
  size_t neighbours = 0;
  for (const char* at = config; at != NULL && (at = strstr(at, "\",\"")) != NULL; ++at) ++neighbours;
  CHECK(neighbours == 5119 + 1, "TF_CONFIG has %zu neighbours", neighbours); /* workers, and "worker","index" */
  node_free(&node);
  submission_free(&srun);
}
