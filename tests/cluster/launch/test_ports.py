"""The port is tried on rank 0's node before its tasks start, and leased against our own steps."""

import time

import pytest
from cluster import PROBE, read_reports
from test_batch import script, wait_until


def hold(port: int) -> list[str]:
    """Lines of a batch script on node1: step 0 listens on the port of that node, from here on."""
    program = f"/usr/bin/python3 -c 'import socket,time; s=socket.create_server((\"\", {port})); time.sleep(80)'"
    return [f"srun --overlap -w node1 -N1 -n1 {program} &", f"until ss -Hltn sport = :{port} | grep -q .; do sleep 0.1; done"]


@pytest.mark.parametrize("flags", ["", "--kill-on-bad-exit=1", "--kill-on-bad-exit=0"])
def test_a_port_in_use_ends_the_whole_step_at_once(cluster, workdir, flags):
    """Some other program listens on rank 0's node; the tasks of the other nodes must not wait for it."""
    job = script(workdir, *hold(23999), "date +%s.%N", "srun --overlap --aml-dist=pytorch true", "date +%s.%N",
                 f"srun --overlap {flags} --aml-dist=pytorch,master_port=23999 sleep 30", "echo status $?", "date +%s.%N",
                 "scancel --signal=KILL --quiet $SLURM_JOB_ID.0", "exit 0")
    done, out = cluster.job_output(f"-w node[1-3] -N3 -n6 --overcommit {job}", workdir)
    lines = [line for line in out.splitlines() if "aml-dist: " in line]
    assert lines == ["aml-dist: port 23999 on node1 is taken by another program: give another with master_port=N, "
                     "or submit again"], str(done) + out
    assert "status 0" not in out, out
    first, began, ended = (float(line) for line in out.splitlines() if line.replace(".", "").isdigit())
    launch = max(1, 3 * (began - first))  # as this machine launches steps just now
    assert ended - began < 2 + launch, f"the rest of the step ran on for {ended - began} s"


def test_two_jobs_with_one_port_are_kept_apart(cluster, workdir):
    """The first step has not bound its port yet when the second starts: only the lease can tell."""
    first = script(workdir, f"srun --aml-dist=pytorch,master_port=23998 bash -c 'touch {workdir}/runs; sleep 60'")
    identifier = cluster.run(f"sbatch --parsable --output=/dev/null -w node2 -N1 -n1 {first}").out.strip()
    wait_until((workdir / "runs").exists)
    second = cluster.run("srun -w node2 -N1 -n1 --aml-dist=pytorch,master_port=23998 true")
    assert second.status != 0 and len(second.own_lines()) == 1, str(second)
    assert "taken by another step that uses aml-dist" in second.own_lines()[0]
    elsewhere = cluster.run("srun -w node3 -N1 -n1 --aml-dist=pytorch,master_port=23998 true")
    assert elsewhere.status == 0, str(elsewhere)
    cluster.run(f"scancel {identifier}; while squeue -h -j {identifier} | grep -q .; do sleep 0.1; done")
    again = cluster.run("srun -w node2 -N1 -n1 --aml-dist=pytorch,master_port=23998 true")
    assert again.status == 0, "the lease ended with its step: " + str(again)


def test_a_port_of_roots_is_not_tried_for_a_user(cluster):
    """slurmstepd could listen there, but the user's program could not; root must not act for the user."""
    refused = cluster.run("srun -w node1 -N1 -n2 --aml-dist=pytorch,master_port=22 true", user="alice")
    assert refused.status != 0 and len(refused.own_lines()) == 1, str(refused)
    assert "port 22 on node1 needs root, as all ports below 1024" in refused.own_lines()[0]
    assert cluster.run("srun -w node1 -N1 -n1 --aml-dist=pytorch,master_port=22 true").status == 0
    tensorflow = cluster.run("srun -w node1 -N1 -n2 --aml-dist=tensorflow,master_port=1023 true", user="alice")
    assert tensorflow.status != 0 and "port 1023" in str(tensorflow.own_lines()), str(tensorflow)


def test_a_server_of_the_users_own_is_left_alone(cluster):
    """MASTER_ADDR names a machine that is not rank 0's: its port is not ours to try."""
    done = cluster.run("srun -w node1 -N1 -n1 --aml-dist=pytorch,master_addr=my.server,master_port=6817 true")
    assert done.status == 0, str(done)


def test_tensorflow_ports_are_one_for_each_task(cluster):
    tasks = cluster.tasks("-N2 --ntasks-per-node=2 --aml-dist=tensorflow")
    for task in tasks:
        assert f'"index": {task.procid}' in task.env["TF_CONFIG"].replace('"index":', '"index": ')


def test_reserved_ports_come_first(cluster):
    done = cluster.run(f"srun -N2 -n2 --export=ALL,SLURM_STEP_RESV_PORTS=12001-12003 --aml-dist=pytorch {PROBE}")
    assert {task.env["MASTER_PORT"] for task in read_reports(done.out)} == {"12001"}, str(done)


def test_ports_that_were_reserved_for_an_outer_step_are_not_taken(cluster):
    tasks = cluster.tasks("-N2 -n2 --aml-dist=pytorch", env={"SLURM_STEP_RESV_PORTS": "12001-12003"})
    ports = {task.env["MASTER_PORT"] for task in tasks}
    assert len(ports) == 1 and 20000 <= int(ports.pop()) <= 29999


def wait_for_step(cluster, job: str) -> None:
    """squeue knows no step of a step manager; scontrol asks that too."""
    deadline = time.monotonic() + 60
    while f"StepId={job}.0 " not in cluster.run(f"scontrol show step {job}.0").out:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    time.sleep(0.5)
