#include "expect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "journal.h"
#include "plugin.h"
#include "text.h"

enum { LONGEST_SENTENCE = 600 };

const struct step usual_step = {.ranks = "0,1/2,3", .nodelist = "n[1-2]", .option = "pytorch"};

void expect_sentences(const char* said, size_t count) {
  static const char start[] = "aml-dist: ";
  CHECK(text_lines(said) == count, "%zu lines instead of %zu: %s", text_lines(said), count, said);
  for (const char* line = said; *line != '\0';) {
    const size_t length = strcspn(line, "\n");
    CHECK(strncmp(line, start, sizeof start - 1) == 0, "a line does not begin with '%s': %s", start, line);
    CHECK(length > sizeof start + 10, "a line says too little: %s", line);
    CHECK(length < LONGEST_SENTENCE, "a line of %zu bytes: %s", length, line);
    CHECK(line[length] == '\n', "the last line lacks its newline: %s", line);
    bool plain = true;
    for (size_t i = 0; i < length; ++i) plain = plain && line[i] >= 0x20 && line[i] < 0x7f;
    CHECK(plain, "control characters or raw bytes in: %s", line);
    line += length + (line[length] == '\n' ? 1 : 0);
  }
}

static bool is_channel(const char* text) {
  unsigned port = 0;
  int length = 0;
  const bool start = sscanf(text, "2;port=%5u;token=%n", &port, &length) == 1 && length > 0;
  const char* const token = start ? text + length : "";
  char* const whole = text_format("2;port=%u;token=%.32s", port, token);
  const bool right = port > 0 && port < 65536 && strspn(token, "0123456789abcdef") == 32 && strcmp(whole, text) == 0;
  free(whole);
  return right;
}

static bool is_secret(const char* text) { return strlen(text) == 64 && strspn(text, "0123456789abcdef") == 64; }

void expect_launch(const struct submission* srun, bool listens) {
  const char* const record = environment_get(&srun->environment, "SLURM_AMLDIST_LAUNCH");
  const char* const channel = environment_get(&srun->environment, REPORT_VARIABLE);
  CHECK(!srun->refused, "srun refuses: %s", srun->said);
  CHECK(record != NULL, "srun sends no launch record");
  CHECK((channel != NULL) == listens, "srun's report variable is %s", channel != NULL ? channel : "missing");
  CHECK(channel == NULL || is_channel(channel), "srun's report variable is %s", channel);
  char* expected = text_format("SLURM_AMLDIST_LAUNCH=%s\n", record != NULL ? record : "");
  if (channel != NULL) expected = text_append(expected, REPORT_VARIABLE "=%s\n", channel);
  const char* const secret = environment_get(&srun->environment, SECRET_VARIABLE);
  CHECK(secret != NULL || !listens, "srun sends no secret");
  CHECK(secret == NULL || is_secret(secret), "srun's secret is %s", secret);
  CHECK(secret == NULL || strstr(srun->said, secret) == NULL, "srun tells the secret: %s", srun->said);
  if (secret != NULL) expected = text_append(expected, SECRET_VARIABLE "=%s\n", secret);
  text_sort_lines(expected);
  CHECK(strcmp(srun->changes, expected) == 0, "srun's environment changes by %s", srun->changes);
  free(expected);
}

void expect_srun_refuses(const struct submission* srun) {
  CHECK(!srun->unknown_option, "the option is not registered");
  CHECK(srun->refused, "srun launches what it should refuse");
  if (srun->refused) expect_sentences(srun->said, 1);
  CHECK(*srun->out == '\0', "on standard output: %s", srun->out);
  CHECK(environment_get(&srun->environment, "SLURM_AMLDIST_LAUNCH") == NULL, "a refused step has a launch record");
  CHECK(environment_get(&srun->environment, REPORT_VARIABLE) == NULL, "a refused step has a report variable");
  CHECK(environment_get(&srun->environment, SECRET_VARIABLE) == NULL, "a refused step has a secret");
}

void expect_node_refuses(const struct node* node) {
  for (uint32_t local = 0; local < node->tasks; ++local) {
    CHECK(node->task[local].status == -1, "local task %u starts (%d)", local, node->task[local].status);
  }
  expect_sentences(node->said, 1);
  CHECK(node->kills <= 1, "the step is ended %zu times", node->kills);
}

