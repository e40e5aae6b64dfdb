#include "step.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text.h"

enum { USUAL_JOB = 4242 };

uint32_t job_of(const struct step* step) { return step->job_id != 0 ? step->job_id : USUAL_JOB; }

/* What a step's `ranks` say. */
struct layout {
  uint32_t nodes;
  uint32_t tasks;
  uint32_t count[MOST_NODES];
  uint32_t rank[MOST_NODES][MOST_LOCAL_TASKS];
};

static struct layout layout_of(const struct step* step) {
  struct layout layout = {.nodes = 1};
  for (const char* rest = step->ranks; *rest != '\0';) {
    if (*rest == '/') ++layout.nodes;
    if (*rest == '/' || *rest == ',') ++rest;
    char* end = NULL;
    const uint32_t node = layout.nodes - 1;
    if (node >= MOST_NODES || layout.count[node] >= MOST_LOCAL_TASKS) abort();
    layout.rank[node][layout.count[node]++] = (uint32_t)strtoul(rest, &end, 10);
    ++layout.tasks;
    rest = end;
  }
  return layout;
}

static bool is_even(const struct step* step) { return step->even.nodes != 0; }

uint32_t nodes_of(const struct step* step) { return is_even(step) ? step->even.nodes : layout_of(step).nodes; }

uint32_t tasks_of(const struct step* step) {
  return is_even(step) ? step->even.nodes * step->even.tasks_per_node : layout_of(step).tasks;
}

uint32_t local_tasks_of(const struct step* step, uint32_t node) {
  return is_even(step) ? step->even.tasks_per_node : layout_of(step).count[node];
}

uint32_t rank_of(const struct step* step, uint32_t node, uint32_t local) {
  if (!is_even(step)) return layout_of(step).rank[node][local];
  const bool cyclic = step->distribution != NULL && strcmp(step->distribution, "cyclic") == 0;
  return cyclic ? local * step->even.nodes + node : node * step->even.tasks_per_node + local;
}

void node_address(char* buffer, unsigned size, const char* node) {
  const unsigned long number = strtoul(node + strcspn(node, "0123456789"), NULL, 10);
  snprintf(buffer, size, "10.11.0.%lu", number < 255 ? number : 254);
}

void environment_of_user(struct environment* environment, const struct step* step) {
  static const char* const shell[] = {"HOME=/home/user",
                                      "LANG=C.UTF-8",
                                      "PATH=/usr/bin:/bin",
                                      "SHELL=/bin/sh",
                                      "USER=user",
                                      "SLURM_CLUSTER_NAME=testcluster",
                                      "SLURM_CONF=/run/slurm.conf"};
  environment_clear(environment);
  for (size_t i = 0; i < sizeof shell / sizeof *shell; ++i) environment_put(environment, shell[i]);
  for (const char* const* variable = step->user_environment; variable != NULL && *variable != NULL; ++variable) {
    environment_put(environment, *variable);
  }
}

/* "2(x3),1" */
static char* tasks_per_node(const struct step* step) {
  const uint32_t nodes = nodes_of(step);
  char* text = text_format("%s", "");
  for (uint32_t node = 0; node < nodes;) {
    const uint32_t count = local_tasks_of(step, node);
    uint32_t end = node;
    while (end < nodes && local_tasks_of(step, end) == count) ++end;
    text = text_append(text, "%s%u", node == 0 ? "" : ",", count);
    if (end - node > 1) text = text_append(text, "(x%u)", end - node);
    node = end;
  }
  return text;
}

void environment_add_node(struct environment* environment, const struct step* step, uint32_t node) {
  environment_format(environment, "SLURM_JOB_ID", "%u", job_of(step));
  environment_format(environment, "SLURM_JOBID", "%u", job_of(step));
  const uint32_t tasks = tasks_of(step);
  char* const per_node = tasks_per_node(step);
  environment_set(environment, "SLURM_TASKS_PER_NODE", per_node);
  environment_set(environment, "SLURM_STEP_TASKS_PER_NODE", per_node);
  free(per_node);
  environment_set(environment, "SLURM_NODELIST", step->nodelist);
  environment_set(environment, "SLURM_JOB_NODELIST", step->nodelist);
  environment_set(environment, "SLURM_STEP_NODELIST",
                  step->hostile_nodelist != NULL ? step->hostile_nodelist : step->nodelist);
  environment_format(environment, "SLURM_NNODES", "%u", nodes_of(step));
  environment_format(environment, "SLURM_STEP_NUM_NODES", "%u", nodes_of(step));
  environment_format(environment, "SLURM_STEP_NUM_TASKS", "%u", tasks);
  environment_format(environment, "SLURM_NTASKS", "%u", tasks);
  environment_format(environment, "SLURM_NPROCS", "%u", tasks);
  environment_format(environment, "SLURM_STEP_ID", "%u", step->step_id);
  environment_format(environment, "SLURM_STEPID", "%u", step->step_id);
  environment_format(environment, "SLURM_NODEID", "%u", node);
  environment_format(environment, "SLURMD_NODENAME", "n%u", node + 1);
  environment_set(environment, "SLURM_DISTRIBUTION", step->distribution != NULL ? step->distribution : "block");
  environment_set(environment, "SLURM_LAUNCH_NODE_IPADDR", "10.11.0.1");
  environment_set(environment, "SLURM_SRUN_COMM_HOST", ADDRESS_OF_SRUN);
  environment_set(environment, "SLURM_MPI_TYPE", "pmix");
  if (step->node_variables == NULL) return;
  char* const lines = text_format("%s", step->node_variables);
  for (char *rest = NULL, *line = strtok_r(lines, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest)) {
    environment_put(environment, line);
  }
  free(lines);
}

void environment_add_task(struct environment* environment, const struct step* step, uint32_t node, uint32_t local) {
  const uint32_t rank = rank_of(step, node, local);
  char* ids = text_format("%s", "");
  for (uint32_t i = 0; i < local_tasks_of(step, node); ++i)
    ids = text_append(ids, "%s%u", i == 0 ? "" : ",", rank_of(step, node, i));
  environment_set(environment, "SLURM_GTIDS", ids);
  free(ids);
  environment_format(environment, "SLURM_PROCID", "%u", rank);
  environment_format(environment, "SLURM_LOCALID", "%u", local);
  environment_format(environment, "SLURM_TASK_PID", "%u", 1000 + rank);
  environment_format(environment, "PMIX_RANK", "%u", rank);
  environment_format(environment, "PMIX_NAMESPACE", "slurm.pmix.%u.%u", job_of(step), step->step_id);
}
