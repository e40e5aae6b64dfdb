"""Parameter servers never return: the step ends by itself when its chief, or without one all workers, ended well."""

import time

import pytest
from test_batch import script
from test_first_failure import by_rank, first_failure, own_lines, until_up

WORKERS = "worker_count=2,parameter_server_count=2"  # ranks 0, 1; servers 2, 3
CHIEF = "chief_count=1,worker_count=2,parameter_server_count=1"  # rank 0; workers 1, 2; server 3
SERVE = "exec sleep 300"


def step(counts: str, flags: str = "-N2 --ntasks-per-node=2", **tasks: str) -> str:
    """srun of tasks that find their rank as servers do: in SLURM_PROCID."""
    return f"srun {flags} --aml-dist=tensorflow,{counts} " + by_rank(**tasks).replace("$RANK", "$SLURM_PROCID")


def nobody_is_left(cluster) -> None:
    deadline = time.monotonic() + 10
    while True:
        left = "".join(cluster.run("pgrep -af '^sleep 300'; pgrep -a aml-dist-mon; true", on=f"node{n}").out for n in range(1, 5))
        if left == "": return
        assert time.monotonic() < deadline, left
        time.sleep(0.3)


@pytest.mark.parametrize("flags", ["-N2 --ntasks-per-node=2", "-N4 -n4", "-N1 -n4 --overcommit", "-N2 -n4 -m cyclic",
                                   "-N2 -n4 -K"])
def test_the_step_ends_with_its_workers(cluster, flags):
    began = time.monotonic()
    done = cluster.run(step(WORKERS, flags, r0="sleep 2", r1="sleep 1", other=SERVE), timeout=30)
    assert done.status == 0 and done.said == "", str(done)
    assert 2 <= time.monotonic() - began < 8, "half a second for the question, and Slurm's own time"
    nobody_is_left(cluster)


def test_a_batch_job_completes(cluster, workdir):
    job = script(workdir, step(WORKERS, "", other=SERVE, r0="true", r1="sleep 1"), "echo srun: $?")
    identifier = cluster.run(f"sbatch --parsable --output={workdir}/out -N2 -n4 {job}").out.strip()
    cluster.run(f"while squeue -h -j {identifier} | grep -q .; do sleep 0.2; done", timeout=30)
    shown = cluster.run(f"scontrol show job {identifier}").out
    assert "JobState=COMPLETED" in shown and "ExitCode=0:0" in shown, shown
    assert (workdir / "out").read_text() == "srun: 0\n"


def test_sruns_own_job_completes(cluster):
    job = "$(scontrol -o show jobs | sed -n 's/^JobId=\\([0-9]*\\) JobName=servers .*/\\1/p' | tail -1)"
    done = cluster.run(step(WORKERS, "-J servers -N2 -n4", r0="true", r1="true", other=SERVE) + "; "  # srun ends before its job
                       f"while scontrol show job {job} | grep -q COMPLETING; do sleep 0.1; done; scontrol show job {job}")
    assert "JobState=COMPLETED" in done.out and "ExitCode=0:0" in done.out, str(done)


def test_the_chief_decides_and_workers_have_time(cluster):
    began = time.monotonic()
    done = cluster.run(step(CHIEF, r0="sleep 1; echo chief", r1="sleep 4; echo one", r2="sleep 3; echo two", other=SERVE))
    assert done.status == 0 and done.said == "", str(done)
    assert sorted(done.out.split()) == ["chief", "one", "two"], str(done)
    assert time.monotonic() - began < 9


def test_workers_that_serve_end_too(cluster):
    """As in TensorFlow 2, where workers wait for their chief's orders and never return."""
    began = time.monotonic()
    done = cluster.run(step(CHIEF, r0="sleep 1", other=SERVE), timeout=40)
    assert done.status == 0 and done.said == "", str(done)
    assert 10 <= time.monotonic() - began < 18
    nobody_is_left(cluster)


