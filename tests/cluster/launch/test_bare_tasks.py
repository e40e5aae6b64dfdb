"""A node that starts its tasks without the plugin: the step is ended with a sentence that names it, whatever its program does."""

import concurrent.futures
import contextlib
import os
import pathlib
import re
import time

import pytest
from cluster import PROBE, read_reports
from late_step import late_step
from oracle import check_pytorch
from test_batch import script
from test_faults import wait_until

PLUGIN = os.environ["AMLDIST_PLUGIN"]
BARE = re.compile(r"aml-dist: node2 started its tasks without aml-dist.*plugstack\.conf does not load the plugin.*: the step is ended")
SHORT = "bash -c 'echo runs with rank=$RANK on $(hostname)'"
LONG = "bash -c 'echo runs with rank=$RANK on $(hostname); sleep 60'"


@contextlib.contextmanager
def mounted(cluster, workdir, text: str, over: str):
    """On node2 a file of its own lies over one that all nodes share."""
    own = workdir / "own"
    own.write_text(text)
    assert cluster.run(f"mount --bind {own} {over}", on="node2").status == 0
    try:
        yield
    finally:
        assert cluster.run(f"umount {over}", on="node2").status == 0


@pytest.fixture
def bare(cluster, workdir):
    plugstack = pathlib.Path(cluster.devcluster("conf").out.strip()).parent / "plugstack.conf"
    with mounted(cluster, workdir, "", str(plugstack)):
        yield


def check_ended(done, lines: str, sentence=BARE):
    """Only node2's tasks ran, and one line says why the step is over."""
    assert done.status == 1, str(done)
    assert len(sentence.findall(lines)) == 1, lines
    assert "first failure" not in lines and "on node1" not in lines, lines


@pytest.mark.parametrize("option", ["pytorch", "mpi", "tensorflow", "jax", "ray", "pytorch,launch=per-node", "mpi,launch=per-node"])
def test_every_kind(cluster, bare, option):
    done = cluster.run(f"srun -w node[1-2] -N2 --ntasks-per-node=1 --aml-dist={option} {LONG}", "alice")
    check_ended(done, done.out + done.err)


@pytest.mark.parametrize("command, nodes", [(SHORT, "node[1-2]"), (SHORT, "node2"), (LONG, "node2")])
def test_programs_that_end_at_once_and_steps_without_a_healthy_node(cluster, bare, command, nodes):
    done = cluster.run(f"srun -w {nodes} --aml-dist=pytorch {command}", "alice")
    check_ended(done, done.out + done.err)


def test_in_a_batch_job(cluster, bare, workdir):
    done, out = cluster.job_output(f"-w node[1-2] -N2 -n2 {script(workdir, f'srun --aml-dist=pytorch {LONG}')}", workdir, "alice")
    check_ended(done, out)


def test_when_srun_is_killed_before_the_nodes_have_reported(cluster, bare, workdir):
    """Nobody is there who could say why; the nodes that wait give up by themselves, and the step is over."""
    lines = [f"srun --aml-dist=pytorch {LONG} & sleep 1.5; kill -9 $!; wait", "for i in $(seq 60); do squeue -s -h -o %i | grep -q '[.]0$' || break; sleep 0.5; done",
             "echo over after $((i / 2)) s"]
    done, out = cluster.job_output(f"-w node[1-2] -N2 -n2 {script(workdir, *lines)}", workdir, "alice")
    assert "on node1" not in out and int(out.split("over after ")[1].split()[0]) < 25, str(done) + out


def test_in_a_heterogeneous_step(cluster, bare):
    done = cluster.run(f"srun -w node1 -n1 --aml-dist=pytorch {LONG} : -w node2 -n1 {LONG}", "alice", timeout=60)
    check_ended(done, done.out + done.err)


def test_without_the_option_nothing_is_asked(cluster, bare):
    done = cluster.run(f"srun -w node[1-2] -N2 -n2 {SHORT}")
    assert done.status == 0 and not done.own_lines(), str(done)


def test_the_plugins_file_is_missing(cluster, workdir):
    assert cluster.devcluster("break", "node2", "no-plugin").status == 0
    try:
        done = cluster.run(f"srun -w node[1-2] -N2 -n2 --aml-dist=pytorch {SHORT}", "alice")
    finally:
        assert cluster.devcluster("heal", "node2").status == 0
    assert "runs with" not in done.out, str(done)
    check_ended(done, done.out + done.err)


