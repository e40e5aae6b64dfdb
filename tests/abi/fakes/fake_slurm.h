/* The step that slurmctld knows about. */
#ifndef AMLDIST_TESTS_ABI_FAKE_SLURM_H
#define AMLDIST_TESTS_ABI_FAKE_SLURM_H

#include "step.h"

extern const struct step* fake_step;

/* SrunPortRange of slurm.conf: first and last port; zeros without one. */
extern uint16_t fake_srun_ports[2];

/* What slurmstepd's part of the plugin asks Slurm for, reads or changes: lines "read variable NAME". NULL: nothing yet.
 */
extern char* fake_spank_variables;

#endif