def test_a_server_that_is_deaf_to_sigterm(cluster):
    done = cluster.run(step(WORKERS, r0="true", r1="true", other='trap "" TERM; while :; do sleep 1; done'), timeout=40)
    assert done.status == 0 and done.said == "", str(done)
    nobody_is_left(cluster)


def test_a_server_may_clean_up(cluster):
    tidy = 'trap "sleep 1; echo saved; exit 3" TERM; sleep 300 & wait'
    done = cluster.run(step(WORKERS, r0="true", r1="true", other=tidy), timeout=40)
    assert done.status == 0 and done.out.split() == ["saved"] * 2, str(done)


@pytest.mark.parametrize("end, status, says", [("exit 3", 3, "exit status 3"), ("kill -9 $$", 137, "signal 9 (SIGKILL)"),
                                               ("kill -SEGV $$", 139, "signal 11 (SIGSEGV)")])
def test_a_server_that_fails_fails_the_step(cluster, end, status, says):
    done = cluster.run(step(WORKERS, r3=f"sleep 1; {end}", r2=SERVE, other="sleep 3"), timeout=40)
    assert done.status == status, str(done)
    found = first_failure(done.err)
    assert found["rank"] == "3" and found["end"].startswith(says), str(done)


def test_a_server_that_returns_returns(cluster):
    assert cluster.run(step(WORKERS, other="exit 0")).status == 0


@pytest.mark.parametrize("counts, failing", [(WORKERS, "r1"), (CHIEF, "r0")])
def test_a_failed_worker_or_chief_is_a_failed_step(cluster, counts, failing):
    """No failure is hidden. Without --kill-on-bad-exit the servers keep running, and the line advises that option."""
    tasks = {"r0": "true", "r1": "true", "r2": "true", failing: "exit 4", "other": SERVE}
    killed = cluster.run(step(counts, "-N2 -n4 -K", **tasks), timeout=40)
    assert killed.status != 0 and first_failure(killed.err)["end"] == "exit status 4", str(killed)
    waiting = cluster.run(f"timeout 15 {step(counts, '-N2 -n4', **tasks)}", timeout=60)
    assert waiting.status != 0 and "--kill-on-bad-exit" in first_failure(waiting.err)["advice"], str(waiting)
    nobody_is_left(cluster)


def test_the_program_notices_nothing(cluster):
    """Its streams, process group, signal mask, descriptors and Slurm's own view of its pid."""
    look = ('read line; echo "$line $(($SLURM_TASK_PID == $$)) $(ps -o pgid= -p $PPID) $(ps -o pgid= -p $$) '
            '$(grep -E ^Sig[BI] /proc/self/status | tr -d "[:space:]") $(ls /proc/self/fd | wc -l)"')
    run = "echo hello | " + step(WORKERS, "-N1 -n4 --overcommit", r0=look, r2=look, other="cat >/dev/null")
    done = cluster.run(run)
    lines = done.out.splitlines()
    assert done.status == 0 and len(lines) == 2, str(done)
    for line in lines:
        words = line.split()
        assert words[:2] == ["hello", "1"], line
    worker, server = sorted((line.split() for line in lines), key=lambda words: words[2] == words[3])
    assert server[2] == server[3], "task monitor and program share a process group"
    assert worker[4:] == server[4:], "masks and descriptors are as without a task monitor"


def test_signals_arrive_once(cluster, workdir):
    count = ("n=0; more() { n=$((n+1)); echo one; }; bye() { echo got $n; exit 0; }; trap more USR1; trap bye USR2; echo up; "
             "while :; do sleep 0.1; done")
    deaf, log = f'trap "" USR1 USR2; echo up; until [ -e {workdir}/told ]; do sleep 0.1; done', workdir / "out"
    job = script(workdir, step(WORKERS, "", r0=deaf, r1=deaf, other=count) + f" >{log} &", until_up(log, 4),
                 "scancel -s USR1 $SLURM_JOB_ID.0", f"until [ $(grep -c one {log}) = 2 ]; do sleep 0.1; done", "sleep 1",
                 "scancel -s USR2 $SLURM_JOB_ID.0", f"until [ $(grep -c got {log}) = 2 ]; do sleep 0.1; done",
                 f"touch {workdir}/told", "wait")
    _, out = cluster.job_output(f"-N2 -n4 {job}", workdir)
    assert log.read_text().count("got 1") == 2, log.read_text() + out


