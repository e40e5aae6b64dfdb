"""aml-run and the launchers on the real cluster: Azure ML's job files of all three distributions, real PyTorch and Open
MPI underneath, and what a user sees on the way."""

from __future__ import annotations

import ast
import json
import os
import pathlib
import pty
import re
import shlex
import shutil
import subprocess
import time

import pytest
from cluster import DEVCLUSTER, READABLE, ROOT, TORCH_ENVIRONMENT

EXAMPLES = ROOT / "contrib/examples"
AML_RUN = READABLE / "aml-run"

pytestmark = pytest.mark.skipif(not AML_RUN.is_file(), reason="aml-run was not built (no yaml-cpp)")


@pytest.fixture
def workdir(workdir):
    """As /tmp: aml-run keeps nothing where everybody can replace it."""
    workdir.chmod(0o1777)
    return workdir


@pytest.fixture
def examples(workdir):
    """The examples where every node sees them and the job may write."""
    folder = workdir / "examples"
    for name in ("aml-run", "pytorch"):
        shutil.copytree(EXAMPLES / name, folder / name)
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o1777)
    return folder / "aml-run"


@pytest.fixture
def torchrun(cluster) -> None:
    """For tests of torchrun itself. Its rendezvous asks for libuv, whatever USE_LIBUV says."""
    store = "from torch.distributed import TCPStore; TCPStore('localhost', 0, is_master=True, wait_for_workers=False)"
    if "without libuv" in cluster.run(f'python3 -c "{store}"').err:
        pytest.skip("this PyTorch is built without libuv: its torchrun fails with or without Slurm")


def command(name: str, *words: str) -> str:
    return shlex.join([str(READABLE / name), *words])


def follow(cluster, folder: pathlib.Path, *words: str, **options):
    """`aml-run --wait --json`: how it ended, and what it answered."""
    done = cluster.run(f"cd {shlex.quote(str(folder))} && {command('aml-run', '--wait', '--json', *words)}", timeout=120,
                       **options)
    return done, json.loads(done.out) if done.out.startswith("{") else {}


def jobs(cluster) -> list[str]:
    """Jobs that wait or run, by id."""
    return cluster.run("squeue -h -t PENDING,RUNNING -o %i").out.split()


# ------------------------------------------------------------------------------------------------- the three distributions


@pytest.mark.parametrize("user", ["root", "alice"])
def test_pytorch_job_file_trains(cluster, examples, user):
    done, answer = follow(cluster, examples, "pytorch.yml", user=user, env=TORCH_ENVIRONMENT)
    assert done.status == 0, str(done)
    assert answer["state"] == "COMPLETED" and answer["exit_status"] == 0
    assert [each["key"] for each in answer["ignored"]] == ["$schema", "environment", "compute"]
    report = json.loads((examples.parent / f"pytorch/outputs/{answer['job_id']}/report/report.json").read_text())
    assert report["world_size"] == 4 and report["parameters_equal"] is True
    assert [each["local_rank"] for each in report["processes"]] == [0, 1, 0, 1]
    assert len({each["host"] for each in report["processes"]}) == 2


def test_pytorch_job_file_with_a_launcher_on_each_node(cluster, examples, torchrun):
    """Azure ML's "per-node launch": the command starts torch.distributed.run itself."""
    done, answer = follow(cluster, examples, "pytorch-per-node.yml", env=TORCH_ENVIRONMENT)
    assert done.status == 0, str(done)
    report = json.loads((examples.parent / f"pytorch/outputs/{answer['job_id']}/report/report.json").read_text())
    assert report["world_size"] == 4 and report["parameters_equal"] is True
    assert answer["aml_dist"] == "pytorch,launch=per-node"


@pytest.mark.usefixtures("pmix")
def test_mpi_job_file_adds_up(cluster, examples):
    subprocess.run(["mpicc", "-O2", "-o", examples / "mpi/pi", examples / "mpi/pi.c", "-lm"], check=True)
    done, answer = follow(cluster, examples, "mpi.yml", "--set", "inputs.intervals=200000")
    assert done.status == 0, str(done)
    assert "pi is 3.141592654, from 4 ranks" in pathlib.Path(answer["output"]).read_text()


