"""`aml-dist keep` without a cluster: what it remembers, what it leaves behind, and the signals that it gets. Stand-ins for
srun and scontrol are a job of two nodes."""

from __future__ import annotations

import fcntl
import json
import os
import pathlib
import subprocess
import sys
import time

import pytest
from conftest import BIN, FAILED, NOT_FOUND, USAGE

JOB = {"SLURM_JOB_ID": "17", "SLURM_CLUSTER_NAME": "c", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_NTASKS_PER_NODE": "1", "SLURMD_NODENAME": "n0"}
SCONTROL = """case "$*" in
*"show job"*) echo JobId=17 JobState=RUNNING BatchFlag=1 Requeue=1 Restarts=0 TimeLimit=UNLIMITED EndTime=Unknown;;
*"show node"*) printf 'NodeName=n1 State=IDLE\\nNodeName=n2 State=IDLE\\n';;
esac"""
NODE_DOWN = json.dumps({"schema": 1, "step": "17.0", "cause": "node_down", "rank": None, "node": "n1", "status": 1, "signal": None, "time": 1,
                        "evidence": "n1 does not answer", "nodes_blamed": ["n1"]}, separators=(",", ":"))
# Starts keep in a terminal of its own, and presses Ctrl-C when a file is there.
TERMINAL = """import os, pathlib, pty, signal, sys, time
child, terminal = pty.fork()
if child == 0:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # ignored where a shell has started the tests in the background
    os.execv(sys.argv[2], sys.argv[2:])
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.01)
os.write(terminal, b"\\x03")
try:
    while more := os.read(terminal, 65536):
        sys.stdout.write(more.decode(errors="replace"))
except OSError:
    pass
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.fixture
def job(slurm):
    slurm.program("scontrol", SCONTROL)
    slurm.program("scancel", "true")
    slurm.env.update(JOB, TMPDIR=str(slurm.folder))
    return slurm


def state_file(slurm) -> pathlib.Path:
    return slurm.folder / ".aml-dist-keep-17.json"


def left(slurm) -> list[str]:
    """What keep has made and not removed."""
    return [path.name for path in slurm.folder.iterdir() if "aml-dist-keep" in path.name]


@pytest.mark.parametrize("arguments, status", [(("--", "/nowhere/srun", "true"), NOT_FOUND), (("--spares", "2", "--", "srun", "true"), USAGE)])
def test_no_state_is_left_when_it_cannot_start(aml_dist, job, arguments, status):
    done = aml_dist.run("keep", "--health", "off", *arguments, cwd=job.folder, env=job.env)
    assert done.status == status and left(job) == [], (str(done), left(job))


def test_the_end_of_an_earlier_run_is_not_that_of_this_one(aml_dist, job):
    """The first run was preempted. The second ends before it has started anything, and does not come back."""
    start = {"cause": "preempted", "node": "", "blamed": [], "failure": "", "evidence": "", "status": 1, "rank_status": 0, "ended": 1, "ran": 60}
    state = {"schema": 1, "cluster": "c", "job": 17, "restarts": 0, "excluded": ["n1"], "batch_host": "n0", "runs": False, "history": [start]}
    state_file(job).write_text(json.dumps(state))
    state_file(job).chmod(0o600)
    done = aml_dist.run("keep", "--health", "off", "--", "srun", "true", cwd=job.folder, env={**job.env, "SLURM_RESTART_COUNT": "1"})
    assert done.status == FAILED and "only 1 node of 2 can be used" in done.said and left(job) == [], (str(done), left(job))


def test_a_guilty_node_is_not_forgotten_when_keep_is_killed(aml_dist, job):
    """It is killed while it says what follows: standard output takes the line about the start, and not that."""
    job.program("srun", f"""[ ! -e down ] || exit 0
touch down; echo '{NODE_DOWN}' >>$AMLDIST_END_RECORD; exit 1""")
    reading, writing = os.pipe()
    room = fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    os.write(writing, b" " * (room - 160))
    with open(job.folder / "said", "wb") as said:
        keep = subprocess.Popen([BIN / "aml-dist", "keep", "--json", "--spares", "1", "--health", "off", "--", "srun", "true"],
                                cwd=job.folder, env=job.env, stdin=subprocess.DEVNULL, stdout=writing, stderr=said)
        end = time.monotonic() + 20
        while "a spare takes the place of n1" not in job.written("said"):
            assert keep.poll() is None and time.monotonic() < end, job.written("said")
            time.sleep(0.01)
        keep.kill()
        keep.wait()
    os.close(reading)
    os.close(writing)
    done = aml_dist.run("keep", "--spares", "1", "--health", "off", "--", "srun", "true", cwd=job.folder, env={**job.env, "SLURM_RESTART_COUNT": "1"})
    assert done.status == 0 and "so far, without n1" in done.said and " on n2" in done.said and left(job) == [], (str(done), left(job))


def test_slurm_may_end_scontrol_too_when_the_job_goes_back_to_the_queue(aml_dist, job):
    """It is one of the job's processes. What keep has saved is there for the next start."""
    job.program("srun", f"echo '{NODE_DOWN}' >>$AMLDIST_END_RECORD; exit 1")
    job.program("scontrol", SCONTROL.replace('case "$*" in', 'case "$*" in\nrequeue*) kill $$;;'))
    done = aml_dist.run("keep", "--requeue", "--health", "off", "--", "srun", "true", cwd=job.folder, env=job.env)
    assert "cannot go back" not in done.said and "goes back to the queue" in done.said and state_file(job).exists(), str(done)


OPTIONS = ("SLURM_AML_DIST", "AMLDIST_OPTION", "_SLURM_SPANK_OPTION_aml_dist_aml_dist")


@pytest.mark.parametrize("variable", OPTIONS)
def test_the_option_may_be_the_jobs(aml_dist, job, variable):
    """Then srun has it without having it in its line: what it refuses at once is refused for ever, and stop= is a key of it."""
    job.program("srun", "exit 1")
    job.program("scontrol", SCONTROL.replace("TimeLimit=UNLIMITED EndTime=Unknown", "TimeLimit=01:00:00 EndTime=2026-11-28T09:00:00"))
    done = aml_dist.run("keep", "--health", "off", "--requeue-at-limit", "--", "srun", "true", cwd=job.folder,
                        env={**job.env, variable: "pytorch,stop=50"})
    assert done.status == 1 and done.said.count("keep: start ") == 1 and "not started again: refused" in done.said, str(done)


def press_ctrl_c(job, when: str, *arguments: str) -> subprocess.CompletedProcess:
    """As a user does in the moment in which a stand-in makes the file `when`."""
    (job.folder / "terminal.py").write_text(TERMINAL)
    command = [sys.executable, job.folder / "terminal.py", job.folder / when, BIN / "aml-dist", "keep", *arguments, "--", "srun", "true"]
    return subprocess.run(command, cwd=job.folder, env=job.env, stdin=subprocess.DEVNULL, capture_output=True, timeout=30, check=False, text=True)


def test_ctrl_c_during_the_check_of_the_nodes_starts_nothing(job):
    job.program("srun", 'case "$*" in *--label*) touch checks; sleep 1;; *) touch started; exec sleep 60;; esac')
    done = press_ctrl_c(job, "checks")
    assert done.returncode == 130 and not (job.folder / "started").exists() and left(job) == [], (done, left(job))


def test_ctrl_c_just_before_the_step_ends_it(job):
    """srun is not there yet when the terminal sends the signal, and has to hear of it from keep."""
    job.program("scontrol", SCONTROL.replace("printf", "[ -e asked ] && { touch asks; sleep 1; }; touch asked; printf"))
    job.program("srun", "exec sleep 60")
    done = press_ctrl_c(job, "asks", "--health", "off")
    assert done.returncode == 130 and "start 0 on" in done.stdout and left(job) == [], (done, left(job))


def test_nothing_is_left_when_nobody_reads_what_it_says(job):
    job.program("srun", "exit 3")
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([BIN / "aml-dist", "keep", "--retries", "0", "--health", "off", "--", "srun", "true"], cwd=job.folder, env=job.env,
                          stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=writing, timeout=30, check=False)
    os.close(writing)
    assert done.returncode == 3 and left(job) == [], (done, left(job))
