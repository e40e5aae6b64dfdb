"""Heterogeneous steps count over all of their components; one group alone is an ordinary step."""

import json
import re
import subprocess

import pytest
from cluster import PROBE, read_reports
from oracle import check_master_is_on_host_of_rank_zero, check_pytorch
from test_batch import script
from test_citizens import loopback_names
from test_ports import hold


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
    right = cluster.run("srun -N1 -n2 --aml-dist=pytorch,process_count=3,node_count=2 true : -N1 -n1 true")
    assert right.status == 0, str(right)
    wrong = cluster.run("srun -N1 -n2 --aml-dist=pytorch,process_count=2 echo started : -N1 -n1 echo started", timeout=60)
    assert wrong.status not in (0, 124) and "started" not in wrong.out, str(wrong)
    lines = wrong.own_lines()
    assert len(lines) == 1 and "process_count=2" in lines[0] and "3 tasks" in lines[0], str(wrong)


def test_no_component_waits_for_another(cluster):
    """The first has ended long before the last one starts."""
    for _ in range(5):
        done = cluster.run(f"srun -N1 -n1 --aml-dist=pytorch true : -N1 -n1 {PROBE} : -N2 -n2 true")
        assert done.status == 0 and len(read_reports(done.out)) == 1, str(done)


def test_tensorflow_roles_go_on_over_the_components(cluster):
    done = cluster.run(f"srun -N1 -n2 --aml-dist=tensorflow,chief_count=1 {PROBE} : -N2 -n2 {PROBE}")
    tasks = steps(done.out)
    assert done.status == 0 and len(tasks) == 4, str(done)
    clusters = [json.loads(task.env["TF_CONFIG"]) for task in tasks]
    assert [(c["task"]["type"], c["task"]["index"]) for c in clusters] == [("chief", 0), ("worker", 0), ("worker", 1), ("worker", 2)]
    ports = [endpoint.rsplit(":")[-1] for endpoint in clusters[0]["cluster"]["chief"] + clusters[0]["cluster"]["worker"]]
    first = int(ports[0])
    assert [int(port) - first for port in ports] == [0, 1, 0, 0], ports


def test_a_taken_port_ends_every_component(cluster, workdir):
    step = "srun --overlap -w node1 -N1 -n1 --aml-dist=pytorch,master_port=23997 sleep 60 : --overlap -w node2 -N1 -n1 sleep 60"
    job = script(workdir, *hold(23997), step, "echo status $?", "scancel --signal=KILL --quiet $SLURM_JOB_ID.0", "exit 0")
    done, out = cluster.job_output(f"-w node[1-2] -N2 -n4 --overcommit {job}", workdir)
    lines = [line for line in out.splitlines() if "aml-dist: " in line]
    assert len(lines) == 1 and "port 23997 on node1 is taken by another program" in lines[0], str(done) + out
    assert "status 0" not in out, out


def test_a_master_name_that_is_loopback_at_home_is_refused(cluster):
    with loopback_names(cluster, "node1"):
        done = cluster.run("srun -w node1 -N1 -n1 --aml-dist=pytorch,master_addr=name sleep 60 : -w node2 -N1 -n1 sleep 60",
                           timeout=40)
    assert done.status not in (0, 124), str(done)
    assert len(done.own_lines()) == 1 and "127.0.1.1" in done.own_lines()[0], str(done)


def test_different_options_on_components_are_refused(cluster):
    done = cluster.run("srun -N1 -n1 --aml-dist=pytorch true : -N1 -n1 --aml-dist=mpi true", timeout=60)
    assert done.status not in (0, 124) and len(done.own_lines()) == 1, str(done)
    assert "different --aml-dist options" in done.own_lines()[0]
    same = cluster.run("srun -N1 -n1 --aml-dist=pytorch true : -N1 -n1 --aml-dist=pytorch true")
    assert same.status == 0, str(same)


def test_nobody_watches_for_hangs_and_a_line_says_so(cluster):
    done = cluster.run("srun -N1 -n1 --aml-dist=pytorch,hang=60 true : -N1 -n1 --aml-dist=pytorch,hang=60 true")
    assert done.status == 0, done
    assert [line for line in done.own_lines() if "not watched for hangs" in line] == [
        "aml-dist: hang=60: this step is not watched for hangs, because each component of a heterogeneous step sees only its own ranks; "
        "its calls are recorded for 'aml-dist trace'"], done


def silencer(workdir) -> str:
    """A library under which srun answers no datagram."""
    library = workdir / "silent.so"
    source = "#include <stddef.h>\nlong sendto(int f, const void* d, size_t n) { (void)f; (void)d; return (long)n; }\n"
    subprocess.run(["cc", "-shared", "-fPIC", "-fno-builtin", "-x", "c", "-o", library, "-"], input=source, text=True, check=True)
    return str(library)


def layouts_asked_for(cluster) -> int:
    diagnosis = cluster.run("sdiag").out
    found = re.search(r"REQUEST_STEP_LAYOUT\s.*?count:(\d+)", diagnosis)
    return int(found[1]) if found else 0


def test_without_srun_nothing_starts_and_little_is_asked(cluster, workdir):
    """Every node asks for the layouts of the step's own components, and no more. Whether all have aml-dist nobody can say."""
    (workdir / "program").mkdir()
    program = script(workdir / "program", str(PROBE), "sleep 8")  # slurmctld forgets a component that has ended
    job = script(workdir, f"LD_PRELOAD={silencer(workdir)} srun --het-group=0,1 --aml-dist=pytorch {program}")
    before = layouts_asked_for(cluster)
    done, out = heterogeneous(cluster, workdir, job)
    asked = layouts_asked_for(cluster) - before
    assert done.status != 0 and "probe: " not in out, str(done) + out
    assert "(UDP port " in out and "plugstack.conf" not in out, out
    assert 4 < asked <= 12, f"{asked} layouts: srun and each node that has no record ask for two, and in vain inside the job"