def test_it_is_switched_off_there(cluster, workdir):
    shared = workdir / "site.conf"
    shared.write_text("# nothing\n")
    shared.chmod(0o644)
    assert cluster.devcluster("plugin", PLUGIN, f"config={shared}").status == 0
    try:
        with mounted(cluster, workdir, "disabled\n", str(shared)):
            done = cluster.run(f"srun -w node[1-2] -N2 -n2 --aml-dist=pytorch {SHORT}", "alice")
            without = cluster.run(f"srun -w node[1-2] -N2 -n2 {SHORT}")
    finally:
        assert cluster.devcluster("plugin", PLUGIN).status == 0
    assert "runs with" not in done.out, str(done)
    check_ended(done, done.out + done.err, re.compile("aml-dist: on node node2 aml-dist is switched off"))
    assert without.status == 0 and not without.own_lines(), str(without)


@pytest.mark.parametrize("everywhere, there, who", [("default.main=pytorch\n", "", "srun's"), ("default.main=pytorch\n", "default.main=none\n", "srun's"),
                                                    ("", "default.main=pytorch\n", "the node's")])
def test_a_default_kind_that_not_all_machines_have(cluster, workdir, everywhere, there, who):
    """No task that could be numbered runs without its numbers, and the line says whose settings differ."""
    shared = workdir / "site.conf"
    shared.write_text(f"# nothing else\n{everywhere}")
    shared.chmod(0o644)
    workdir.chmod(0o755)
    assert cluster.devcluster("plugin", PLUGIN, f"config_optional={shared}").status == 0
    try:
        with mounted(cluster, workdir, there, str(shared)):
            done = cluster.run(f"srun -w node[1-2] -N2 -n2 {LONG}", "alice")
            without = cluster.run(f"srun -w node[1-2] -N2 -n2 --aml-dist=none {SHORT}", "alice")
    finally:
        assert cluster.devcluster("plugin", PLUGIN).status == 0
    said = {"srun's": "aml-dist: on node node2 the site's settings give the step no kind, but where the step was started they do (default.PARTITION)",
            "the node's": "aml-dist: srun sent no launch record: the srun that starts the step needs the aml-dist plugin too, with the same settings"}[who]
    assert done.status in ((1,) if who == "srun's" else (1, 137)) and (done.out + done.err).count(said) == 1, str(done)
    assert "on node2" not in done.out and ("on node1" not in done.out or who == "the node's"), str(done)
    assert without.status == 0 and not without.own_lines(), str(without)


def test_a_slow_node_is_none(cluster, workdir):
    """Its prolog takes longer than any healthy start."""
    conf = pathlib.Path(cluster.devcluster("conf").out.strip())
    before = conf.read_text()
    prolog = workdir / "prolog"
    prolog.write_text("#!/bin/sh\n[ \"$SLURMD_NODENAME\" != node2 ] || sleep 12\n")
    prolog.chmod(0o755)
    conf.write_text(before + f"Prolog={prolog}\n")
    try:
        assert cluster.run("scontrol reconfigure").status == 0
        time.sleep(1)
        started = time.monotonic()
        tasks = cluster.tasks("-w node[1-2] -N2 -n2 --aml-dist=pytorch")
    finally:
        conf.write_text(before)
        assert cluster.run("scontrol reconfigure").status == 0
    assert time.monotonic() - started > 11
    check_pytorch(tasks)


def test_a_task_that_is_stopped_while_it_waits_for_a_slow_node(cluster, workdir):
    """For longer than it waits for an answer."""
    at_the_gate = r"-P $(pgrep -f 'slurmstepd: \[[0-9]+\.0\]' | head -1)"
    with late_step(cluster, workdir, "node2", 20, before_it_reports=True), concurrent.futures.ThreadPoolExecutor() as pool:
        step = pool.submit(cluster.run, f"srun -w node[1-2] -N2 -n2 --aml-dist=pytorch {PROBE}")
        wait_until(lambda: cluster.run(f"pkill -STOP {at_the_gate}", on="node1").status == 0, 15)
        try:
            time.sleep(12)
        finally:
            assert cluster.run(f"pkill -CONT {at_the_gate}", on="node1").status == 0
        done = step.result()
    assert done.status == 0 and not done.own_lines(), str(done)
    check_pytorch(read_reports(done.out))


def test_healthy_steps_say_nothing(cluster):
    for _ in range(20):
        done = cluster.run(f"srun -N4 -n8 --aml-dist=pytorch {PROBE}")
        assert done.status == 0 and not done.own_lines(), str(done)
