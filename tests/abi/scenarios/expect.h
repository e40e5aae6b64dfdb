/* What a scenario expects. */
#ifndef AMLDIST_TESTS_ABI_EXPECT_H
#define AMLDIST_TESTS_ABI_EXPECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "drive.h"

/* The first port of the hash for cluster testcluster, job 4242, step 0 in 20000-29999 (FNV-1a, worked out apart). */
#define MASTER_PORT_OF_STEP "25940"

/* `said` is `count` lines fit for a terminal, each one a sentence that begins with "aml-dist: ". */
void expect_sentences(const char* said, size_t count);

/* srun launches, and its environment changes by nothing but a launch record and, where `listens`, the report variable.
 */
void expect_launch(const struct submission* srun, bool listens);

/* srun refuses with one sentence and leaves no launch record behind. */
void expect_srun_refuses(const struct submission* srun);

/* The node starts none of its tasks and says why in one sentence. */
void expect_node_refuses(const struct node* node);

/* Exactly these changes to a task's environment: lines in any order, "NAME=VALUE" or "-NAME" for a removal. */
void expect_changes(const struct task* task, const char* changes);

/* Two nodes with two tasks each in block order: the step of most scenarios. */
extern const struct step usual_step;

/* The whole environment of a task of the usual step, which has kind pytorch, per process. */
void expect_pytorch_task(const struct task* task, uint32_t node, uint32_t local);
/* The same for every task of a node, and that nothing is said. */
void expect_pytorch_node(const struct node* node, uint32_t index);
void expect_pytorch(const struct run* run);
/* Nothing is said, set or refused anywhere: a step without the option. */
void expect_nothing(const struct run* run);

/* All of RANK, WORLD_SIZE, ... are right for a step in which the k-th node has node rank k; the address and port are
 * not looked at. */
bool has_right_numbers(const struct task* task, const struct step* step, uint32_t node, uint32_t local);

#endif
