"""aml-dist keep on a real cluster: faults while a step runs, the decision, the node, and the training that goes on."""

import json
import os
import pathlib
import re
import shlex
import struct
import time

import pytest
from fabric_nodes import FabricatedNodes  # isort: skip (makes cases known)
import cases
from test_fabric import LIBRARY
from test_faults import wait_until
from test_hang import program  # noqa: F401 (fixture)

TOOL = os.environ["AMLDIST_TOOL"]
# A rank says where it runs, and waits for a file, at most half a minute.
RANK = "echo rank $RANK of $WORLD_SIZE on $SLURMD_NODENAME start $AMLDIST_RESTART $TORCHELASTIC_RESTART_COUNT port $MASTER_PORT"
# Each step adds a number of its own to a state, written whole or not at all; the end depends on every step once.
TRAIN = """
import os, pathlib, struct, sys, time
folder, steps, pace = pathlib.Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
own = folder / f"rank{os.environ['RANK']}"
step, state = struct.unpack("<qd", own.read_bytes()) if own.exists() else (0, 1.0)
print("begins at", step, "restart", os.environ["AMLDIST_RESTART"], flush=True)
while step < steps:
    step, state = step + 1, (state * 1.000000119 + 0.1 * (step + 1)) % 977.0
    time.sleep(pace)
    draft = own.with_name(own.name + ".new")
    draft.write_bytes(struct.pack("<qd", step, state))
    draft.rename(own)
"""


