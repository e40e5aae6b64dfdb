"""aml-dist keep against faults at random moments: the right decision, the right node, and the training's end bit for bit.

AMLDIST_KEEP_TRIALS=50 tries each kind so often; AMLDIST_KEEP_SEED is the first seed (tests/soak/keep does all that).
"""

import os
import random
import time

import pytest
from test_faults import wait_until
from test_keep import clean, finish_training, train  # noqa: F401 (fixture)

TRIALS = int(os.environ.get("AMLDIST_KEEP_TRIALS", "1"))
SEED = int(os.environ.get("AMLDIST_KEEP_SEED", time.strftime("%Y%m%d")))
STEPS = 90
KILL_NODE = "pkill -9 -x slurmd; pkill -9 slurmstepd; pkill -9 -f train.py"


def kill_rank(cluster, node):
    cluster.run("pkill -9 -f '^/usr/bin/python3 .*train.py'", on=node)


def kill_node(cluster, node):
    cluster.run(KILL_NODE, on=node)


def cut_cable(cluster, node):
    assert cluster.devcluster("break", node, "link").status == 0


# The fault, whether a spare takes the node's place, and the seconds to the first line of the new start.
KINDS = {"rank": (kill_rank, False, 3), "node": (kill_node, True, 13), "cable": (cut_cable, True, 13)}


def note(kind: str, trial: int, seconds: float) -> None:
    """The times of all trials, for the table."""
    if path := os.environ.get("AMLDIST_KEEP_TIMES"):
        with open(path, "a", encoding="utf-8") as times:
            times.write(f"{kind} {trial} {seconds:.2f}\n")


@pytest.mark.parametrize("trial", range(TRIALS))
@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_at_a_random_moment(cluster, workdir, kind, trial):
    fault, swaps, limit = KINDS[kind]
    seed = f"{SEED} {kind} {trial}"
    chance = random.Random(seed)
    victim = chance.choice(["node2", "node3"])  # node1 has the batch script
    kept = train(cluster, workdir, "--spares 1", steps=STEPS)
    wait_until(lambda: (workdir / "rank2").exists(), 40)
    time.sleep(chance.uniform(0, 3))
    began = time.monotonic()
    fault(cluster, victim)
    restarted = kept.says("keep: start 1 on", 40) - began
    note(kind, trial, restarted)
    assert kept.end(90) == 0, f"seed {seed}: {kept.text()}"
    order = ["node1", "node2", "node3"]
    expected = [("node4" if swaps and node == victim else node) for node in order]
    assert kept.hosts(1) == expected and len(kept.starts()) == 2, f"seed {seed}: {kept.text()}"
    finish_training(kept, workdir, 3, STEPS)
    assert restarted < limit + 5, f"seed {seed}: {restarted} s: {kept.text()}"  # the machine of the tests is slow


@pytest.mark.parametrize("trial", range(TRIALS))
def test_a_node_and_the_spare_at_once(cluster, workdir, trial):
    """The broken spare is found before it is used; the other one has the place."""
    chance = random.Random(f"{SEED} two {trial}")
    kept = train(cluster, workdir, "--spares 2", steps=STEPS)
    wait_until(lambda: (workdir / "rank1").exists(), 40)
    time.sleep(chance.uniform(0, 3))
    cut_cable(cluster, "node2")
    cut_cable(cluster, "node3")
    kept.says("keep: start 1 on node1, node4", 60)
    assert kept.end(90) == 0 and "node3: its slurmd does not answer" in kept.text(), kept.text()
    finish_training(kept, workdir, 2, STEPS)


@pytest.mark.parametrize("trial", range(TRIALS))
def test_starts_and_stops_leave_nothing(cluster, workdir, trial):
    what = "ls -d /tmp/aml-dist-keep* 2>/dev/null; pgrep -af 'aml-dist keep|train.py' | grep -v pgrep"
    before = cluster.run(what, on="node1").out  # of a keep that another test has killed
    kept = train(cluster, workdir, "--spares 1", steps=3)
    assert kept.end() == 0, kept.text()
    left = cluster.run(what, on="node1").out
    assert left == before and not list(workdir.glob(".aml-dist-keep*")), left
