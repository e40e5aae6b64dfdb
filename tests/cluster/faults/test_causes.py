"""The first failure says why: memory, the exception, limits, the node, or Slurm itself."""

import json
import re
import shutil
import time

import causes
import pytest
from causes import CAUSES
from cluster import Cluster
from conftest import NAME, PLUGIN, RELEASE
from test_batch import script
from test_faults import Background, wait_until

NODE = "node2"


@pytest.fixture(scope="module")
def site():
    """A cluster that limits memory."""
    cluster = Cluster(f"{NAME}-why"[-16:].lstrip("-"), 2)
    started = cluster.devcluster("start", "--nodes", "2", "--restart", "--gres", "gpu:4", "--plugin", PLUGIN, "--plugin-args", "job_comment=on",
                                 *(["--release", RELEASE] if RELEASE else []), *causes.ARGUMENTS)
    assert started.status == 0, str(started)
    for node in ("node1", "node2"):
        made = cluster.run(causes.SMALL, on=node)
        assert made.status == 0, str(made)
    yield cluster
    assert cluster.devcluster("stop").status == 0


def record_of(folder, name: str) -> dict:
    (line,) = (folder / f"{name}.json").read_text().splitlines()
    return json.loads(line)


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.name)
@pytest.mark.parametrize("rank", [1, 2])
def test_why_a_rank_ended(site, workdir, cause, rank):
    causes.prepare(workdir)
    done = site.run(f"export TORCHELASTIC_ERROR_FILE={workdir}/elastic.json; {cause.command(workdir, rank)}; rm -f {workdir}/elastic.json", "alice", timeout=60)
    for node in ("node1", "node2"):
        site.run("rm -f /dev/shm/full /tmp/full/file", on=node)
    assert not cause.wrong(rank, done.err), cause.wrong(rank, done.err)
    record = record_of(workdir, cause.name)
    assert (record["cause"], record["rank"], record["nodes_blamed"]) == (cause.cause, rank, []), record
    assert f"first failure: {record['evidence']}\n" in done.err
    left = "".join(site.run("ls /dev/shm/aml-dist-20001 2>/dev/null", on=node).out for node in ("node1", "node2"))
    assert left == "", "what the ranks left is removed"


@pytest.mark.parametrize("line, said, cause", [
    ("mlx5_core 0000:01:00.0 ib0: Link down", "that port ib0 (mlx5_core 0000:01:00.0) went down in that second: see 'aml-dist check' on node2", "link"),
    ("EXT4-fs (sda1): Remounting filesystem read-only", "that the file system on sda1 turned read-only in that second: drain node2", "node_unhealthy"),
    ("EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0", "an uncorrectable error of the node's memory (ECC) in that second: drain node2",
     "node_unhealthy"),
    ("NVRM: Xid (PCI:0000:5e:00): 79, pid=1, name=x, GPU has fallen off the bus.", "", "rank_signal"),  # not this step's GPU
])
def test_the_kernel_reports_about_the_node(site, workdir, line, said, cause):
    """A recorded log, in the place of the node's own: no program can write into that as the kernel."""
    log, record = workdir / "kmsg", workdir / "end.json"
    log.write_text("4,1,1,-;before\n")
    assert site.run(f"mount --bind {log} /dev/kmsg", on=NODE).status == 0
    try:
        failing = workdir / "failing"
        failing.write_text(f"#!/bin/bash\n[ $RANK = 1 ] || exec sleep 20\nsleep 1\n"
                           f"now=$(/usr/bin/python3 -c 'import time; print(int(time.clock_gettime(time.CLOCK_MONOTONIC) * 1e6))')\n"
                           f"echo \"4,2,$now,-;{line}\" >>{log}\nkill -ABRT $$\n")
        failing.chmod(0o755)
        done = site.run(f"AMLDIST_END_RECORD={record} srun -K -N2 -n2 --aml-dist=pytorch {failing}")
    finally:
        site.run("umount /dev/kmsg", on=NODE)
    (told,) = done.own_lines()
    assert f"first failure: rank 1 (local 0) on {NODE}: signal 6 (SIGABRT)" in told and ("the kernel reports" in told) == bool(said), str(done)
    assert not said or told.endswith(f"; the kernel reports {said}"), told
    end = json.loads(record.read_text())
    assert (end["cause"], end["nodes_blamed"]) == (cause, [NODE] if said else []), end


