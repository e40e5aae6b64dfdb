"""stop=: some time before the limit, by aml-dist stop, by signals: a file and a signal on each node, one step for all ranks."""

import os
import pathlib
import re
import shlex
import shutil
import time

import pytest
from cluster import BUILD, READABLE, ROOT, readable_copy
from test_faults import Background, wait_until

TOOL = os.environ.get("AMLDIST_TOOL", "")
# A program without the library: says when its file appears, and when a signal comes. It asks no program for the time: the signal goes to
# all processes of the step, and would end it.
WATCHER = """#!/bin/bash
trap 'echo "signal $EPOCHREALTIME $SLURM_PROCID"' USR1
echo "file $AMLDIST_STOP_FILE signal ${AMLDIST_STOP_SIGNAL-none}"
until [ -e "$AMLDIST_STOP_FILE" ]; do sleep 0.02; done
echo "stopped $EPOCHREALTIME $SLURM_PROCID"
for ((i = 0; i < 50; ++i)); do sleep 0.02; done  # a signal that comes just before a sleep is handled after it
exit 0  # whatever the signal did to sleep
"""
# A program with the library: ranks step together, and say after which step they stop.
STEPPER = """
import array, os, random, sys, time
import amldist
comm = amldist.init()
total = array.array("d", [0])
for step in range(1, 1000000):
    time.sleep(random.uniform(0, 0.004))
    total[0] = 1
    comm.allreduce(total)
    if comm.should_stop(): break
    if step == 50 and comm.rank == 0: print("steps", flush=True)
print(f"stopped at {step}", flush=True)
comm.finalize()
"""


@pytest.fixture(scope="module")
def watcher():
    path = READABLE / "watcher"
    path.write_text(WATCHER)
    path.chmod(0o755)
    return path


@pytest.fixture(scope="module")
def stepper():
    """A shell line that starts the program, with the package and the library that were built."""
    package = READABLE / "package"
    if not package.exists():
        shutil.copytree(ROOT / "libdist/api/python/amldist", package / "amldist", ignore=shutil.ignore_patterns("__pycache__"))
    library = readable_copy((BUILD / "lib/libamldist.so.0").resolve())
    program = READABLE / "stepper.py"
    program.write_text(STEPPER)
    return f"env PYTHONPATH={package} PYTHONDONTWRITEBYTECODE=1 AMLDIST_LIBRARY={library} /usr/bin/python3 {program}"


def times(text: str, word: str) -> list[float]:
    return [float(found) for found in re.findall(rf"^{word} ([0-9.]+) \d+$", text, re.MULTILINE)]


def nothing_is_left(cluster) -> None:
    for node in range(1, cluster.nodes + 1):
        wait_until(lambda node=node: cluster.run("ls /dev/shm/aml-dist-*/*stop-* 2>/dev/null", on=f"node{node}").out == "")


def agreed_step(text: str, ranks: int) -> int:
    steps = re.findall(r"^stopped at (\d+)$", text, re.MULTILINE)
    assert len(steps) == ranks and len(set(steps)) == 1, text
    return int(steps[0])


def test_before_the_time_limit_by_file_and_signal(cluster, watcher):
    begun = time.time()
    done = cluster.run(f"srun -t 1 -w node[1-3] -N3 -n5 --aml-dist=pytorch,stop=45@USR1 {watcher}", timeout=100)
    assert done.status == 0, str(done)
    said = [line for line in done.own_lines() if "stop:" in line]
    assert len(said) == 1 and re.search(r"asked to stop, 4[456] s before the time limit: by a signal, and by the file", said[0]), str(done)
    stopped, signals = times(done.out, "stopped"), times(done.out, "signal")
    assert len(stopped) == len(signals) == 5, str(done)
    assert max(stopped + signals) - min(stopped + signals) < 1, str(done)
    assert 10 < min(stopped) - begun < 30, str(done)
    assert set(re.findall(r"^file (\S+) signal (\d+)$", done.out, re.MULTILINE)) == {(f"/dev/shm/aml-dist-0/stop-{job(done.out)}", "10")}, str(done)
    nothing_is_left(cluster)


def job(text: str) -> str:
    return re.search(r"/stop-(\d+\.\d+)", text)[1]


def test_the_ranks_of_a_program_with_the_library_stop_at_the_limit(cluster, stepper):
    done = cluster.run(f"srun -t 1 -N4 -n8 --aml-dist=pytorch,stop=50 {stepper}", timeout=100)
    assert done.status == 0, str(done)
    agreed_step(done.out, 8)
    nothing_is_left(cluster)