def test_scancel_takes_all(cluster, workdir):
    job = script(workdir, step(WORKERS, "", other=SERVE))
    identifier = cluster.run(f"sbatch --parsable --output={workdir}/out -N2 -n4 {job}").out.strip()
    time.sleep(4)
    cluster.run(f"scancel {identifier}; while squeue -h -j {identifier} | grep -q .; do sleep 0.1; done", timeout=40)
    nobody_is_left(cluster)
    assert own_lines((workdir / "out").read_text()) in ([], ["aml-dist: ended by Slurm: the job was cancelled (scancel, or Ctrl-C in srun)"])


def test_a_program_dies_with_its_task_monitor(cluster, workdir):
    run = step(WORKERS, "-J monitored -K -w node[1-2] -N2 -n4", r0="sleep 60", r1="sleep 60", other=f"echo up; {SERVE}")
    killer = "srun --overlap --jobid=$(squeue -h -n monitored -o %A) -w node2 -N1 -n1 pkill -KILL -x aml-dist-mon"
    log = workdir / "out"
    done = cluster.run(f"{run} >{log} & {until_up(log, 2)}; {killer}; wait", timeout=50)
    assert first_failure(done.err)["end"] == "signal 9 (SIGKILL)", str(done)
    nobody_is_left(cluster)


def test_when_srun_dies_so_does_the_step(cluster):
    done = cluster.run(step(WORKERS, r0="sleep 60", other=SERVE), timeout=5)
    assert done.status == 124, str(done)
    nobody_is_left(cluster)


def test_what_a_server_started_ends_with_it(cluster):
    """A shell that waits for its program, one with a trap, and something in the background."""
    for task in ("sleep 300; true", 'trap "exit 0" TERM; sleep 300', "(sleep 300 &) ; sleep 300 & sleep 300; true"):
        done = cluster.run(step(WORKERS, r0="true", r1="true", other=task), timeout=40)
        assert done.status == 0, str(done)
        nobody_is_left(cluster)


def test_no_task_monitor_where_nobody_serves(cluster):
    for option in ("tensorflow", "tensorflow,chief_count=1", "pytorch"):
        done = cluster.run(f"srun -N1 -n2 --aml-dist={option} bash -c 'cat /proc/$PPID/comm'")
        assert set(done.out.split()) == {"slurmstepd"}, str(done)
    servers = cluster.run(step(WORKERS, "-N1 -n4 --overcommit", other="cat /proc/$PPID/comm"))
    assert sorted(servers.out.split()) == ["aml-dist-mon"] * 2 + ["slurmstepd"] * 2, str(servers)


@pytest.mark.parametrize("shape", ["-N1 -n2 {option} {task} : -N1 -n2 {task}", "-N1 -n1 {task} : -N2 -n3 {option} {task}"])
def test_heterogeneous_steps(cluster, shape):
    task = by_rank(r0="sleep 1", r1="sleep 1", other=SERVE).replace("$RANK", "$SLURM_PROCID")
    done = cluster.run("srun " + shape.format(task=task, option=f"--aml-dist=tensorflow,{WORKERS}"), timeout=40)
    assert done.status == 0 and own_lines(done.err) == [] and "error" not in done.err, str(done)


def test_another_user(cluster):
    done = cluster.run(step(WORKERS, r0="true", r1="true", other=SERVE), user="alice", timeout=30)
    assert done.status == 0 and done.said == "", str(done)
