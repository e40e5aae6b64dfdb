"""Launchers that bind no process to processors, and what else of theirs is left out."""

from __future__ import annotations

import re

import pytest
from test_launchers import words_of


@pytest.mark.parametrize("tool, line, binding", [
    ("torchrun", "--nproc-per-node 4 t.py", ["--cpu-bind=none"]), ("torchrun", "--tee 3 t.py", ["--cpus-per-task=1"]),
    ("deepspeed", "--num_gpus 2 t.py", ["--cpu-bind=none"]), ("deepspeed", "--num_gpus 2 --bind_cores_to_rank t.py", ["--cpu-bind=cores"]),
    ("horovodrun", "-np 2 t", ["--cpu-bind=none"]), ("horovodrun", "-np 2 --mpi-args='--bind-to core' t", ["--cpu-bind=cores"]),
    ("torchrun", "--slurm=-c8 --nproc-per-node 4 t.py", ["--cpus-per-task=8"]), ("mpirun", "-n 2 ./a", []),
    ("torchrun", "--slurm=--cpu-bind=map_ldom:0,1 --nproc-per-node 2 t.py", ["--cpu-bind=map_ldom:0,1"]),
    ("torchrun", "--slurm=--hint=nomultithread t.py", ["--hint=nomultithread"])])
def test_processors_are_bound_as_the_real_launcher_binds_them(tool, line, binding):
    about = re.compile("--(cpu-bind|cpus-per-task|hint)=")
    assert [word for word in words_of(tool, line)[0] if about.match(word)] == binding
    if tool == "torchrun" and "--slurm" not in line:  # what the allocation has on a node is theirs
        inside = words_of(tool, line, env={"SLURM_JOB_ID": "1", "SLURM_CPUS_PER_TASK": "8"})[0]
        assert [word for word in inside if about.match(word)] == ["--cpu-bind=none"]
        assert not [word for word in words_of(tool, line, env={"SRUN_CPUS_PER_TASK": "8", "SLURM_JOB_ID": "1"})[0] if about.match(word)]


def test_torchrun_takes_the_flag_of_torch_distributed_launch():
    words, said = words_of("torchrun", "--nproc_per_node=2 --use_env t.py")
    assert words[-3:] == ["python3", "-u", "t.py"] and said == "aml-dist: --use_env is ignored: each process has LOCAL_RANK in its environment, as under torchrun\n"
