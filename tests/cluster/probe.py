#!/usr/bin/python3 -S
"""Reports what one task observes: its host from the kernel, its ids from Slurm, its environment.

Slurm passes output on in messages of 1,024 bytes at most and mixes the tasks between them, so a report is many short
lines, each with the task's name: `probe: JOB.STEP.PROCID ["VARIABLE", PIECE]`. An argument says how many seconds the
task stays after that.
"""

import json
import os
import sys
import time

KEPT = ("MASTER_", "RANK", "WORLD_SIZE", "LOCAL_", "NODE_RANK", "GROUP_", "PET_", "AZ", "AMLDIST_", "OMPI_", "TF_CONFIG",
        "JAX_", "SLURM_", "GLOO_", "NCCL_", "PMIX_", "CUDA_")
PIECE = 600

environment = os.environ
hidden = "AMLDIST_HIDDEN_SLURM_STEP_ID"
step = environment.get("SLURM_STEP_ID", environment.get(hidden, "?"))
name = f"{environment['SLURM_JOB_ID']}.{step}.{environment['SLURM_PROCID']}"
facts = {"<host>": os.uname().nodename}
facts.update((key, value) for key, value in environment.items() if key.startswith(KEPT))
for key, value in facts.items():
    for start in range(0, max(1, len(value)), PIECE):
        line = f"probe: {name} {json.dumps([key, value[start:start + PIECE]])}\n"
        os.write(1, line.encode())

if len(sys.argv) > 1:
    time.sleep(float(sys.argv[1]))
