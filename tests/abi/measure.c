#include "measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "drive.h"
#include "journal.h"
#include "output.h"
#include "plugin.h"
#include "text.h"

static size_t length_of(const struct environment* environment, const char* name) {
  const char* const value = environment_get(environment, name);
  return value != NULL ? strlen(value) : 0;
}

static char* add_cost(char* json, const char* name, enum hook hook) {
  const struct cost* const cost = &journal->cost[hook];
  return text_append(json, ",\"%s\":{\"us\":%.3f,\"bytes\":%llu}", name, (double)cost->nanoseconds / 1e3,
                     (unsigned long long)cost->bytes);
}

/* The last node: nothing on it is special, rank 0 is elsewhere. */
static char* add_node(char* json, const struct step* step, const struct submission* srun) {
  struct node node;
  drive_node(&node, step, nodes_of(step) - 1, &srun->environment, step->option);
  json = add_cost(json, "node", HOOK_INIT_POST_OPT);
  json = add_cost(json, "task", HOOK_TASK_INIT);
  json = text_append(json, ",\"tf_config\":%zu", length_of(&node.task[0].environment, "TF_CONFIG"));
  node_free(&node);
  return json;
}

int measure(char** arguments) {
  const struct step shape = {
      .even = {(uint32_t)strtoul(arguments[0], NULL, 10), (uint32_t)strtoul(arguments[1], NULL, 10)},
      .distribution = arguments[2],
      .option = arguments[3]};
  if (shape.even.nodes < 1 || shape.even.tasks_per_node < 1 || shape.even.tasks_per_node > MOST_LOCAL_TASKS) return 2;
  char* const nodelist = text_format("n[1-%u]", shape.even.nodes);
  struct step step = shape;
  step.nodelist = nodelist;
  struct submission srun;
  drive_srun(&srun, &step, NULL);
  char* json = text_format("{\"nodes\":%u,\"tasks\":%u,\"refused\":%s", nodes_of(&step), tasks_of(&step),
                           srun.refused ? "true" : "false");
  json = add_cost(json, "srun", HOOK_LOCAL_USER_INIT);
  json = text_append(json, ",\"record\":%zu", length_of(&srun.environment, "SLURM_AMLDIST_LAUNCH"));
  if (!srun.refused) json = add_node(json, &step, &srun);
  output_print("%s}\n", json);
  free(json);
  free(nodelist);
  submission_free(&srun);
  return journal->failures == 0 ? 0 : 1;
}
