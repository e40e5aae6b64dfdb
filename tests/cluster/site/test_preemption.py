"""A job with the key stop= is preempted with a grace time: its ranks learn it at the same step."""

import pathlib
import shlex

import pytest
from cluster import Cluster
from conftest import NAME, PLUGIN, RELEASE
from test_faults import Background, wait_until
from test_stop import agreed_step, stepper, watcher  # noqa: F401 (fixtures)

CONF = ["PreemptType=preempt/partition_prio", "PreemptMode=CANCEL", "PartitionName=low Nodes=ALL PriorityTier=1 GraceTime=20 MaxTime=INFINITE State=UP",
        "PartitionName=high Nodes=ALL PriorityTier=9 MaxTime=INFINITE State=UP"]


@pytest.fixture(scope="module")
def preempting():
    cluster = Cluster(f"{NAME}-pr"[-16:].lstrip("-"), 2)
    started = cluster.devcluster("start", "--nodes", "2", "--restart", "--plugin", PLUGIN, *(word for each in CONF for word in ("--conf", each)),
                                 *(["--release", RELEASE] if RELEASE else []))
    assert started.status == 0, str(started)
    yield cluster
    assert cluster.devcluster("stop").status == 0


def preempt(cluster: Cluster, step: Background, workdir: pathlib.Path) -> str:
    """What the step has printed when the other job has begun."""
    other = workdir / "other"
    cluster.run(f"sbatch -p high -N2 --exclusive -o /dev/null --wrap {shlex.quote(f'touch {other}')}")
    wait_until(other.exists, 60)
    return step.wait()


def test_the_ranks_of_a_program_with_the_library_stop_at_one_step(preempting, workdir, stepper):  # noqa: F811
    step = Background(preempting, workdir, f"srun -p low -t 10 --exclusive -N2 -n5 --aml-dist=pytorch,stop=60 {stepper}")
    wait_until(lambda: "steps" in step.text(), 40)
    agreed_step(preempt(preempting, step, workdir), 5)


def test_the_file_appears_although_the_limit_is_far_away(preempting, workdir, watcher):  # noqa: F811
    """A program that ignores SIGTERM and looks for the file."""
    program = workdir / "program"
    program.write_text(f"#!/bin/bash\ntrap '' TERM\nexec {watcher}\n")
    program.chmod(0o755)
    step = Background(preempting, workdir, f"srun -p low -t 10 --exclusive -N2 -n2 --aml-dist=pytorch,stop=60 {program}")
    wait_until(lambda: step.text().count("file /") == 2, 40)
    text = preempt(preempting, step, workdir)
    assert text.count("stopped ") == 2, text