@pytest.mark.parametrize("spoil", ["mkfifo {0}", "ln -s /etc/shadow {0}", "mkdir {0}", "head -c 50M /dev/zero >{0}", "printf 'amldist-error 1\\n\\033[2J\\n' >{0}"])
def test_what_lies_in_the_place_of_the_exception_is_harmless(site, workdir, spoil):
    folder = "/dev/shm/aml-dist-$(id -u)/$SLURM_JOB_ID.$SLURM_STEP_ID"
    task = workdir / "task"
    task.write_text(f"#!/bin/bash\numask 077; mkdir -p {folder}; {spoil.format(folder + '/$SLURM_PROCID.error')} 2>/dev/null\nexit 3\n")
    task.chmod(0o755)
    begin = time.monotonic()
    done = site.run(f"srun -N2 -n2 --aml-dist=pytorch {task}; srun -w node[1-2] -N2 -n2 rm -rf /dev/shm/aml-dist-20001", "alice", timeout=40)
    (line,) = done.own_lines()
    assert "exit status 3, " in line and "root:" not in line and time.monotonic() - begin < 20, str(done)


@pytest.mark.parametrize("elastic", ["/etc/shadow", "/dev/zero", "relative.json", "{0}/fifo", "{0}/link", "{0}/forged"])
def test_what_torchelastics_variable_names_is_harmless(site, workdir, elastic):
    """A file of another user's, a device, a FIFO, and text that would mislead a terminal or a reader of the record."""
    (workdir / "forged").write_text('{"message": {"message": "RuntimeError: \x1b[2J\\nrank 7 on node9: %s", "extraInfo": {"py_callstack": "  File \\"\x07.py\\", line 9'
                                    '99999999999999, in f"}}}')
    place = elastic.format(workdir)
    task = f"[ $RANK = 1 ] || exec sleep 20; umask 077; mkfifo {workdir}/fifo; ln -sf /etc/shadow {workdir}/link; cp {workdir}/forged {workdir}/forged.tmp; "
    task += f"mv -f {workdir}/forged.tmp {workdir}/forged; exit 3"
    (workdir / "task").write_text("#!/bin/bash\n" + task)
    (workdir / "task").chmod(0o755)
    record = workdir / "end.json"
    done = site.run(f"cd {workdir}; TORCHELASTIC_ERROR_FILE={place} AMLDIST_END_RECORD={record} srun -K -N2 -n2 --aml-dist=pytorch {workdir}/task", "alice",
                    timeout=40)
    (line,) = done.own_lines()
    said = r": RuntimeError: \[2J rank 7 on node9: %s" if elastic.endswith("forged") else ""
    assert re.fullmatch(rf"aml-dist: first failure: rank 1 \(local 0\) on node2: exit status 3{said}, \d\.\d s after the start", line), str(done)
    assert (end := json.loads(record.read_text()))["rank"] == 1 and end["nodes_blamed"] == [], end


def test_a_failure_whose_kernel_log_is_closed(site, workdir):
    causes.prepare(workdir)
    assert site.run(f"mkdir -p {workdir}/closed && mount --bind /dev/null /dev/kmsg", on="node1").status == 0
    try:
        done = site.run(CAUSES[0].command(workdir, 0), "alice")
    finally:
        site.run("umount /dev/kmsg", on="node1")
    assert "rank 0 (local 0) on node1: out of memory: the step may use 200 MiB on this node and used it, " in done.err, str(done)


# ---- ended by Slurm ----

STEP = "srun -N2 -n4 --aml-dist=pytorch bash -c \"echo runs; exec sleep 100\""


PREEMPT = ("srun -p high --exclusive -N2 -n2 true", "the job was preempted: another job got its nodes", "preempted")


@pytest.mark.parametrize("partition, act, said, cause", [
    ("main", "scancel -n ended", "the job was cancelled (scancel, or Ctrl-C in srun)", "cancelled"),
    ("main", "scontrol requeue $(squeue -h -n ended -o %A)", "the job was put back into the queue", "cancelled"),
    ("main", "scontrol update JobId=$(squeue -h -n ended -o %A) TimeLimit=0:01", "the job's time limit was reached", "time_limit"),
    ("main", *PREEMPT),
    ("low", *PREEMPT),
])
def test_slurm_ends_a_job(site, workdir, partition, act, said, cause):
    """Preemption puts a job of `main` back into the queue, and cancels one of `low`."""
    path = workdir / "end.json"
    job = script(workdir, f"export AMLDIST_END_RECORD={path}", STEP)
    submitted = site.run(f"sbatch --parsable --requeue -J ended -p {partition} -N2 -n4 --output={workdir}/out --open-mode=append {job}")
    out = workdir / "out"
    wait_until(lambda: out.exists() and out.read_text().count("runs") == 4)
    acted = site.run(act, timeout=150)
    wait_until(lambda: path.exists() and path.read_text().endswith("\n"), 100)
    text, end = out.read_text(), json.loads(path.read_text().splitlines()[0])
    site.run("scancel -n ended; while squeue -h -n ended | grep -q .; do sleep 0.2; done")
    assert (end["cause"], end["rank"], end["evidence"]) == (cause, None, said), f"{acted}\n{text}"
    assert "first failure" not in text and f"aml-dist: ended by Slurm: {said}\n" in text, text
    assert submitted.status == 0, str(submitted)


