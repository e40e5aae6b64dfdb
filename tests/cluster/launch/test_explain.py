"""`aml-dist explain` in the tasks of running steps: what it says of the others against what they observe."""

import json
import os
import shlex

import pytest
from cluster import PROBE, ROOT, read_reports

TOOL = os.environ.get("AMLDIST_TOOL", str(ROOT / "build-development/bin/aml-dist"))


def explained_by_each(workdir, size: int) -> list[list[dict]]:
    return [json.loads((workdir / f"explained-{rank}").read_text()) for rank in range(size)]


def command(workdir) -> str:
    line = f"{PROBE}; {TOOL} explain --json > {workdir}/explained-$SLURM_PROCID 2> {workdir}/said-$SLURM_PROCID"
    return f"bash -c {shlex.quote(line)}"


@pytest.mark.parametrize("arguments, hosts", [
    ("--aml-dist=pytorch -N3 -n7", ""),
    ("--aml-dist=pytorch -N4 -n11 --overcommit -m plane=2", ""),
    ("--aml-dist=pytorch -n4 -m arbitrary", "node3\nnode1\nnode3\nnode2\n"),
    ("--aml-dist=tensorflow,chief_count=1,parameter_server_count=1,evaluator_count=1 -N2 -n5 -m cyclic", ""),
    ("--aml-dist=mpi,launch=per-node -N3 -n3", ""),
])
def test_every_task_knows_every_other(cluster, workdir, arguments, hosts):
    (workdir / "hosts").write_text(hosts)
    env = {"SLURM_HOSTFILE": str(workdir / "hosts")} if hosts else {}
    done = cluster.run(f"srun {arguments} {command(workdir)}", env=env)
    assert done.status == 0, str(done)
    tasks = read_reports(done.out)
    for answer in explained_by_each(workdir, len(tasks)):
        assert [(task["rank"], task["host"]) for task in answer] == [(task.procid, task.host) for task in tasks]
        for said, task in zip(answer, tasks):
            differing = {name for name, value in said["env"].items() if task.env.get(name) != value}
            # What a launcher does not see of Slurm differs from task to task, or is PMIx's.
            assert {name for name in differing if not name.startswith("AMLDIST_HIDDEN_")} == set()


def test_a_heterogeneous_step_shows_each_task_itself(cluster, workdir):
    done = cluster.run(f"srun -N1 -n2 --aml-dist=pytorch {command(workdir)} : -N2 -n3 {command(workdir)}")
    assert done.status == 0, str(done)
    tasks = sorted(read_reports(done.out), key=lambda task: task.procid)
    for (said,), task in zip(explained_by_each(workdir, 5), tasks):
        assert (said["rank"], said["host"]) == (task.procid, task.host)
        assert all(task.env[name] == value for name, value in said["env"].items())
        assert "rank " in (workdir / f"said-{task.procid}").read_text()
