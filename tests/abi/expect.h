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

/* Nothing said, nothing set, nothing refused, in srun and on every node. */
void expect_nothing(const struct run* run);

/* srun launches, and its environment changes by nothing but a launch record and, where `listens`, the report variable.
 */
void expect_launch(const struct submission* srun, bool listens);

/* srun refuses with one sentence and leaves no launch record behind. */
void expect_srun_refuses(const struct submission* srun);

/* The node starts none of its tasks and says why in one sentence. */
void expect_node_refuses(const struct node* node);

/* srun or every node refuses. */
void expect_refused(const struct run* run);

/* Exactly these changes to a task's environment: lines in any order, "NAME=VALUE" or "-NAME" for a removal. */
void expect_changes(const struct task* task, const char* changes);

/* One task of a pytorch step. */
struct seat {
  uint32_t node;
  uint32_t local;
  uint32_t rank;
  uint32_t local_size;
  uint32_t node_rank;
};

struct seating {
  const struct seat* seats;
  uint32_t tasks;
  uint32_t nodes;
  uint32_t tasks_per_node; /* 0: the nodes differ */
  const char* master;      /* address of rank 0's node */
  const char* map;         /* PMI's process mapping */
};

/* The whole environment of a kind=pytorch task per process. */
void expect_pytorch_task(const struct task* task, const struct seating* seating, const struct seat* seat);
/* The same for every task of a node, and that nobody said anything. */
void expect_pytorch_node(const struct node* node, const struct seating* seating, uint32_t index);
void expect_pytorch(const struct run* run, const struct seating* seating);

/* All of RANK, WORLD_SIZE, ... are right; where the processes meet is not looked at. */
bool has_right_numbers(const struct task* task, const struct seating* seating, const struct seat* seat);

/* Two nodes with two tasks each in block order: the step of most scenarios. */
extern const struct step usual_step;
extern const struct seating usual_seating;
const struct seat* seat_of(const struct seating* seating, uint32_t node, uint32_t local);

#endif
