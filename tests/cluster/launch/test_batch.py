"""sbatch and salloc, with the option on the batch line or on the step."""

import time

import pytest
from cluster import PROBE, read_reports
from oracle import check_master_is_on_host_of_rank_zero, check_pytorch, own_names


def script(directory, *lines: str):
    path = directory / "job.sh"
    path.write_text("#!/bin/bash\n" + "\n".join(lines) + "\n")
    path.chmod(0o755)
    return path


def test_the_option_on_the_step(cluster, addresses, workdir):
    job = script(workdir, f"srun --aml-dist=pytorch {PROBE}")
    done, out = cluster.job_output(f"-N4 --ntasks-per-node=2 {job}", workdir)
    assert done.status == 0, str(done) + out
    tasks = read_reports(out)
    assert len(tasks) == 8
    check_pytorch(tasks)
    check_master_is_on_host_of_rank_zero(tasks, addresses)


def test_the_option_on_the_batch_line(cluster, addresses, workdir):
    job = script(workdir, f"srun {PROBE}")
    done, out = cluster.job_output(f"--aml-dist=pytorch -N4 -n8 {job}", workdir)
    assert done.status == 0, str(done) + out
    tasks = read_reports(out)
    assert len(tasks) == 8
    check_pytorch(tasks)
    check_master_is_on_host_of_rank_zero(tasks, addresses)


def test_the_option_in_the_script_as_a_directive(cluster, workdir):
    job = script(workdir, "#SBATCH --aml-dist=pytorch", f"srun {PROBE}")
    done, out = cluster.job_output(f"-N2 -n4 {job}", workdir)
    assert done.status == 0, str(done) + out
    check_pytorch(read_reports(out))


def test_the_steps_option_wins_over_the_batch_lines(cluster, workdir):
    job = script(workdir, f"srun --aml-dist=pytorch,master_port=7001 {PROBE}")
    _, out = cluster.job_output(f"--aml-dist=pytorch,master_port=6105 -N2 -n2 {job}", workdir)
    assert [task.env["MASTER_PORT"] for task in read_reports(out)] == ["7001"] * 2, out


def test_none_switches_the_batch_lines_option_off_for_one_step(cluster, workdir):
    job = script(workdir, f"srun --aml-dist=none {PROBE}")
    _, out = cluster.job_output(f"--aml-dist=pytorch -N2 -n2 {job}", workdir)
    tasks = read_reports(out)
    assert len(tasks) == 2 and all(own_names(task) == set() for task in tasks), out


def test_the_batch_script_itself_gets_nothing(cluster, workdir):
    """But the option's second name, for the steps that it starts."""
    job = script(workdir, "env | grep -E '^(RANK|MASTER_|AMLDIST|SLURM_AMLDIST)' | grep -v '^AMLDIST_OPTION=pytorch$' || echo clean")
    _, out = cluster.job_output(f"--aml-dist=pytorch -N2 -n2 {job}", workdir)
    assert out == "clean\n"


def test_steps_on_part_of_the_job(cluster, addresses, workdir):
    job = script(workdir, f"srun -N2 -n4 --relative=2 --aml-dist=pytorch {PROBE}")
    _, out = cluster.job_output(f"-N4 --ntasks-per-node=2 {job}", workdir)
    tasks = read_reports(out)
    assert {task.host for task in tasks} == {"node3", "node4"}, out
    check_pytorch(tasks)
    check_master_is_on_host_of_rank_zero(tasks, addresses)


def test_srun_on_the_master_host_itself_finds_a_reachable_address(cluster, addresses, workdir):
    """The batch script runs on rank 0's host, whose own name Debian maps to 127.0.1.1."""
    assert cluster.devcluster("break", "node1", "loopback-name").status == 0
    try:
        job = script(workdir, f"srun --aml-dist=pytorch {PROBE}")
        done, out = cluster.job_output(f"-w node[1-2] -N2 -n4 {job}", workdir)
    finally:
        assert cluster.devcluster("heal", "all").status == 0
    assert done.status == 0, str(done) + out
    check_master_is_on_host_of_rank_zero(read_reports(out), addresses)