class Kept:
    """A batch job of `aml-dist keep`."""

    def __init__(self, cluster, workdir: pathlib.Path, arguments: str, program: str, sbatch: str = "-N4", srun: str = "") -> None:
        self.cluster, self.workdir, self.log = cluster, workdir, workdir / "log"
        (workdir / "rank.sh").write_text(f"#!/bin/bash\ncd {workdir}\n{RANK}\n{program}\n")
        (workdir / "job.sh").write_text(f"#!/bin/bash\ncd {workdir}\n{TOOL} keep {arguments} -- srun --ntasks-per-node=1 --aml-dist=pytorch {srun} bash "
                                        f"{workdir}/rank.sh\necho status $? >>{self.log}\n")
        done = cluster.run(f"cd {workdir} && sbatch --parsable --exclusive --ntasks-per-node=1 --open-mode=append -o {self.log} {sbatch} job.sh")
        assert done.status == 0, str(done)
        self.job = done.out.strip()

    def text(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def says(self, words: str, seconds: float = 40) -> float:
        try:
            wait_until(lambda: words in self.text(), seconds)
        except AssertionError:
            raise AssertionError(f"never said {words!r}:\n{self.text()}") from None
        return time.monotonic()

    def end(self, seconds: float = 60) -> int:
        self.says("\nstatus ", seconds)
        return int(re.search(r"^status (\d+)$", self.text(), re.MULTILINE)[1])

    def lines(self) -> list[str]:
        return re.findall(r"^aml-dist: keep: (.*)$", self.text(), re.MULTILINE)

    def starts(self) -> list[str]:
        return [line.partition(" on ")[2] for line in self.lines() if re.match(r"start \d+ on ", line)]

    def hosts(self, start: int) -> list[str]:
        """Of the ranks of one start, in their order."""
        found = re.findall(rf"^rank (\d+) of \d+ on (\w+) start {start} {start} port", self.text(), re.MULTILINE)
        return [host for _, host in sorted(set(found))]


@pytest.fixture(autouse=True)
def clean(cluster):
    yield
    cluster.run("squeue -h -o %A | xargs -r scancel --quiet; while squeue -h | grep -q .; do sleep 0.2; done", timeout=40)
    assert cluster.devcluster("heal", "all").status == 0


def test_a_rank_is_killed_once(cluster, workdir):
    kept = Kept(cluster, workdir, "--spares 1", "sleep 1; if [ $RANK = 1 ] && mkdir once; then date +%s.%N >died; kill -9 $$; fi; date +%s.%N >>again; sleep 1")
    assert kept.end() == 0, kept.text()
    assert kept.starts() == ["node1, node2, node3, spare: node4"] * 2, kept.text()
    assert kept.hosts(0) == kept.hosts(1) == ["node1", "node2", "node3"], kept.text()
    assert "again on the same nodes" in kept.lines()[1] and "rank 1 (local 0) on node2: signal 9" in kept.lines()[1], kept.text()
    ports = set(re.findall(r"port (\d+)", kept.text()))
    assert len(ports) == 2, "a new port for each start: " + kept.text()
    assert not list(workdir.glob(".aml-dist-keep*")), "no file is left"


def test_a_program_that_always_fails_is_stopped(cluster, workdir):
    kept = Kept(cluster, workdir, "--spares 1 --retries 9", "sleep 0.3; [ $RANK != 1 ] || exit 7; sleep 30")
    assert kept.end() == 143 and len(kept.starts()) == 3, kept.text()  # srun says that Slurm ended the other ranks
    assert kept.starts()[2] == "node1, node4, node3" and kept.hosts(2) == ["node1", "node4", "node3"], "the spare has the rank: " + kept.text()
    assert "the program's own fault" in kept.lines()[-1], kept.text()


def test_a_program_that_fails_everywhere_is_stopped_soon(cluster, workdir):
    kept = Kept(cluster, workdir, "--retries 9 --spares 1", "sleep 0.$((RANDOM % 9)); exit 3")
    assert kept.end() in (3, 143) and len(kept.starts()) <= 3 and "the program's own fault" in kept.lines()[-1], kept.text()


def test_statuses_that_are_not_to_be_repeated(cluster, workdir):
    kept = Kept(cluster, workdir, "--no-restart-on 9,7", "[ $RANK != 1 ] || exit 7; sleep 30")
    kept.end()
    assert len(kept.starts()) == 1 and kept.lines()[-1] == "not started again: status 7 is in --no-restart-on", kept.text()


def test_a_step_that_is_refused_is_not_repeated(cluster, workdir):
    kept = Kept(cluster, workdir, "", "true", srun="--aml-dist=pytorch,process_count=9")
    assert kept.end() == 1 and len(kept.starts()) == 1 and "not started again: refused" in kept.lines()[-1], kept.text()


def test_no_progress_ends_it(cluster, workdir):
    """Ranks fail on one node after the other, differently, and nothing is saved."""
    (workdir / "saved").mkdir()
    kept = Kept(cluster, workdir, f"--retries 9 --checkpoints {workdir}/saved", "[ $RANK != $AMLDIST_RESTART ] || exit $((5 + AMLDIST_RESTART)); sleep 30")
    kept.end()
    assert len(kept.starts()) == 2 and kept.lines()[-1].startswith("no progress in two starts"), kept.text()


def test_a_hang_is_started_again_and_then_its_node_swapped(cluster, pmix, program, workdir):  # noqa: F811
    """The third start is healthy. Open MPI needs no network between the starts."""
    kept = Kept(cluster, workdir, "--spares 1", f"[ $AMLDIST_RESTART -lt 2 ] && kind=late || kind=none; exec {program} $kind 7 5", sbatch="-N3",
                srun="--ntasks-per-node=2 --mpi=pmix --aml-dist=mpi,hang=2")
    assert kept.end(90) == 0, kept.text()
    assert kept.starts() == ["node1, node2, spare: node3"] * 2 + ["node1, node3"], kept.text()
    assert kept.text().count("aml-dist: hang: ") == 2 and "node2 is suspected" in kept.text(), kept.text()


def finish_training(kept, workdir, ranks: int, steps: int) -> None:
    """The files of a training are those of one that nobody disturbed."""
    state = 1.0
    for step in range(steps):
        state = (state * 1.000000119 + 0.1 * (step + 1)) % 977.0
    want = struct.pack("<qd", steps, state)
    assert [(workdir / f"rank{rank}").read_bytes() for rank in range(ranks)] == [want] * ranks, kept.text()


def train(cluster, workdir, arguments: str, steps: int = 60, **options) -> Kept:
    (workdir / "train.py").write_text(TRAIN)
    return Kept(cluster, workdir, arguments, f"exec /usr/bin/python3 {workdir}/train.py {workdir} {steps} 0.1", **options)


def checkpoint(workdir: pathlib.Path) -> None:
    wait_until(lambda: (workdir / "rank1").exists(), 40)


def test_the_cable_of_a_node_is_cut(cluster, workdir):
    """A spare has the node's place within thirteen seconds, long before SlurmdTimeout; the training ends as without it."""
    kept = train(cluster, workdir, "--spares 1", steps=100)
    checkpoint(workdir)
    time.sleep(1)
    cut = time.monotonic()
    assert cluster.devcluster("break", "node2", "link").status == 0
    started = kept.says("keep: start 1 on node1, node4, node3")
    kept.says("start 1 1 port")
    assert started - cut < 13, (started - cut, kept.text())
    assert kept.end() == 0, kept.text()
    assert "node2 does not answer any more" in kept.text() and kept.hosts(1) == ["node1", "node4", "node3"], kept.text()
    finish_training(kept, workdir, 3, 100)


def test_slurmd_and_the_processes_of_a_node_are_killed(cluster, workdir):
    kept = train(cluster, workdir, "--spares 1", steps=80)
    checkpoint(workdir)
    died = time.monotonic()
    cluster.run("pkill -9 -x slurmd; pkill -9 slurmstepd; pkill -9 -f train.py", on="node2")
    started = kept.says("keep: start 1 on node1, node4, node3")
    assert started - died < 13, (started - died, kept.text())
    assert kept.end() == 0, kept.text()
    finish_training(kept, workdir, 3, 80)


def test_a_node_that_fails_its_check_is_not_used(cluster, workdir, sick):
    kept = Kept(cluster, workdir, "--spares 1", "true")
    assert kept.end() == 0 and kept.starts() == ["node1, node3, node4"], kept.text()
    assert re.match(r"node2 is not used: ib\.\w+: ", kept.lines()[0]), kept.text()


def test_a_check_that_does_not_answer_is_not_a_sick_node(cluster, workdir):
    """And does not hold the job for ever."""
    slow = workdir / "slow"
    slow.write_text("#!/bin/bash\nsleep 300\n")
    slow.chmod(0o755)
    assert cluster.run(f"mount --bind {slow} {TOOL}", on="node3").status == 0
    try:
        kept = Kept(cluster, workdir, "", "true")
        assert kept.end(80) == 0 and kept.starts() == ["node1, node2, node3, node4"], kept.text()
        assert "the check of node3 has not answered" in kept.lines()[0], kept.text()
    finally:
        assert cluster.run(f"umount {TOOL}", on="node3").status == 0


@pytest.fixture
def sick(cluster):
    """A port of node2's card is down."""
    nodes = FabricatedNodes(cluster, LIBRARY)
    tree = cases.base()
    tree.port(1).state, tree.port(1).phys_state = "1: DOWN", "2: Polling"
    nodes.lay("node2", tree)
    yield
    nodes.close()


@pytest.mark.parametrize("arguments, says, starts", [
    ("--min-nodes 2", "it goes on with 3 nodes (--min-nodes=2)", ["node1, node2, node3, node4", "node1, node3, node4"]),
    ("", "no spare is left: give --spares, --min-nodes or --requeue", ["node1, node2, node3, node4"]),
])
def test_no_spare_is_left(cluster, workdir, arguments, says, starts):
    kept = train(cluster, workdir, arguments, steps=60)
    checkpoint(workdir)
    cluster.run("pkill -9 -x slurmd; pkill -9 slurmstepd; pkill -9 -f train.py", on="node2")
    status = kept.end()
    assert says in kept.text() and kept.starts() == starts and (status == 0) == bool(arguments), kept.text()
    if arguments:
        assert "rank 2 of 3 on node4 start 1" in kept.text(), kept.text()


def test_back_to_the_queue_without_the_node(cluster, workdir):
    kept = train(cluster, workdir, "--requeue", steps=60, sbatch="-N3 --requeue")
    checkpoint(workdir)
    cluster.run("pkill -9 -x slurmd; pkill -9 slurmstepd; pkill -9 -f train.py", on="node2")
    kept.says("the job goes back to the queue, without node2")
    kept.says("the job was requeued: 1 start so far, without node2", 60)
    assert kept.end(60) == 0, kept.text()
    assert kept.starts() == ["node1, node2, node3", "node1, node3, node4"] and "start 1 1 port" in kept.text(), kept.text()
    finish_training(kept, workdir, 3, 60)
    assert not list(workdir.glob(".aml-dist-keep*")), "no file is left"


def test_a_step_that_stops_before_the_limit_goes_on_in_the_queue(cluster, workdir):
    """The first run stops when it is asked to, 50 s before a limit of a minute; the second has nothing left to do."""
    log = workdir / "log"
    (workdir / "rank.sh").write_text("#!/bin/bash\n[ ! -e saved ] || { echo nothing left; exit 0; }\n"
                                     "until [ -e $AMLDIST_STOP_FILE ]; do sleep 0.2; done\necho saved by $RANK start $AMLDIST_RESTART >>saved\n")
    (workdir / "job.sh").write_text(f"#!/bin/bash\ncd {workdir}\n{TOOL} keep --retries 0 --health off --requeue-at-limit -- srun --ntasks-per-node=1 "
                                    f"--aml-dist=pytorch,stop=50 bash rank.sh\necho status $? >>{log}\n")
    done = cluster.run(f"cd {workdir} && sbatch --parsable -N2 --ntasks-per-node=1 --time=1 --requeue --open-mode=append -o {log} job.sh")
    assert done.status == 0, str(done)
    wait_until(lambda: log.exists() and log.read_text().count("nothing left") == 2, 120)
    wait_until(lambda: "\nstatus 0" in log.read_text().rpartition("nothing left")[2], 20)
    said = log.read_text()
    assert "keep: the step has stopped before the time limit: the job goes back to the queue" in said, said
    assert "keep: the job was requeued: 1 start so far" in said and "start 1 on node" in said, said
    assert not list(workdir.glob(".aml-dist-keep*")), "no file is left"


def test_the_node_of_the_batch_script_dies(cluster, workdir):
    """Slurm ends the job when it gives the node up, and requeues it; the next run goes on, with the same budget."""
    kept = train(cluster, workdir, "--requeue --retries 1", steps=60, sbatch="-N2 -w node[1-2] --requeue")
    checkpoint(workdir)
    cluster.run("pkill -9 -x slurmd; pkill -9 slurmstepd; pkill -9 -x aml-dist; pkill -9 -x srun; pkill -9 -x python3; pkill -9 slurm_script", on="node1")
    wait_until(lambda: "NODE_FAIL" in cluster.run(f"scontrol show job {kept.job}").out or "Restarts=1" in cluster.run(f"scontrol show job {kept.job}").out, 90)
    assert cluster.devcluster("heal", "node1").status == 0
    kept.says("the job was requeued: 1 start so far", 60)
    kept.says("\nstatus 0", 60)  # the first run's was the shell's word about a killed keep
    assert "start 1 1 port" in kept.text(), kept.text()
    finish_training(kept, workdir, 2, 60)


def test_a_cancelled_job_is_not_started_again(cluster, workdir):
    kept = Kept(cluster, workdir, "--spares 1 --retries 9", "sleep 60")
    kept.says("rank 2 of 3")
    cluster.run(f"scancel {kept.job}")
    wait_until(lambda: kept.job not in cluster.run("squeue -h -o %A").out, 30)
    assert len(kept.starts()) == 1, kept.text()
    assert not list(workdir.glob(".aml-dist-keep*")), "no file is left"


def test_a_cancelled_step_is_not_started_again(cluster, workdir):
    kept = Kept(cluster, workdir, "--spares 1 --health off", "sleep 60")
    kept.says("rank 2 of 3")
    cluster.run(f"scancel {kept.job}.0")
    assert kept.end() != 0 and len(kept.starts()) == 1 and "not started again: cancelled" in kept.lines()[-1], kept.text()


def test_cancelled_between_two_starts(cluster, workdir):
    kept = Kept(cluster, workdir, "--retries 99 --spares 1", "exit $((AMLDIST_RESTART + 1))")
    kept.says("start 2 on")
    cluster.run(f"scancel {kept.job}")
    wait_until(lambda: kept.job not in cluster.run("squeue -h -o %A").out, 30)
    assert len(kept.starts()) <= 4, kept.text()


def test_the_others_may_finish_what_they_write(cluster, workdir):
    """--grace: the other ranks are not ended for so long."""
    kept = Kept(cluster, workdir, "--retries 0 --grace 4", "[ $RANK != 1 ] || exit 7; sleep 2; echo saved $RANK; sleep 60")
    assert kept.end(30) != 0, kept.text()
    assert sorted(re.findall(r"saved \d", kept.text())) == ["saved 0", "saved 2", "saved 3"], kept.text()
    assert "the others have 4 s to finish" in kept.text() and "--grace=4 is over" in kept.text(), kept.text()


def test_lines_of_json(cluster, workdir):
    kept = Kept(cluster, workdir, "--json --retries 0", "exit 3")
    kept.end()
    events = [json.loads(line) for line in kept.text().splitlines() if line.startswith("{")]
    assert [event["event"] for event in events] == ["start", "decision"] and events[1]["action"] == "end", kept.text()
    assert events[0]["nodes"] == ["node1", "node2", "node3", "node4"] and events[1]["cause"] == "rank_exit", kept.text()


@pytest.mark.parametrize("arguments, srun, says", [
    ("--spares 4", "", "--spares=4, but the job has 4 nodes: allocate more nodes than spares"),
    ("--spares 2", "-N3", "srun's --nodes=3 and --spares=2 make 5 nodes, but the job has 4 nodes"),
    ("--min-nodes 5", "", "--min-nodes=5, but the step has 4 nodes"),
    ("--requeue", "", "--requeue needs a batch job"),
    ("--requeue-at-limit", "", "--requeue-at-limit needs a batch job"),
    ("--checkpoints /nowhere", "", "--checkpoints '/nowhere' is not a folder: make it before"),
    ("", "-w node1", "the srun line has --nodelist, but keep chooses the nodes of each start"),
    ("", "-N1 true : -N1", "a heterogeneous step (':') cannot be kept"),
])
def test_bad_input_is_one_sentence(cluster, arguments, srun, says):
    done = cluster.run(f"salloc -Q -N4 {TOOL} keep {arguments} -- srun --aml-dist=pytorch {srun} true")
    lines = done.own_lines()
    assert len(lines) == 1 and lines[0].startswith(f"aml-dist: keep: {says}") and done.status in (2, 4), str(done)


def test_where_it_cannot_run(cluster):
    for command, says in [
        (f"{TOOL} keep -- srun true", "there is no job here: write it into a batch script, or start it under salloc"),
        (f"srun -N1 {TOOL} keep -- srun true", "it starts steps, and runs in a step itself: take away the srun in front of it"),
        (f"salloc -Q -N1 {TOOL} keep -- env true", "'env' is not srun"),
        (f"salloc -Q -N1 {TOOL} keep", "no step is given"),
        (f"salloc -Q -N1 : -N1 {TOOL} keep -- srun true", "a heterogeneous job cannot be kept"),
        (f"salloc -Q -N1 bash -c 'AMLDIST_KEEP=$SLURM_JOB_ID {TOOL} keep -- srun true'", "it runs below another aml-dist keep already"),
        (f"salloc -Q -N1 bash -c '{TOOL} keep --health off -- srun --aml-dist=pytorch sleep 3 & sleep 1; {TOOL} keep -- srun true; s=$?; wait; exit $s'",
         "another aml-dist keep of job"),
    ]:
        done = cluster.run(command)
        lines = [line for line in done.own_lines() if "start 0 on" not in line]
        assert done.status == 2 and len(lines) == 1 and f"aml-dist: keep: {says}" in lines[0], str(done)


def test_a_state_that_cannot_be_written(cluster, workdir):
    """A full disk: --requeue is refused, and without it a line says what is lost."""
    cluster.run(f"mkdir {workdir}/full && mount -t tmpfs -o size=4k,nr_inodes=1 full {workdir}/full", on="node1")
    try:
        for flag, status, says in [("--requeue", 1, "--requeue needs it"), ("", 0, "after a requeue the budget would begin anew")]:
            (workdir / "s.sh").write_text(f"#!/bin/bash\ncd {workdir}/full\n{TOOL} keep {flag} -- srun --ntasks-per-node=1 --chdir=/ --aml-dist=pytorch true\n")
            done = cluster.run(f"sbatch --wait -w node1 -N1 --requeue -o {workdir}/out {workdir}/s.sh")
            text = (workdir / "out").read_text()
            assert done.status == status and says in text, text + str(done)
            (workdir / "out").unlink()
    finally:
        assert cluster.run(f"umount {workdir}/full", on="node1").status == 0


def test_every_task_has_its_number_under_export_none(cluster, workdir):
    done = cluster.run(f"salloc -Q -N2 {TOOL} keep -- srun --export=NONE --ntasks-per-node=1 --aml-dist=pytorch "
                       + shlex.quote("/bin/bash") + " -c 'echo restart=$AMLDIST_RESTART=$TORCHELASTIC_RESTART_COUNT=$AMLDIST_END_RECORD'")
    assert done.out == "restart=0=0=\n" * 2, str(done)
