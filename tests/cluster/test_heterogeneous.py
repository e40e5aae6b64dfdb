"""Heterogeneous steps count over all of their components; one group alone is an ordinary step."""

import pytest
from cluster import PROBE as PROGRAM
from cluster import read_reports
from oracle import check_master_is_on_host_of_rank_zero, check_pytorch
from test_batch import script

# Each node asks slurmctld for the components, so none of them may have ended before the last one has started.
PROBE = f"{PROGRAM} 3"


def steps(out: str):
    """Reports ordered by the rank that Slurm gave each task over the whole step."""
    return sorted(read_reports(out), key=lambda task: task.procid)


@pytest.mark.parametrize("components", [
    "-n2 --aml-dist=pytorch {probe} : -n1 {probe}",
    "-N1 -n1 --aml-dist=pytorch {probe} : -N2 -n4 {probe}",
    "-N1 -n1 {probe} : -N2 -n2 --aml-dist=pytorch {probe}",
    "-N1 -n2 --aml-dist=pytorch {probe} : -N1 -n1 {probe} : -N1 -n3 {probe}",
])
def test_srun_allocates_the_components(cluster, addresses, components):
    done = cluster.run("srun " + components.format(probe=PROBE))
    assert done.status == 0, str(done)
    tasks = steps(done.out)
    check_pytorch(tasks)
    check_master_is_on_host_of_rank_zero(tasks, addresses)


def test_components_inside_one_job(cluster, addresses, workdir):
    job = script(workdir, f"srun -N1 -n2 --aml-dist=pytorch {PROBE} : -N2 -n3 {PROBE}")
    _, out = cluster.job_output(f"-N3 -n6 --overcommit --ntasks-per-node=3 {job}", workdir)
    tasks = steps(out)
    assert len(tasks) == 5, out
    check_pytorch(tasks)
    check_master_is_on_host_of_rank_zero(tasks, addresses)


@pytest.mark.parametrize("groups, size", [("0,1", 3), ("0", 1), ("1", 2)])
def test_groups_of_a_heterogeneous_job(cluster, addresses, workdir, groups, size):
    job = script(workdir, f"srun --het-group={groups} --aml-dist=pytorch {PROBE}")
    done, out = heterogeneous(cluster, workdir, job)
    tasks = steps(out)
    assert len(tasks) == size, str(done) + out
    check_pytorch(tasks)
    check_master_is_on_host_of_rank_zero(tasks, addresses)


def heterogeneous(cluster, workdir, job):
    out = workdir / "het.out"
    done = cluster.run(f"cd {workdir} && sbatch --wait --output={out} -N1 -n1 : -N2 -n2 {job}")
    return done, out.read_text() if out.exists() else ""


def test_counts_are_of_the_whole_step(cluster):
    right = cluster.run("srun -N1 -n2 --aml-dist=pytorch,process_count=3,node_count=2 sleep 3 : -N1 -n1 sleep 3")
    assert right.status == 0, str(right)
    wrong = cluster.run("srun -N1 -n2 --aml-dist=pytorch,process_count=2 sleep 80 : -N1 -n1 sleep 80", timeout=60)
    assert wrong.status not in (0, 124), str(wrong)
    assert any("process_count=2" in line and "3 tasks" in line for line in wrong.own_lines()), str(wrong)


def test_different_options_on_components_are_refused(cluster):
    done = cluster.run("srun -N1 -n1 --aml-dist=pytorch true : -N1 -n1 --aml-dist=mpi true", timeout=60)
    assert done.status not in (0, 124) and len(done.own_lines()) == 1, str(done)
    assert "different --aml-dist options" in done.own_lines()[0]
    same = cluster.run("srun -N1 -n1 --aml-dist=pytorch sleep 3 : -N1 -n1 --aml-dist=pytorch sleep 3")
    assert same.status == 0, str(same)