@pytest.mark.parametrize("flags, tell", [
    ("stop=30", "{tool} stop {job}"),
    ("stop=30@USR2", "{tool} stop {job}.0"),
    ("stop=30@USR1", "scancel --signal=USR1 {job}.0"),
    ("stop=30@USR1", "scancel --signal=USR1 {job}"),
    ("stop=30", "scancel --signal=TERM {job}.0"),  # as at a preemption
])
def test_the_ranks_stop_when_they_are_told(cluster, workdir, stepper, flags, tell):
    step = Background(cluster, workdir, f"srun -t 10 -J stops -N4 -n7 --aml-dist=pytorch,{flags} {stepper}")
    wait_until(lambda: "steps" in step.text(), 40)
    number = cluster.run("squeue -h -n stops -o %A").out.strip()
    told = cluster.run(tell.format(tool=TOOL, job=number))
    has_gone = "Invalid job id" in told.err and "stopped at" in step.text()  # the step has stopped before scancel had its answer
    assert told.status == 0 or has_gone, f"{told}\n{step.text()}"
    text = step.wait()
    agreed_step(text, 7)
    if "aml-dist" in tell:
        assert f"step {number}.0 is asked to stop on 4 nodes: by its stop file" in told.err, str(told)
    assert "status 0" in text, text
    nothing_is_left(cluster)


def test_a_task_of_an_array_is_stopped_alone(cluster, workdir, stepper):
    """Task 0 by its own limit, while task 1, whose number is the array's, goes on; then task 1 by its name."""
    task = workdir / "task.sh"
    task.write_text(f"#!/bin/bash\nexec >>{workdir}/$SLURM_ARRAY_TASK_ID 2>&1\n"
                    f"srun -t $((SLURM_ARRAY_TASK_ID == 0 ? 1 : 10)) --aml-dist=pytorch,stop=48,trace {stepper}\n")
    number = cluster.run(f"sbatch --parsable --array=0-1 -N2 -n2 --exclusive -o /dev/null {task}").out.strip()
    try:
        is_stopped_alone(cluster, number, by_limit=workdir / "0", by_name=workdir / "1")
    finally:
        cluster.run(f"scancel --quiet {number}")


def is_stopped_alone(cluster, number: str, by_limit: pathlib.Path, by_name: pathlib.Path) -> None:
    wait_until(lambda: all(path.exists() and "steps" in path.read_text() for path in (by_limit, by_name)), 40)
    told = cluster.run(f"{TOOL} stop {number}")
    assert told.status == 2 and f"{number} is several jobs: name one, such as {number}_" in told.err, str(told)
    shown = cluster.run(f"{TOOL} trace {number}_1")
    assert re.search(rf"step {number}\.0: .*2 ranks", shown.out), str(shown)
    wait_until(lambda: by_limit.read_text().count("stopped at") == 2, 30)
    time.sleep(1)
    assert "stop" not in by_name.read_text().replace("steps", ""), by_name.read_text()
    told = cluster.run(f"{TOOL} stop {number}_1")
    assert told.status == 0 and f"step {number}.0 is asked to stop on 2 nodes" in told.err, str(told)
    wait_until(lambda: by_name.read_text().count("stopped at") == 2, 20)


def test_aml_dist_stop_reaches_a_program_without_the_library_on_all_nodes_at_once(cluster, workdir, watcher):
    step = Background(cluster, workdir, f"srun -t 10 -J stops -N4 -n4 --aml-dist=pytorch,stop=30@USR1 {watcher}")
    wait_until(lambda: step.text().count("file /") == 4, 40)
    number = cluster.run("squeue -h -n stops -o %A").out.strip()
    told = cluster.run(f"{TOOL} stop {number}")
    assert told.status == 0 and "by its stop file and signal 10" in told.err, str(told)
    text = step.wait()
    stopped, signals = times(text, "stopped"), times(text, "signal")
    assert len(stopped) == 4 and len(signals) == 4, text
    assert max(stopped) - min(stopped) < 1 and max(signals) - min(signals) < 1, text


@pytest.mark.parametrize("flags, signal", [("stop=30@USR1", "USR1"), ("stop=30", "TERM")])
def test_the_file_appears_when_scancel_sends_a_signal(cluster, workdir, watcher, flags, signal):
    """On each node, and the signal of the other key makes none."""
    program = workdir / "program"
    program.write_text(f"#!/bin/bash\ntrap '' TERM\nexec {watcher}\n")
    program.chmod(0o755)
    step = Background(cluster, workdir, f"srun -t 10 -J stops -N2 -n2 --aml-dist=pytorch,{flags} {program}")
    wait_until(lambda: step.text().count("file /") == 2, 40)
    number = cluster.run("squeue -h -n stops -o %A").out.strip()
    cluster.run(f"scancel --signal=WINCH {number}.0")
    time.sleep(1)
    assert "stopped" not in step.text(), step.text()
    sent = time.time()
    cluster.run(f"scancel --signal={signal} {number}.0")
    text = step.wait()
    stopped = times(text, "stopped")
    assert len(stopped) == 2 and max(stopped) - sent < 3 and "status 0" in text, (sent, text)
    nothing_is_left(cluster)


