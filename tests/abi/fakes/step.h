/* A step of a job as a scenario describes it, and what Slurm makes of it. */
#ifndef AMLDIST_TESTS_ABI_STEP_H
#define AMLDIST_TESTS_ABI_STEP_H

#include <stdint.h>

#include "environment.h"

enum { MOST_NODES = 8, MOST_LOCAL_TASKS = 16 };

/* Ways in which slurmctld's answer can be wrong. */
enum layout_defect {
  GOOD_LAYOUT,
  NO_LAYOUT,
  NO_NODE_LIST,
  NO_TASK_IDS,
  NO_TASK_COUNTS,
  WRONG_NODE_COUNT,
  HOSTILE_NODE_LIST,
  RANK_TOO_HIGH,
  RANK_TWICE,
  RANK_MISSING,
  NO_NODES,
  LAYOUT_DEFECTS
};

struct step {
  const char* ranks; /* of every node: "0,1/2,3"; the nodes are called n1, n2, ... */
  struct {
    uint32_t nodes;
    uint32_t tasks_per_node;
  } even;               /* instead of ranks: a large step, block or, by its distribution, cyclic */
  const char* nodelist; /* Slurm's short form of their names */
  const char* distribution;
  const char* option; /* on srun's command line; NULL: not given */

  uint32_t job_id;  /* 0: 4242 */
  uint32_t step_id; /* 0 */
  struct {
    uint32_t leader;
    uint32_t components;
  } het_job; /* of which the job is a component, as slurmctld knows it; each has this step's layout. 0: of none */

  const char* const* user_environment; /* "NAME=VALUE", NULL at the end: what the user's shell exports */
  const char* const* arguments;        /* of the plugin in plugstack.conf, NULL at the end */
  const char* node_variables;          /* "NAME=VALUE" lines that slurmd adds on every node */

  unsigned user;                /* who runs it; 0: who runs this host */
  uint32_t workers;             /* of a parameter-server step without a chief: ranks below; 0: no such step */
  const int* ends;              /* of the program by rank: exit status, or -N for signal N; NULL: all succeed */
  const char* const* datagrams; /* that reach srun, NULL at the end; TOKEN stands for its token */

  enum layout_defect layout_defect;
  const char* launch_record;    /* replaces what srun sent: the user's environment is not to be trusted */
  int without_launch_record;    /* or removes it */
  const char* hostile_nodelist; /* the same for SLURM_STEP_NODELIST */
  const char* features;         /* of the nodes, as slurmctld knows them: "ib,h100/ib"; NULL: it does not answer */
  const char* names_of_nodes;   /* what the name service knows: "n1=10.11.0.1", separated by blanks */
};

/* Where its tasks are. */
uint32_t nodes_of(const struct step* step);
uint32_t tasks_of(const struct step* step);
uint32_t local_tasks_of(const struct step* step, uint32_t node);
uint32_t rank_of(const struct step* step, uint32_t node, uint32_t local);
uint32_t job_of(const struct step* step);

/* Where srun runs, as slurmd tells slurmstepd in SLURM_SRUN_COMM_HOST. */
#define ADDRESS_OF_SRUN "10.11.0.200"

/* 10.11.0.K for node nK, the NodeAddr of slurm.conf. */
void node_address(char* buffer, unsigned size, const char* node);

/* srun's environment when it begins: a user's shell, outside any job. */
void environment_of_user(struct environment* environment, const struct step* step);

/* What slurmstepd adds for a node, and then for one task. */
void environment_add_node(struct environment* environment, const struct step* step, uint32_t node);
void environment_add_task(struct environment* environment, const struct step* step, uint32_t node, uint32_t local);

#endif
