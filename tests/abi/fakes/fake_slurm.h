/* The step that slurmctld knows about. */
#ifndef AMLDIST_TESTS_ABI_FAKE_SLURM_H
#define AMLDIST_TESTS_ABI_FAKE_SLURM_H

#include "step.h"

extern const struct step* fake_step;

/* SrunPortRange of slurm.conf: first and last port; zeros without one. */
extern uint16_t fake_srun_ports[2];

#endif