def test_an_extended_limit_is_heard_of(cluster, workdir, watcher):
    step = Background(cluster, workdir, f"srun -t 1 -J stops -N2 -n2 --aml-dist=pytorch,stop=40 {watcher}")
    wait_until(lambda: step.text().count("file /") == 2, 40)
    number = cluster.run("squeue -h -n stops -o %A").out.strip()
    changed = cluster.run(f"scontrol update JobId={number} TimeLimit=30; scontrol update StepId={number}.0 TimeLimit=30")
    assert changed.status == 0, str(changed)
    time.sleep(25)
    assert "stopped" not in step.text(), step.text()
    cluster.run(f"{TOOL} stop {number}")
    assert step.wait().count("stopped") == 2


def test_without_a_time_limit_that_is_said(cluster):
    done = cluster.run("srun -N1 -n1 --aml-dist=pytorch,stop=60 sleep 3")
    (line,) = done.own_lines()
    assert re.search(r"stop=60: there is no time limit, so the ranks are asked to stop by 'aml-dist stop \d+\.\d+'", line), str(done)


@pytest.mark.parametrize("key, says", [
    ("stop=0", "stop='0' is not valid: use a whole number from 1 to 604800"),
    ("stop=x", "stop='x' is not valid"),
    ("stop=60@SIGFOO", "'SIGFOO' is not valid: use one of USR1, USR2"),
])
def test_bad_keys_are_refused(cluster, key, says):
    done = cluster.run(f"srun -N1 -n1 --aml-dist=pytorch,{key} true")
    (line,) = [line for line in done.own_lines() if says in line]
    assert done.status == 1, str(done)


def test_what_cannot_be_stopped(cluster, workdir, watcher):
    step = Background(cluster, workdir, "srun -t 5 -J unasked -N1 -n1 --aml-dist=pytorch bash -c \"echo runs ${AMLDIST_STOP_FILE-nowhere}; sleep 20\"")
    wait_until(lambda: "runs nowhere" in step.text(), 40)
    number = cluster.run("squeue -h -n unasked -o %A").out.strip()
    for target, user, status, says in (
        (number, "root", 1, "was started without the key stop="), (f"{number}.7", "root", 4, f"job {number} has no step 7 now"),
        ("99999999", "root", 4, "job 99999999 does not run"), (number, "alice", 6, f"job {number} belongs to 'root'"),
        ("x", "root", 2, "'x' is not a job or a step"), ("1.x", "root", 2, "is not a job or a step"), ("", "root", 2, "is not a job or a step")):
        told = cluster.run(f"{TOOL} stop {shlex.quote(target)}", user=user)
        (line,) = told.own_lines()
        assert told.status == status and says in line, str(told)
    cluster.run(f"scancel {number}")
    step.wait()


def test_an_inner_step_without_the_key_has_no_stop_file(cluster):
    inner = "srun --overlap -n1 --aml-dist=pytorch bash -c 'echo inner=${AMLDIST_STOP_FILE-}'"
    done = cluster.run(f"srun -t 5 -N1 -n1 --aml-dist=pytorch,stop=30 bash -c {shlex.quote(inner)}")
    assert "inner=\n" in done.out, str(done)


def test_the_folder_of_another_user_is_not_used(cluster):
    """Another user has made the folder in /dev/shm, and one in /tmp: there is no file, and the step runs."""
    cluster.run("mkdir -p /dev/shm/aml-dist-20001 /tmp/aml-dist-20001; chown bob /dev/shm/aml-dist-20001 /tmp/aml-dist-20001", on="node1")
    try:
        done = cluster.run("srun -t 5 -w node1 -N1 -n1 --aml-dist=pytorch,stop=30 bash -c 'echo ran ${AMLDIST_STOP_FILE-without}'", user="alice")
        assert done.status == 0 and "ran without" in done.out and "stop: no stop file on this node: " in done.err + done.out, str(done)
        assert cluster.run("ls -A /dev/shm/aml-dist-20001 /tmp/aml-dist-20001 | grep stop", on="node1").out == ""
    finally:
        cluster.run("rm -rf /dev/shm/aml-dist-20001 /tmp/aml-dist-20001", on="node1")