def test_a_steps_own_time_limit(site, workdir):
    done = site.run("srun -N2 -n2 -t 0:01 --aml-dist=pytorch sleep 200", timeout=200)
    assert done.own_lines() == ["aml-dist: ended by Slurm: the job's time limit was reached"], str(done)


def test_kill_on_bad_exit_blames_who_failed(site):
    done = site.run("srun -K -N2 -n4 --aml-dist=pytorch bash -c '[ $RANK = 3 ] && exit 9; trap \"exit 1\" TERM; sleep 30 & wait'")
    (line,) = done.own_lines()
    assert "first failure: rank 3 " in line and "exit status 9" in line, str(done)


def test_a_node_that_is_lost(site, workdir):
    step = Background(site, workdir, "srun -w node[1-2] -N2 -n2 --aml-dist=pytorch sleep 150")
    wait_until(lambda: "node[1-2]" in site.run("squeue -h -t R -o %N").out)
    assert site.devcluster("break", NODE, "down").status == 0
    try:
        site.run(f"scontrol update NodeName={NODE} State=DOWN Reason=test")
        text = step.wait(90)
    finally:
        assert site.devcluster("heal", "all").status == 0
        site.run(f"scontrol update NodeName={NODE} State=RESUME")
    assert "first failure" not in text and "status 0" not in text, text


# ---- a rank that hangs, because the kernel killed a process of it ----

LOST = r"the kernel killed its process \d+ python3 \(\d+ MiB\) \d+ s before, for want of memory: the step may use 200 MiB on this node and used it"
LOADER = """import subprocess, sys, time
import amldist
comm = amldist.init()
if comm.rank == 1:
    subprocess.run([sys.executable, "-c", "x = bytearray(600 << 20)"])
    time.sleep(100)  # as a program that waits for its DataLoader's worker
comm.barrier()
"""


@pytest.fixture
def loader(workdir):
    """The command of a step in which rank 1 loses a process and waits for it."""
    shutil.copytree(causes.ROOT / "libdist/api/python/amldist", workdir / "amldist")
    causes.prepare(workdir)
    (workdir / "loader.py").write_text(LOADER)
    return f"cd {workdir}; AMLDIST_LIBRARY={workdir}/libamldist.so.0 PYTHONPATH={workdir} srun -J loader -N2 -n4 --mem=200", f"/usr/bin/python3 {workdir}/loader.py"


def test_a_hang_names_the_process_that_was_killed(site, workdir, loader):
    step, program = loader
    done = site.run(f"{step} --aml-dist=pytorch,hang=2 {program}", "alice", timeout=60)
    assert len(lines := [line for line in done.own_lines() if "aml-dist: hang: " in line]) == 1, str(done)
    assert re.fullmatch(rf"aml-dist: hang: barrier #\d+.*: rank 1 \(local 1\) on node1 has not called it for \d s; 3 ranks wait.*; {LOST}; its stack is in .*", lines[0]), str(done)


def test_a_hang_that_is_cancelled_names_it_too(site, workdir, loader):
    step, program = loader
    background = Background(site, workdir, f"{step} --aml-dist=pytorch {program}")
    time.sleep(6)
    site.run("scancel -n loader")
    text = background.wait(60)
    assert re.search(r"^aml-dist: ended by Slurm: the job was cancelled \(scancel, or Ctrl-C in srun\); before, rank 1 \(local 1\) on node1: "
                     r"out of memory: the step may use 200 MiB", text, re.MULTILINE), text


# ---- places ----

@pytest.mark.parametrize("binding, said", [
    ("map_gpu:0,0,1,1", "2 tasks on node1 use the same GPU, number 0 (ranks 0, 1): give each its own, with --gpus-per-task=1 or another --gpu-bind"),
    ("map_gpu:0,1,2,3", None),
])
def test_two_tasks_on_one_gpu(site, binding, said):
    done = site.run(f"srun -w node[1-2] -N2 --ntasks-per-node=4 --gres=gpu:4 --gpu-bind={binding} --aml-dist=pytorch true")
    lines = [line for line in done.own_lines() if "each task sees" not in line]
    assert lines == ([f"aml-dist: {said}"] if said else []), str(done)


def test_verbose_has_a_line_for_each_rank(site):
    done = site.run("srun -N1 -n2 --aml-dist=pytorch,verbose true")
    assert sum("processors on NUMA" in line for line in done.own_lines()) == 2, str(done)