def test_concurrent_steps_of_a_job_have_different_ports(cluster, workdir):
    step = f"srun --exact --overlap -N1 -n1 --aml-dist=pytorch {PROBE} &"
    job = script(workdir, *[step] * 12, "wait")
    _, out = cluster.job_output(f"-N1 -n12 --overcommit {job}", workdir)
    ports = [task.env["MASTER_PORT"] for task in read_reports(out)]
    assert len(ports) == 12 and len(set(ports)) == 12, out


def test_a_step_started_by_a_task_replaces_what_the_outer_step_left(cluster, workdir):
    inner = f"srun --overlap -N1 -n1 -w node2 --aml-dist=pytorch {PROBE}"
    job = script(workdir, f"srun -N2 -n2 --aml-dist=pytorch bash -c 'if [ $RANK = 0 ]; then echo outer $MASTER_PORT; {inner}; fi'")
    done, out = cluster.job_output(f"-w node[1-2] -N2 -n2 --overcommit {job}", workdir)
    tasks = read_reports(out)
    assert len(tasks) == 1, str(done) + out
    outer = next(line.split()[1] for line in out.splitlines() if line.startswith("outer"))
    assert tasks[0].env["WORLD_SIZE"] == "1" and tasks[0].env["MASTER_PORT"] != outer
    assert "keeping your" not in out, "the outer step's address is ours, not the user's"


def test_salloc(cluster):
    done = cluster.run(f"salloc -N2 -n4 --aml-dist=pytorch srun {PROBE}")
    assert done.status == 0, str(done)
    check_pytorch(read_reports(done.out))


def test_another_user(cluster, workdir):
    tasks = cluster.tasks("-N4 -n8 --aml-dist=pytorch", user="alice")
    check_pytorch(tasks)
    job = script(workdir, f"srun --aml-dist=pytorch {PROBE}")
    done, out = cluster.job_output(f"-N2 -n4 {job}", workdir, user="bob")
    assert done.status == 0, str(done) + out
    check_pytorch(read_reports(out))


def test_job_arrays_have_different_ports(cluster, workdir):
    job = script(workdir, f"srun --aml-dist=pytorch {PROBE}")
    done = cluster.run(f"cd {workdir} && sbatch --wait --array=1-4 --output=a%a.out -N1 -n1 {job}")
    assert done.status == 0, str(done)
    ports = {read_reports((workdir / f"a{index}.out").read_text())[0].env["MASTER_PORT"] for index in range(1, 5)}
    assert len(ports) == 4


def test_a_requeued_job_gets_another_port(cluster, workdir):
    job = script(workdir, "srun --aml-dist=pytorch bash -c 'echo $MASTER_PORT' >> ports.out",
                 "[ ${SLURM_RESTART_COUNT:-0} -gt 0 ] || sleep 60")
    submitted = cluster.run(f"cd {workdir} && sbatch --parsable --requeue --output=log.out --open-mode=append -N1 -n1 {job}")
    identifier = submitted.out.strip()
    ports, log = workdir / "ports.out", workdir / "log.out"
    ports.touch()
    wait_until(lambda: len(ports.read_text().split()) == 1)
    assert cluster.run(f"scontrol requeue {identifier}").status == 0

    def state() -> str:
        return cluster.run(f"scontrol show job {identifier}").out

    # Slurm holds a requeued job back for a while. To start it at once by `scontrol update` would be a race with the end
    # of its first run on the node, which then takes the second for a duplicate: the job is FAILED.
    wait_until(lambda: len(ports.read_text().split()) == 2, seconds=180,
               explain=lambda: state() + (log.read_text() if log.exists() else ""))
    first, second = ports.read_text().split()
    assert first != second


def wait_until(condition, seconds: float = 60, explain=lambda: "") -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain: " + explain()
        time.sleep(0.2)