void expect_changes(const struct task* task, const char* changes) {
  char* expected = text_format("%s", changes);
  /* The secret is another in every step: a task of a kind gets the one that srun sent. */
  const char* const secret = environment_get(&task->before, SECRET_VARIABLE);
  if (secret != NULL) expected = text_append(expected, "-" SECRET_VARIABLE "\n");
  if (secret != NULL && *changes != '\0') expected = text_append(expected, SECRET_OF_TASK "=%s\n", secret);
  text_sort_lines(expected);
  char* const is = environment_changes(&task->before, &task->environment);
  CHECK(task->status == 0, "the task does not start (%d)", task->status);
  CHECK(task->status != 0 || strcmp(is, expected) == 0, "the environment changes by\n%s\ninstead of\n%s\n", is,
        expected);
  free(is);
  free(expected);
}

static char* numbers_of(const struct step* step, uint32_t node, uint32_t local) {
  return text_format(
      "GROUP_RANK=%u\nGROUP_WORLD_SIZE=%u\nLOCAL_RANK=%u\nLOCAL_WORLD_SIZE=%u\nNODE_RANK=%u\nRANK=%u\nWORLD_SIZE=%u\n",
      node, nodes_of(step), local, local_tasks_of(step, node), node, rank_of(step, node, local), tasks_of(step));
}

void expect_pytorch_task(const struct task* task, uint32_t node, uint32_t local) {
#define MASTER "10.11.0.1"
  char* expected = numbers_of(&usual_step, node, local);
  expected =
      text_append(expected, "AMLDIST_STAMP=4242.0 kind=pytorch nodes=2 map=(vector,(0,2,2)) MASTER_ADDR=" MASTER
                            " MASTER_PORT=" MASTER_PORT_OF_STEP "\nAZ_BATCH_MASTER_NODE=" MASTER ":" MASTER_PORT_OF_STEP
                            "\nMASTER_ADDR=" MASTER "\nMASTER_PORT=" MASTER_PORT_OF_STEP "\nSLURM_NTASKS_PER_NODE=2\n");
#undef MASTER
  static const char* const of_srun[] = {"SLURM_AMLDIST_LAUNCH", REPORT_VARIABLE};
  for (size_t i = 0; i < sizeof of_srun / sizeof *of_srun; ++i) {
    if (environment_get(&task->before, of_srun[i]) != NULL) expected = text_append(expected, "-%s\n", of_srun[i]);
  }
  expect_changes(task, expected);
  free(expected);
}

void expect_pytorch_node(const struct node* node, uint32_t index) {
  CHECK(*node->said == '\0', "node %u says: %s", index, node->said);
  CHECK(node->kills == 0, "node %u ends the step", index);
  for (uint32_t local = 0; local < node->tasks; ++local) expect_pytorch_task(&node->task[local], index, local);
}

void expect_pytorch(const struct run* run) {
  expect_launch(&run->srun, true);
  CHECK(*run->srun.said == '\0', "srun says: %s", run->srun.said);
  CHECK(*run->srun.out == '\0', "srun prints: %s", run->srun.out);
  for (uint32_t node = 0; node < run->nodes; ++node) expect_pytorch_node(&run->node[node], node);
}

void expect_nothing(const struct run* run) {
  CHECK(!run->srun.refused, "srun refuses: %s", run->srun.said);
  CHECK(*run->srun.said == '\0', "srun says: %s", run->srun.said);
  CHECK(*run->srun.out == '\0', "srun prints: %s", run->srun.out);
  CHECK(*run->srun.changes == '\0', "srun's environment changes: %s", run->srun.changes);
  for (uint32_t i = 0; i < run->nodes; ++i) {
    const struct node* const node = &run->node[i];
    CHECK(*node->said == '\0', "node %u says: %s", i, node->said);
    CHECK(node->kills == 0, "node %u ends the step", i);
    for (uint32_t local = 0; local < node->tasks; ++local) expect_changes(&node->task[local], "");
  }
}

bool has_right_numbers(const struct task* task, const struct step* step, uint32_t node, uint32_t local) {
  char* const numbers = numbers_of(step, node, local);
  bool right = true;
  for (char *rest = NULL, *line = strtok_r(numbers, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest)) {
    const char* const value = environment_get(&task->environment, line);
    right = right && value != NULL && strcmp(value, strchr(line, '=') + 1) == 0;
  }
  free(numbers);
  return right;
}
