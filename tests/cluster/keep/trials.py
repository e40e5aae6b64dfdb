"""Faults under `aml-dist keep`, each at a moment and on a node by a seed: what keep must decide, and how the training must end.

A sample runs in test_trials.py, many of each kind in tests/soak/keep, whose cluster has what some kinds need.
"""

from __future__ import annotations

import dataclasses
import pathlib
import random
import re
import shutil
import time
from collections.abc import Callable

from fabric_nodes import DEV, FabricatedNodes  # isort: skip (makes trees known)
from cluster import Cluster
from kept import KILL_NODE, Kept, ends_as_undisturbed, train, wait_for_checkpoint
from test_fabric import LIBRARY, cable_out, healthy
from test_faults import wait_until, wait_until_saved

STEPS = 60
OWN_FAULT = "the program's own fault"


class Trial:
    def __init__(self, cluster: Cluster, workdir: pathlib.Path, kind: str, seed: str) -> None:
        self.cluster, self.workdir, self.chance = cluster, workdir, random.Random(f"{seed} {kind}")
        self.fell = 0.0  # when the fault came, in seconds since 1970
        self.victim = self.chance.choice(["node2", "node3"])  # node1 has the batch script
        self.kept: Kept | None = None
        self.fabric: FabricatedNodes | None = None

    def train(self, arguments: str = "--spares 1", steps: int = STEPS, **options) -> Kept:
        self.kept = train(self.cluster, self.workdir, arguments, steps, **options)
        return self.kept

    def strike(self, *acts: Callable[[Cluster, str], None], node: str = "") -> None:
        """When a checkpoint is there, and some time later."""
        wait_for_checkpoint(self.kept)
        time.sleep(self.chance.uniform(0, 3))
        self.fell = time.time()
        for act in acts:
            act(self.cluster, node or self.victim)

    def begin_fabric(self) -> FabricatedNodes:
        self.fabric = FabricatedNodes(self.cluster, LIBRARY)
        return self.fabric

    def goes_on(self, *starts: str, says: str = "", ranks: int = 3, steps: int = STEPS, seconds: float = 120) -> None:
        """On these nodes, from the checkpoint, to the right end."""
        kept = self.kept
        assert kept.end(seconds) == 0, kept.text()
        assert [start.partition(", spare")[0] for start in kept.starts()] == list(starts), kept.text()
        assert kept.hosts(len(starts) - 1) == starts[-1].split(", ") and says in kept.text(), kept.text()
        if len(starts) > 1 and self.saved_before():
            assert kept.resumed_at(len(starts) - 1) > 0, kept.text()
        assert ends_as_undisturbed(self.cluster, self.workdir, ranks, steps), kept.text()

    def saved_before(self) -> bool:
        return "begins at 0 restart 0" in self.kept.text() and self.fell > self.kept.began(0)

    def ends(self, says: str, most_starts: int, seconds: float = 120) -> None:
        kept = self.kept
        assert kept.end(seconds) != 0 and len(kept.starts()) <= most_starts and re.search(says, kept.lines()[-1]), kept.text()

    def seconds(self) -> float | None:
        """From the fault to the first line of the next start."""
        told = self.kept.workdir / "fell"
        fell = float(told.read_text()) if told.exists() else self.fell
        starts = sorted({int(number) for number in re.findall(r"start (\d+) \1 port", self.kept.text())}) if self.kept else []
        return self.kept.began(starts[1]) - fell if fell and len(starts) > 1 else None

    def clean(self) -> None:
        self.cluster.run("squeue -h -o %A | xargs -r scancel --quiet; while squeue -h | grep -q .; do sleep 0.2; done", timeout=60)
        if self.fabric:
            self.fabric.close()
        healed = self.cluster.devcluster("heal", "all")
        assert healed.status == 0, str(healed)


def swapped(victim: str, spare: str = "node4") -> str:
    return ", ".join(spare if node == victim else node for node in ("node1", "node2", "node3"))


ALL = swapped("")


# ---- what happens to nodes and processes

def kill_slurmd(cluster: Cluster, node: str) -> None:
    cluster.run("pkill -9 -x slurmd", on=node)