def test_tensorflow_job_file_names_workers_that_reach_each_other(cluster, examples):
    """Without TensorFlow on the machine: each task listens on its own address of TF_CONFIG and calls all others."""
    (examples / "tensorflow/call.py").write_text('''
import json, os, socket, threading, time
config = json.loads(os.environ["TF_CONFIG"])
own = config["cluster"][config["task"]["type"]][config["task"]["index"]]
server = socket.create_server(("", int(own.rsplit(":", 1)[1])), backlog=64)
peers = [peer for role in config["cluster"].values() for peer in role]
def serve():
    while True:
        server.accept()[0].sendall(own.encode())
threading.Thread(target=serve, daemon=True).start()
for peer in peers:
    host, port = peer.rsplit(":", 1)
    for attempt in range(100):
        try:
            answer = socket.create_connection((host, int(port)), timeout=5).recv(100).decode()
            break
        except ConnectionRefusedError:
            time.sleep(0.1)
    assert answer == peer, (answer, peer)
print("reached", config["task"]["type"], config["task"]["index"], len(peers), flush=True)
time.sleep(1)
''')
    done, answer = follow(cluster, examples, "tensorflow.yml", "--set", "command=python3 call.py",
                          "--set", "distribution.parameter_server_count=1")
    assert done.status == 0, str(done)
    reached = sorted(re.findall(r"^reached (\w+) (\d) 3$", pathlib.Path(answer["output"]).read_text(), re.M))
    assert reached == [("ps", "0"), ("worker", "0"), ("worker", "1")]


# ----------------------------------------------------------------------------------------------------------- command lines


def test_variables_and_words_arrive_in_each_task(cluster, workdir):
    words = ["$RANK/${WORLD_SIZE}", "$LOCAL_RANK", "a  b", "", "'", '"', "$HOME", "*", "l1\nl2", "\\", "`id`", "\r\n", "ä"]
    program = "import json, os, sys; json.dump([os.environ['RANK'], os.environ['LOCAL_RANK'], sys.argv[1:]], " \
              "open(os.path.join(sys.argv[-1], os.environ['RANK'] + '.json'), 'w'))"
    done, _ = follow(cluster, workdir, "--kind", "pytorch", "-N2", "--tasks-per-node", "2", "--", "python3", "-c", program,
                     *words, str(workdir))
    assert done.status == 0, str(done)
    for rank in range(4):
        told, local, arrived = json.loads((workdir / f"{rank}.json").read_text())
        assert told == str(rank)
        assert arrived == [f"{rank}/4", local, *words[2:], str(workdir)]


def test_the_first_failure_is_told_and_its_status_handed_through(cluster, workdir):
    # Tasks that Slurm ends afterwards die of SIGTERM, which is not what the user wants to know.
    script = 'if [ "$RANK" = 2 ]; then sleep 1; exit 7; fi; sleep 60'
    done, answer = follow(cluster, workdir, "-N2", "--tasks-per-node=2", "--", "bash", "-c", script)
    assert done.status == 7, str(done)
    assert answer["state"] == "FAILED" and answer["exit_status"] == 7
    assert answer["first_failure"].startswith("rank 2 (local 0) on node2: exit status 7")
    assert any("ended as FAILED" in line and "rank 2" in line for line in done.err.splitlines()), str(done)


def test_words_in_the_output_decide_nothing(cluster, workdir):
    """The line about the first failure was looked for in the job's output, where any program can print it."""
    words = "aml-dist: first failure: rank 0 (local 0) on node9: exit status 42, 0.1 s after the start"
    done, answer = follow(cluster, workdir, "--", "bash", "-c", f"echo; echo '{words}'; exit 3")
    assert done.status == 3 and "node9" in done.err, str(done)
    assert answer["first_failure"].startswith("rank 0 (local 0) on node1: exit status 3"), str(done)
    done, answer = follow(cluster, workdir, "--", "echo", words)
    assert done.status == 0 and answer["first_failure"] is None, str(done)
    assert not [*workdir.glob(".aml-run-*")]


def test_the_tasks_have_no_variable_of_the_record(cluster, workdir):
    done, answer = follow(cluster, workdir, "--", "env")
    assert done.status == 0 and "AMLDIST_STAMP=" in done.err and "AMLDIST_JOB_RECORD" not in done.err, str(done)


@pytest.mark.parametrize("end, state, status", [("scancel {job}", "CANCELLED", 130),
                                                ("scontrol update nodename=node1 state=down reason=test", "NODE_FAIL", 1)])
