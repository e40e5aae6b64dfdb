"""Where Slurm binds tasks to processors (task/affinity): the processes of launchers that bind nothing have all of their node's step."""

import os

import pytest
from cluster import READABLE, Cluster
from conftest import NAME, PLUGIN, RELEASE

SHOW = "grep Cpus_allowed_list /proc/self/status"


@pytest.fixture(scope="module")
def bound():
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("this machine has one processor")
    cluster = Cluster(f"{NAME}-cpu"[-16:].lstrip("-"), 1)
    started = cluster.devcluster("start", "--nodes", "1", "--cpus", "2", "--conf", "TaskPlugin=task/affinity", "--conf", "SelectTypeParameters=CR_Core",
                                 "--restart", "--plugin", PLUGIN, *(["--release", RELEASE] if RELEASE else []))
    assert started.status == 0, str(started)
    yield cluster
    assert cluster.devcluster("stop").status == 0


def processors(done) -> list[int]:
    """How many each process may use."""
    assert done.status == 0, str(done)
    lists = [line.split()[1] for line in done.out.splitlines() if line.startswith("Cpus_allowed_list")]
    return [sum(int(part.split("-")[-1]) - int(part.split("-")[0]) + 1 for part in each.split(",")) for each in lists]


@pytest.mark.parametrize("line", ["", "salloc -Q -N1 -n2 ", "salloc -Q -N1 -n1 -c2 "])
@pytest.mark.parametrize("launcher", ["aml-torchrun --nproc-per-node=2 --no-python", "aml-horovodrun -np 2 --slurm=--mpi=none",
                                      "aml-deepspeed --num_gpus 2 --slurm=--gpus-per-node=0 --no_python --no_local_rank"])
def test_a_process_may_use_all_of_its_nodes_step(bound, launcher, line):
    assert processors(bound.run(f"export PATH={READABLE}:$PATH; {line}{launcher} {SHOW}", user="alice")) == [2, 2]


def test_who_says_how_many_gets_slurms_binding(bound):
    line = f"export PATH={READABLE}:$PATH; aml-torchrun --nproc-per-node=2 --slurm=--cpus-per-task=1 --no-python {SHOW}"
    assert processors(bound.run(line, user="alice")) == [1, 1]