def kill_processes(cluster: Cluster, node: str) -> None:
    cluster.run(KILL_NODE, on=node)


def cut(cluster: Cluster, node: str) -> None:
    assert cluster.devcluster("break", node, "link").status == 0


def kill_machine(cluster: Cluster, node: str) -> None:
    """All at once: a dead machine answers nobody, and its processes end without a word."""
    cut(cluster, node)
    cluster.run("kill -9 -1", on=node)


def signal_rank(name: str) -> Callable[[Cluster, str], None]:
    return lambda cluster, node: cluster.run(f"pkill -{name} -f '^/usr/bin/python3 .*train.py'", on=node)


def on(condition: str, act: str) -> str:
    """fault.py: a rank does it, and writes down when."""
    return f"def fault(step):\n    if {condition}:\n        fell()\n        {act}\n"


# ---- the kinds

def node_goes(*acts: Callable[[Cluster, str], None], steps: int = STEPS) -> Callable[[Trial], None]:
    def run(trial: Trial) -> None:
        trial.train(steps=steps)
        trial.strike(*acts)
        trial.goes_on(ALL, swapped(trial.victim), says=f"a spare takes the place of {trial.victim}", steps=steps)
    return run


def rank_fails(act: str = "", signal: str = "", option: str = "", says: str = "again on the same nodes") -> Callable[[Trial], None]:
    def run(trial: Trial) -> None:
        rank, step = trial.chance.randrange(3), trial.chance.randrange(5, STEPS // 2)
        trial.train(srun=option, fault=on(f"restart == 0 and rank == {rank} and step == {step}", act) if act else "")
        if signal:
            trial.victim = f"node{rank + 1}"
            trial.strike(signal_rank(signal))
        trial.goes_on(ALL, ALL, says=says)
        ports = re.findall(r"start 0 0 port (\d+)", trial.kept.text())[:1] + re.findall(r"start 1 1 port (\d+)", trial.kept.text())[:1]
        assert len(set(ports)) == 2, "a new port for each start: " + trial.kept.text()
        assert not list(trial.workdir.glob(".aml-dist-keep*")), "no file is left"
    return run


def port_is_taken(trial: Trial) -> None:
    """Another process has the master's port before rank 0, which listens there as PyTorch's store does."""
    listen = 'socket.create_server(("", int(os.environ["MASTER_PORT"])))'
    trial.train(fault="import socket\n" + on("step == -1 and restart == 0 and rank == 0", f"global thief; thief = {listen}") +
                f"    if step == -1 and rank == 0:\n        global store; store = {listen}\n")
    trial.goes_on(ALL, ALL, says="again on the same nodes")


def port_goes_down(trial: Trial) -> None:
    """The program loses its InfiniBand port and ends; before the next start the check finds it."""
    fabric = trial.begin_fabric()
    for number in range(1, 5):
        fabric.lay(f"node{number}", healthy())

    def lose(cluster: Cluster, node: str) -> None:
        cluster.run(f"umount /sys/module; umount {DEV} && umount /sys/class", on=node)
        shutil.rmtree(fabric.folder / node)
        fabric.lay(node, cable_out())
    trial.train(environment=fabric.environment())
    trial.strike(lose, signal_rank("9"))
    trial.goes_on(ALL, swapped(trial.victim), says=f"{trial.victim}: ib.")


def sick_before(trial: Trial) -> None:
    trial.begin_fabric().lay(trial.victim, cable_out())
    trial.train()
    trial.goes_on(swapped(trial.victim).replace("node4", "").replace(", , ", ", ").strip(", ") + ", node4", says=f"{trial.victim} is not used: ib.")


def spare_is_broken_too(trial: Trial) -> None:
    trial.train("--spares 2")
    trial.strike(cut, node="node2")
    cut(trial.cluster, "node3")
    trial.goes_on("node1, node2", "node1, node4", says="node3: its slurmd does not answer", ranks=2)


def two_nodes(trial: Trial) -> None:
    trial.train("--spares 2", salloc=True)
    trial.strike(cut, node="node1")
    cut(trial.cluster, "node2")
    trial.goes_on("node1, node2", "node3, node4", ranks=2)


def first_node(trial: Trial) -> None:
    """keep runs on the login machine, so the node of rank 0 can be replaced."""
    trial.train(salloc=True)
    trial.strike(cut, node="node1")
    trial.goes_on(ALL, swapped("node1"), says="a spare takes the place of node1")


def batch_node(trial: Trial) -> None:
    """Slurm ends the job when it misses the node, and requeues it, onto others."""
    kept = trial.train("--requeue --retries 1", sbatch="-N2 --requeue")
    kept.says("start 0 on")
    node = kept.starts()[0].partition(",")[0]
    trial.strike(kill_machine, node=node)
    kept.says("the job was requeued: 1 start so far", 150)
    kept.says("\nstatus 0", 90)  # before it may be the shell's word about a keep that was killed
    assert kept.resumed_at(1) > 0 and node not in kept.starts()[1], kept.text()
    assert ends_as_undisturbed(trial.cluster, trial.workdir, 2, STEPS), kept.text()


def bug(condition: str, act: str = "raise ValueError('shape mismatch')", says: str = OWN_FAULT, most: int = 3, arguments: str = "--spares 1 --retries 9",
        **options) -> Callable[[Trial], None]:
    def run(trial: Trial) -> None:
        trial.train(arguments, fault=on(condition, act), **options)
        trial.ends(says, most, 200)
    return run


def bug_of_a_node(trial: Trial) -> None:
    """Ranks fail on one node only: it is the node, though it looks like a bug."""
    trial.train(fault=on(f"node == {trial.victim!r} and step == 8", "raise ValueError('shape mismatch')"))
    trial.goes_on(ALL, ALL, swapped(trial.victim), says=f"{trial.victim} is suspected")


def never_saved(trial: Trial) -> None:
    """The failure is another one each time, so only the progress tells."""
    trial.train(f"--spares 1 --retries 9 --checkpoints {trial.workdir}/saved", saves=False,
                fault=on("rank == restart % 3 and step == 5", "sys.exit(5 + restart)"))
    trial.ends("no progress in two starts", 2)


def cancelled_between(trial: Trial) -> None:
    kept = trial.train("--spares 1 --retries 9")
    trial.strike(signal_rank("9"))
    kept.says("again on the same nodes")
    time.sleep(trial.chance.uniform(0, 1.5))
    trial.cluster.run(f"scancel {kept.job}")
    wait_until(lambda: kept.job not in trial.cluster.run("squeue -h -o %A").out, 30)
    assert len(kept.starts()) <= 2 and not list(trial.workdir.glob(".aml-dist-keep*")), kept.text()


def time_limit(trial: Trial) -> None:
    kept = trial.train("--spares 1 --retries 9", steps=10000, sbatch="-N4 --time=1")
    wait_until(lambda: kept.job not in trial.cluster.run("squeue -h -o %A").out, 150)
    assert len(kept.starts()) == 1 and not list(trial.workdir.glob(".aml-dist-keep*")), kept.text()


def preempted(trial: Trial) -> None:
    steps = 3 * STEPS  # the other job comes before the end, also on a slow machine
    kept = trial.train("--requeue", steps=steps, sbatch="-N3 --requeue -p main")
    trial.strike(lambda cluster, _: cluster.run("sbatch -p high -N4 --exclusive -o /dev/null --wrap 'sleep 0.2'"))
    kept.says("the job was requeued: 1 start so far", 90)
    kept.says("\nstatus 0", 90)
    assert kept.resumed_at(1) > 0, kept.text()
    assert ends_as_undisturbed(trial.cluster, trial.workdir, 3, steps), kept.text()


def array(trial: Trial) -> None:
    """Each task of an array is a job, with a keep and a state of its own."""
    folders = [trial.workdir / "0", trial.workdir / "1"]
    faults = ["", on(f"restart == 0 and rank == {trial.chance.randrange(2)} and step == 8", "os.kill(os.getpid(), 9)")]
    for folder in folders:
        folder.mkdir()
    quiet, trial.kept = (train(trial.cluster, folder, "--requeue", STEPS, fault=fault, sbatch=None) for folder, fault in zip(folders, faults))
    task = trial.workdir / "task.sh"
    task.write_text(f"#!/bin/bash\ncd {trial.workdir}/$SLURM_ARRAY_TASK_ID && exec ./job.sh >>log 2>&1\n")
    done = trial.cluster.run(f"sbatch --array=0-1 -N2 --exclusive --ntasks-per-node=1 --requeue -o /dev/null {task}")
    assert done.status == 0, str(done)
    for kept, starts in ((quiet, 1), (trial.kept, 2)):
        assert kept.end(120) == 0 and len(kept.starts()) == starts, kept.text()
        assert ends_as_undisturbed(trial.cluster, kept.workdir, 2, STEPS), kept.text()


def slurmctld_is_away(trial: Trial) -> None:
    steps = 3 * STEPS
    trial.train(steps=steps)
    wait_for_checkpoint(trial.kept)
    wait_until_saved(trial.cluster)  # else the slurmctld that comes back does not know that the job runs
    trial.strike(lambda cluster, _: cluster.devcluster("break", "ctl", "down"), signal_rank("9"))
    time.sleep(trial.chance.uniform(0, 4))
    assert trial.cluster.devcluster("heal", "ctl").status == 0
    trial.kept.end(120)
    refused = trial.kept.text().count("and started no step")  # by a slurmctld that has just come back
    assert refused <= 2, trial.kept.text()
    trial.goes_on(ALL, *[ALL] * (1 + refused), steps=steps)


@dataclasses.dataclass
class Kind:
    name: str
    run: Callable[[Trial], None]
    decision: str
    limit: float | None = None  # seconds from the fault to the first line of the new start
    is_quick: bool = True
    needs: bool = False  # a cluster that limits memory and preempts (SETTINGS)


KINDS = [
    Kind("slurmd is killed", node_goes(kill_slurmd, steps=600), "a spare", is_quick=False),
    Kind("the machine of a node is killed", node_goes(kill_machine), "a spare", 13),
    Kind("slurmd and all tasks of a node are killed", node_goes(kill_processes), "a spare", 13),
    Kind("the cable of a node is cut", node_goes(cut), "a spare", 13),
    Kind("a rank is killed", rank_fails(signal="9"), "the same nodes", 3),
    Kind("a rank is stopped, with hang=2", rank_fails(signal="STOP", option=",hang=2"), "the same nodes", 5),
    Kind("a rank is out of memory", rank_fails("x = bytearray(1 << 30)", says="out of memory"), "the same nodes", 3, needs=True),
    Kind("the master's port is taken", port_is_taken, "the same nodes"),
    Kind("an InfiniBand port goes down", port_goes_down, "a spare"),
    Kind("a node fails its check before the first start", sick_before, "not used"),
    Kind("the spare is broken too", spare_is_broken_too, "the other spare"),
    Kind("two nodes at once", two_nodes, "two spares"),
    Kind("the first node, under salloc", first_node, "a spare", 13),
    Kind("the node of the batch script", batch_node, "Slurm requeues the job", is_quick=False),
    Kind("the program's bug, at once", bug("step == -1"), "the end"),
    Kind("the program's bug, after minutes", bug("step == 650", steps=2000, says=f"{OWN_FAULT}|no progress"), "the end", is_quick=False),
    Kind("the program's bug, on rank 1 only", bug("rank == 1 and step == 5"), "the end"),
    Kind("a bug that looks like a node's: rank 1 gets SIGBUS", bug("rank == 1 and step == 5", "os.kill(os.getpid(), 7)"), "the end"),
    Kind("a node's fault that looks like a bug", bug_of_a_node, "the same nodes, then a spare"),
    Kind("a checkpoint is never written", never_saved, "the end"),
    Kind("scancel between two starts", cancelled_between, "the end"),
    Kind("the time limit", time_limit, "the end", is_quick=False),
    Kind("preemption", preempted, "Slurm requeues the job", needs=True),
    Kind("a rank of a task of an array is killed", array, "the same nodes"),
    Kind("slurmctld is down while a rank is killed", slurmctld_is_away, "the same nodes"),
]