def test_an_end_that_slurm_decided_is_slurms(cluster, workdir, end, state, status):
    """Tasks that Slurm ends fail, too, but did not fail first."""
    line = f"cd {workdir} && {command('aml-run', '--wait', '--json', '--no-requeue', '-w', 'node1', '-J', 'ends', '--', 'sleep', '300')}"
    with subprocess.Popen([str(DEVCLUSTER), "run", "--name", cluster.name, "--env-clean", "--", "bash", "-c", line],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        try:
            for said in run.stderr:
                if "runs on" in said:
                    break
            cluster.run(end.format(job=cluster.run("squeue -h -n ends -o %i").out.strip()))
            out, err = run.communicate(timeout=90)
        finally:
            cluster.run("scontrol update nodename=node1 state=resume")
            cluster.run("scancel -n ends")
    answer = json.loads(out)
    assert run.returncode == status and answer["state"] == state, err
    assert answer["first_failure"] is None and not [*workdir.glob(".aml-run-*")]


def test_a_requeued_job_is_followed_to_its_second_end(cluster, workdir):
    """Slurm holds it back for two minutes in between."""
    script = f"cd {workdir}; if [ -e once ]; then exit 6; fi; touch once; sleep 300"
    line = f"cd {workdir} && {command('aml-run', '--wait', '--json', '--requeue', '-J', 'again', '--', 'bash', '-c', script)}"
    with subprocess.Popen([str(DEVCLUSTER), "run", "--name", cluster.name, "--env-clean", "--", "bash", "-c", line],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        try:
            deadline = time.monotonic() + 60
            while not (workdir / "once").exists():
                assert time.monotonic() < deadline
                time.sleep(0.1)
            job = cluster.run("squeue -h -n again -o %i").out.strip()
            assert cluster.run(f"scontrol requeue {job}").status == 0
            out, err = run.communicate(timeout=240)
        finally:
            cluster.run("scancel -n again")
    answer = json.loads(out)
    assert run.returncode == 6 and answer["state"] == "FAILED", err
    assert "exit status 6" in answer["first_failure"] and not [*workdir.glob(".aml-run-*")]


def test_a_folder_that_takes_no_output_is_told(cluster, workdir):
    locked = workdir / "locked"
    locked.mkdir(mode=0o755)  # root's
    done, answer = follow(cluster, locked, "--", "true", user="alice")
    assert done.status != 0 and answer["state"] == "FAILED", str(done)
    assert f"{locked}/slurm-{answer['job_id']}.out was never created" in done.err, str(done)


def test_output_comes_while_the_job_runs(cluster, workdir):
    script = f"echo early; while [ ! -e {workdir}/go ]; do sleep 0.1; done; echo late"
    words = [str(DEVCLUSTER), "run", "--name", cluster.name, "--env-clean", "--", "bash", "-c",
             f"cd {workdir} && {command('aml-run', '--wait', '--', 'bash', '-c', script)}"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL) as run:
        assert run.stdout.readline() == "early\n"
        (workdir / "go").touch()
        rest, said = run.communicate(timeout=60)
    assert run.returncode == 0 and rest == "late\n", said
    assert "runs on node" in said and "completed after" in said


def test_the_queue_reason_is_told(cluster, workdir):
    held = cluster.run(f"cd {workdir} && {command('aml-run', '--hold', '--json', '--', 'true')}")
    job = json.loads(held.out)["job_id"]
    cluster.run(f"scancel {job}")
    done = cluster.run(f"cd {workdir}; {command('aml-run', '--hold', '-J', 'waiter', '--wait', '--', 'true')} 2>said & "
                       "until grep -q waits: said; do sleep 0.1; done; scancel -n waiter; wait $!; status=$?; cat said >&2; "
                       "exit $status")
    assert done.status == 130, str(done)
    assert "waits: JobHeldUser" in done.err


def start_on_terminal(cluster, workdir, *words):
    """aml-run with a terminal, as a person has it; returns the process and our end of the terminal."""
    ours, theirs = pty.openpty()
    line = f"cd {workdir} && exec {command('aml-run', *words)}"
    run = subprocess.Popen([str(DEVCLUSTER), "run", "--name", cluster.name, "--", "bash", "-c", line], stdin=theirs,
                           stdout=theirs, stderr=theirs, start_new_session=True, close_fds=True)
    os.close(theirs)
    return run, ours


def read_until(end: int, pattern: str, seconds: float = 30) -> str:
    text = ""
    os.set_blocking(end, False)
    deadline = time.monotonic() + seconds
    while not re.search(pattern, text):
        assert time.monotonic() < deadline, text
        try:
            text += os.read(end, 65536).decode(errors="replace")
        except (BlockingIOError, OSError):
            time.sleep(0.05)
    return text


def interrupt(cluster):
    """SIGINT to aml-run itself, as the terminal sends it."""
    done = cluster.run("pkill -INT --oldest -x aml-run")  # a child that it has just started has its name, too
    assert done.status == 0, str(done)


def test_an_interrupt_asks_and_cancels(cluster, workdir):
    run, end = start_on_terminal(cluster, workdir, "--wait", "--", "sleep", "300")
    try:
        read_until(end, "runs on node")
        interrupt(cluster)
        read_until(end, r"cancel job \d+\?")
        os.write(end, b"n\n")
        time.sleep(2)
        assert run.poll() is None and len(jobs(cluster)) == 1
        interrupt(cluster)
        read_until(end, r"cancel job \d+\?")
        os.write(end, b"y\n")
        read_until(end, "ended as CANCELLED")
        assert run.wait(30) == 130
    finally:
        run.kill()
        os.close(end)
        cluster.run("scancel -u root")
    assert jobs(cluster) == []


@pytest.mark.parametrize("what", ["job", "pipeline"])
def test_a_second_interrupt_cancels(cluster, workdir, what):
    workdir.chmod(0o1777)
    (workdir / "job.yml").write_text(json.dumps({"type": "pipeline", "display_name": "twice", "jobs": {"a": {
        "type": "command", "command": "sleep 300"}}}))
    run, end = start_on_terminal(cluster, workdir, "--wait", *(["job.yml"] if what == "pipeline" else ["--", "sleep", "300"]))
    try:
        read_until(end, "running|runs on node")
        interrupt(cluster)
        read_until(end, r"cancel (job \d+|the run twice-1)\?")
        interrupt(cluster)
        read_until(end, "cancelling")
        assert run.wait(30) != 0
    finally:
        run.kill()
        os.close(end)
        cluster.run("scancel -u root")
    assert jobs(cluster) == []


def test_without_a_terminal_an_interrupt_cancels(cluster, workdir):
    line = f"cd {workdir} && {command('aml-run', '--wait', '--', 'sleep', '300')}"
    with subprocess.Popen([str(DEVCLUSTER), "run", "--name", cluster.name, "--", "bash", "-c", line],
                          stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as run:
        for said in run.stderr:
            if "runs on" in said:
                break
        interrupt(cluster)
        rest = run.stderr.read()
    assert run.returncode == 130 and "cancelling job" in rest, rest
    assert jobs(cluster) == []


def test_inside_an_allocation_a_step_is_started(cluster, workdir):
    inner = command("aml-run", "-N2", "--tasks-per-node=2", "--", "bash", "-c", 'echo "$SLURM_JOB_ID.$SLURM_STEP_ID $RANK"')
    done = cluster.run(f"cd {workdir} && salloc -N2 --ntasks-per-node=2 {inner}")
    assert done.status == 0, str(done)
    lines = sorted(done.out.split("\n")[:-1])
    assert len({line.split(".")[0] for line in lines}) == 1 and [line.split()[1] for line in lines] == ["0", "1", "2", "3"]
    failing = command("aml-run", "--", "bash", "-c", "exit 9")
    assert cluster.run(f"cd {workdir} && salloc -N1 {failing}").status == 9


@pytest.mark.parametrize("line", [
    ["aml-run", "-N2", "--tasks-per-node=2", "--"], ["aml-torchrun", "--nnodes=2", "--nproc-per-node=2", "--no-python"],
    ["aml-mpirun", "-N", "2"], ["aml-deepspeed", "--num_nodes=2", "--num_gpus=2", "--no_python", "--no_local_rank"]])
def test_a_step_has_as_many_tasks_as_it_says_whatever_the_allocation_was_made_for(cluster, workdir, line, request):
    """From 24.11 on Slurm gives the allocation's -c to its steps, whose four tasks then need eight processors."""
    if line[0] == "aml-mpirun": request.getfixturevalue("pmix")
    inner = command(*line, "bash", "-c", 'echo "$RANK $WORLD_SIZE $LOCAL_RANK"')
    done = cluster.run(f"cd {workdir} && salloc --exclusive -N2 -n2 -c2 {inner}")
    assert done.status == 0, str(done)
    assert sorted(done.out.splitlines()) == ["0 4 0", "1 4 1", "2 4 0", "3 4 1"]


def test_a_step_reads_standard_input(cluster, workdir):
    done = cluster.run(f"cd {workdir} && echo hello | salloc -N1 {command('aml-run', '--', 'cat')}")
    assert done.out == "hello\n", str(done)


def test_what_sbatch_refuses_is_one_sentence_and_nothing_is_submitted(cluster, workdir):
    for words, said in (("--partition=nowhere", "partition"), ("--nodelist=nowhere", "node"), ("--time=soon", "time"),
                        ("--account=x --dependency=afterok:nothing", "dependency")):
        done = cluster.run(f"cd {workdir} && {command('aml-run', *words.split(), '--', 'true')}")
        assert done.status == 6 and said in done.err.lower(), str(done)
        assert len(done.err.splitlines()) == 1 and done.err.startswith("aml-dist: Slurm does not accept the job: "), str(done)
    assert jobs(cluster) == []


# --------------------------------------------------------------------------------------------------------------- launchers


def test_torchrun_trains_with_a_task_for_each_process(cluster, examples):
    report = examples / "report.json"
    done = cluster.run(f"cd {examples}/../pytorch && " + command(
        "aml-torchrun", "--nnodes=2", "--nproc-per-node=2", "--rdzv-backend=c10d", "--rdzv-endpoint=node9:29433",
        "train_ddp.py", "--epochs", "3", "--fall", "1.1", "--report", str(report)), timeout=120, env=TORCH_ENVIRONMENT)
    assert done.status == 0, str(done)
    told = json.loads(report.read_text())
    assert told["world_size"] == 4 and {each["master_port"] for each in told["processes"]} == {29433}
    assert len({each["host"] for each in told["processes"]}) == 2


def test_torchrun_with_flags_of_its_agent_starts_the_real_one_on_each_node(cluster, examples, torchrun):
    """Debian's PyTorch 1.13 has no torchrun in PATH but the module: a script of that name stands for it."""
    real = examples / "torchrun"
    real.write_text('#!/bin/bash\nexport PET_REDIRECTS=1\nexec python3 -m torch.distributed.run "$@"\n')
    real.chmod(0o755)
    report = examples / "report.json"
    done = cluster.run(f"cd {examples}/../pytorch && PATH={examples}:$PATH " + command(
        "aml-torchrun", "--nnodes", "2", "--nproc_per_node", "2", "--max-restarts", "1", "--tee", "1", "--rdzv-backend", "c10d",
        "train_ddp.py", "--epochs", "3", "--fall", "1.1", "--report", str(report)), timeout=120)
    assert done.status == 0, str(done)
    assert json.loads(report.read_text())["world_size"] == 4
    assert "[default0]:" in done.out + done.err


def ranks_and_hosts(out: str) -> dict[int, str]:
    return {int(rank): host for rank, host in re.findall(r"^at (\d+) (\w+)$", out, re.M)}


TELL = ["bash", "-c", 'echo "at $RANK $(hostname)"']


@pytest.mark.usefixtures("pmix")
@pytest.mark.parametrize("flags, layout", [
    (["-n", "4", "--map-by", "node"], ["node1", "node2", "node1", "node2"]),
    (["-host", "node3:2,node1:1"], ["node3", "node3", "node1"]),
    (["-host", "node1:2,node2:2", "-n", "3"], ["node1", "node1", "node2"]),
    (["-np", "4", "-npernode", "2"], None),
    (["-n", "2", "-host", "node2:2"], ["node2", "node2"]),
])
def test_mpirun_places_ranks_as_it_says(cluster, workdir, flags, layout):
    allocation = "salloc -w node1,node2 --ntasks-per-node=2 " if "--map-by" in flags else ""
    done = cluster.run(f"cd {workdir} && {allocation}{command('aml-mpirun', *flags, *TELL)}")
    assert done.status == 0, str(done)
    placed = ranks_and_hosts(done.out)
    if layout is None:
        assert len(placed) == 4 and sorted(list(placed.values()).count(host) for host in set(placed.values())) == [2, 2]
    else:
        assert [placed[rank] for rank in range(len(layout))] == layout


@pytest.mark.usefixtures("pmix")
def test_mpirun_starts_real_mpi_and_several_programs(cluster, examples):
    subprocess.run(["mpicc", "-O2", "-o", examples / "mpi/pi", examples / "mpi/pi.c", "-lm"], check=True)
    done = cluster.run(f"cd {examples}/mpi && {command('aml-mpirun', '-n', '2', './pi', '1000', ':', '-n', '2', './pi', '1000')}")
    assert done.status == 0 and "from 4 ranks" in done.out, str(done)
    done = cluster.run(f"cd {examples} && " + command(
        "aml-mpirun", "-n", "1", "-x", "GREETING=a 'b' $c", "bash", "-c", 'echo "$RANK first $GREETING"', ":",
        "-n", "2", "-wdir", "mpi", "bash", "-c", 'echo "$RANK $(basename "$PWD") $GREETING"'))
    assert sorted(done.out.splitlines()) == ["0 first a 'b' $c", "1 mpi a 'b' $c", "2 mpi a 'b' $c"], str(done)


def test_deepspeed_gives_the_script_its_local_rank(cluster, workdir):
    (workdir / "show.py").write_text("import os, sys; print([os.environ['RANK'], sys.argv[1:]])\n")
    (workdir / "hosts").write_text("# two nodes\nnode2 slots=2\nnode1 slots=2\n")
    line = command("aml-deepspeed", "--hostfile", "hosts", "--include", "node2@node1:1", "show.py", "--x", "a b")
    done = cluster.run(f"cd {workdir} && salloc -N2 -w node1,node2 --ntasks-per-node=2 {line}")
    assert done.status == 0, str(done)
    shown = sorted(ast.literal_eval(text) for text in done.out.splitlines() if text.startswith("["))
    assert shown == [["0", ["--local_rank=0", "--x", "a b"]], ["1", ["--local_rank=1", "--x", "a b"]],
                     ["2", ["--local_rank=0", "--x", "a b"]]]


@pytest.mark.usefixtures("pmix")
def test_horovodrun_sets_what_horovod_reads(cluster, workdir):
    line = command("aml-horovodrun", "-np", "4", "-H", "node1:2,node2:2", "--fusion-threshold-mb", "32", "--autotune",
                   "--output-filename", "logs", "bash", "-c",
                   'echo "$OMPI_COMM_WORLD_RANK $HOROVOD_FUSION_THRESHOLD $HOROVOD_AUTOTUNE $(hostname)"')
    done = cluster.run(f"cd {workdir} && {line}")
    assert done.status == 0, str(done)
    assert [(workdir / f"logs/rank.{rank}.stdout").read_text() for rank in range(4)] == [
        f"{rank} {32 * 1024 * 1024} 1 {'node1' if rank < 2 else 'node2'}\n" for rank in range(4)]


def test_a_launcher_in_each_task_is_refused(cluster, workdir):
    done = cluster.run(f"cd {workdir} && srun -N2 -n2 {command('aml-torchrun', '--nproc-per-node=2', 'x.py')}")
    assert done.status == 2 and "in each of 2 tasks" in done.err, str(done)


CATCHES = """import os, signal, time
caught = []
signal.signal(signal.SIGUSR1, lambda *_: caught.append(1))
end = time.time() + 80
while not caught and time.time() < end:
    time.sleep(0.2)
print("rank", os.environ["RANK"], "saved" if caught else "was not told", flush=True)
"""


@pytest.mark.parametrize("line", [
    "echo begins\n  python3 catches.py", "python3 catches.py 2>&1 | tee log.$RANK", "true && python3 catches.py; echo ends"])
def test_a_signal_before_the_limit_reaches_the_ranks_of_a_command_of_several_parts(cluster, workdir, line):
    (workdir / "catches.py").write_text(CATCHES)
    (workdir / "job.yml").write_text(f"command: |\n  {line}\ndistribution: {{type: pytorch}}\nresources: {{instance_count: 2}}\n")
    done = cluster.run(f"cd {workdir} && {command('aml-run', '--wait', '--signal=USR1@45', '--time=1', 'job.yml')}", user="alice",
                       timeout=150)
    assert done.status == 0 and done.out.count("saved") == 2, str(done)


def test_a_folder_that_one_node_lacks_is_an_error_and_not_tmp(cluster, workdir):
    try:
        cluster.run("install -d -o alice /tmp/only-here", on="node1")
        done = cluster.run(f"cd {workdir} && {command('aml-run', '--wait', '-w', 'node[1-2]', '-N2', '-D', '/tmp/only-here', '-o', f'{workdir}/log', '--', 'pwd')}",
                           user="alice")
        assert done.status == 4 and "/tmp\n" not in (workdir / "log").read_text(), (str(done), (workdir / "log").read_text())
        gone = cluster.run(f"cd {workdir} && {command('aml-run', '--wait', '-N1', '-D', '/var/tmp/nowhere', '-o', f'{workdir}/log', '--', 'pwd')}", user="alice")
        assert gone.status == 4 and "so the nodes do not share it: /var/tmp/nowhere" in (workdir / "log").read_text(), str(gone)
    finally:
        cluster.run("rm -r /tmp/only-here", on="node1")
