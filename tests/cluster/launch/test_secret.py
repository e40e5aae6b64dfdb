"""The step's secret: the same in all tasks of a step, another in each step, and nowhere else."""

import re

import pytest
from cluster import PROBE, read_reports
from test_batch import script

SECRET = re.compile(r"[0-9a-f]{64}")
OUTER = "ab" * 32


def secrets_of(tasks) -> set[str]:
    return {task.env.get("AMLDIST_STEP_SECRET", "") for task in tasks}


def only_secret_of(tasks) -> str:
    found = secrets_of(tasks)
    assert len(found) == 1, found
    assert SECRET.fullmatch(*found), found
    assert not [task for task in tasks if "SLURM_AMLDIST_SECRET" in task.env]
    return found.pop()


@pytest.mark.parametrize("arguments", ["", "--export=NONE", "--export=NONE,PATH", "--mpi=none"])
def test_all_tasks_of_a_step_have_one_and_the_next_step_another(cluster, arguments):
    first = only_secret_of(cluster.tasks(f"-N4 -n5 {arguments} --aml-dist=pytorch"))
    second = only_secret_of(cluster.tasks(f"-N2 -n2 {arguments} --aml-dist=mpi", env={"AMLDIST_STEP_SECRET": OUTER}))
    assert len({first, second, OUTER}) == 3


@pytest.mark.parametrize("components", [
    "-N1 -n1 --aml-dist=pytorch {probe} : -N2 -n4 {probe}",
    "-N1 -n1 {probe} : -N2 -n2 --aml-dist=pytorch {probe}",
])
def test_all_components_have_one(cluster, components):
    done = cluster.run("srun " + components.format(probe=PROBE))
    assert done.status == 0, str(done)
    only_secret_of(read_reports(done.out))


def test_a_launcher_on_each_node_has_it(cluster):
    only_secret_of(cluster.tasks("-N2 -n2 --aml-dist=pytorch,launch=per-node"))


def test_steps_of_a_batch_job_have_their_own(cluster, workdir):
    job = script(workdir, f"srun -N2 -n2 {PROBE}\nsrun -N2 -n2 {PROBE}\nsrun -N2 -n2 --aml-dist=none {PROBE}\n"
                          "echo \"batch: ${AMLDIST_STEP_SECRET-none}\"")
    _, out = cluster.job_output(f"-N2 --aml-dist=pytorch {job}", workdir)
    tasks = read_reports(out)
    assert len(tasks) == 6, out
    assert only_secret_of(tasks[:2]) != only_secret_of(tasks[2:4])
    assert secrets_of(tasks[4:]) == {""}
    assert "batch: none" in out


@pytest.mark.parametrize("option", ["", "--aml-dist=none"])
def test_an_inner_step_without_a_kind_has_none(cluster, option):
    inner = f"srun --overlap -N1 -n1 {option} {PROBE}"
    done = cluster.run(f"salloc -N1 -n1 srun --overlap -N1 -n1 --aml-dist=pytorch bash -c '{inner}'")
    tasks = read_reports(done.out)
    assert len(tasks) == 1, str(done)
    assert secrets_of(tasks) == {""}


def test_no_line_or_record_of_slurms_shows_it(cluster):
    show = "; ".join(["echo secret $AMLDIST_STEP_SECRET", "sleep 1", "scontrol show job $SLURM_JOB_ID",
                      "scontrol show step $SLURM_JOB_ID", "squeue -o %all -j $SLURM_JOB_ID", "ps axww -o args"])
    done = cluster.run(f"srun -N2 -n2 --aml-dist=pytorch,verbose bash -c '{show}'")
    assert done.status == 0, str(done)
    secret = re.search(r"^secret (\w+)$", done.out, re.MULTILINE)[1]
    assert SECRET.fullmatch(secret), str(done)
    rest = "\n".join(line for line in (done.out + done.err).splitlines() if line != f"secret {secret}")
    assert secret not in rest and "aml-dist: " in rest, rest
