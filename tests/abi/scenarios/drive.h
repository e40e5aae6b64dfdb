/* Calls the plugin's callbacks in each context in the order in which Slurm 22.05 does. */
#ifndef AMLDIST_TESTS_ABI_DRIVE_H
#define AMLDIST_TESTS_ABI_DRIVE_H

#include <stdbool.h>

#include "environment.h"
#include "step.h"

/* The result of a program that submits: srun, sbatch, salloc. */
struct submission {
  int post_opt;        /* return value of init_post_opt */
  int local_user_init; /* and of local_user_init */
  bool refused;
  bool unknown_option;            /* no plugin registered the option: Slurm itself refuses the command line */
  char* said;                     /* on standard error */
  char* out;                      /* on standard output */
  struct environment environment; /* the program's own, at its end */
  char* changes;                  /* what the plugin did to it */
};

/* The result of one task. */
struct task {
  int status;      /* of task_init: 0 or negative */
  int wait_status; /* of its process */
  size_t reports;  /* datagrams to srun about its failure */
  struct environment before;
  struct environment environment;
};

/* The result of one node's part of the step. */
struct node {
  struct task task[MOST_LOCAL_TASKS];
  uint32_t tasks;
  char* said;    /* to the user */
  size_t kills;  /* requests to end the step */
  bool sane_ids; /* and all of them named this step */
  size_t leases; /* of ports, while its tasks ran */
};

struct run {
  struct submission srun;
  uint32_t nodes; /* 0 when srun refused */
  struct node node[MOST_NODES];
};

/* srun alone. `inherited`: the environment of an sbatch job, NULL for the user's shell. */
void drive_srun(struct submission* srun, const struct step* step, const struct environment* inherited);
/* sbatch (or salloc, which is the same to a plugin) with the step's option. */
void drive_sbatch(struct submission* sbatch, const struct step* step);
/* slurmstepd on one node, with the environment that srun sent. init, init_post_opt and user_init must succeed, or the
 * node would be drained. `option` is what the launch message holds. */
void drive_node(struct node* node, const struct step* step, uint32_t index, const struct environment* sent,
                const char* option);
/* slurmd from its start to its end; what it logged, which the caller frees. */
char* drive_slurmd(const char* const* arguments);
/* The prolog and the epilog of the step's job. */
void drive_job_scripts(const struct step* step);
/* The step of a special kind on one node: the batch script, the extern or the interactive step. */
void drive_special_step(struct node* node, const struct step* step, uint32_t step_id);

/* srun, and where it launches, every node. */
void drive(struct run* run, const struct step* step);

void submission_free(struct submission* submission);
void node_free(struct node* node);
void run_free(struct run* run);

/* Where Slurm keeps an option between sbatch and an srun in its script, and between srun and the nodes. */
#define OPTION_OF_JOB "_SLURM_SPANK_OPTION_aml_dist_aml_dist"
#define OPTION_FOR_SRUN "SLURM_SPANK_" OPTION_OF_JOB

#endif
