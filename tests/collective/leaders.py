"""Ranks that others depend on fall silent, or come late: rank 0, the leader of a node, a whole node. Every survivor must
name exactly those that are missing, and a start must not fail because rank 0 sleeps for a while.

    leaders.py --program PROGRAM [--trials N] [--only WHAT]
"""

from __future__ import annotations

import argparse
import random
import re
import signal
import sys
import time

import launch

DEADLINE_MS = 1500
RANKS, NODES = 6, 3  # two on each node
FAULTS = {
    "rank 0": [0],
    "a leader": [2],
    "a rank that leads nobody": [5],
    "rank 0's node": [0, 1],
    "the three lowest": [0, 1, 2],
    "two nodes": [0, 1, 4, 5],
}


def survivors_names(step: launch.Step, lost: list[int], statuses: list[int]) -> list[str]:
    """What is wrong with what the survivors said."""
    errors = {rank: line for rank, line in step.lines if line.startswith("error ")}
    problems = []
    for rank in set(range(RANKS)) - set(lost):
        named = re.findall(r"rank (\d+) \(", errors.get(rank, "").split(" missing in ")[0])
        if statuses[rank] != 7 or sorted(map(int, named)) != lost:
            problems.append(f"rank {rank}: status {statuses[rank]}, {errors.get(rank)!r}")
    said = [line for _, line in step.lines if line.startswith("aml-dist: ")]
    return problems if len(said) == 1 else [*problems, f"{len(said)} lines instead of one: {said}"]


def silent(program: str, lost: list[int], how: signal.Signals) -> list[str]:
    """Stops or kills ranks at once."""
    step = launch.Step([program, "victim", "nothing", "-1", str(DEADLINE_MS)], RANKS, NODES, {"AMLDIST_TRACE_DIR": "off"})
    try:
        step.wait_for_line(("ready", "error "), 60, RANKS)
        time.sleep(random.uniform(0, 0.02))
        for rank in lost:
            step.processes[rank].send_signal(how)
        for rank in set(range(RANKS)) - set(lost):
            step.processes[rank].wait(60)
        for rank in lost:
            step.processes[rank].kill()
        return survivors_names(step, lost, step.wait(30))
    except Exception as problem:  # noqa: BLE001  a trial that cannot be evaluated has failed
        return [repr(problem)]
    finally:
        step.kill()


def late_root(program: str) -> list[str]:
    """Rank 0 sleeps in the middle of the start: longer than a joining rank waits for an answer."""
    step = launch.Step([program, "place"], RANKS, NODES)
    try:
        time.sleep(random.uniform(0, 0.3))
        step.processes[0].send_signal(signal.SIGSTOP)
        time.sleep(1.6)
        step.processes[0].send_signal(signal.SIGCONT)
        statuses = step.wait(60)
        return [] if statuses == [0] * RANKS else [f"statuses {statuses}: {step.lines}"]
    finally:
        step.kill()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--trials", type=int, default=1, help="of each kind")
    parser.add_argument("--only", default="", help="kinds with these words")
    options = parser.parse_args()
    kinds = {f"{what} stops": (lambda program, lost=lost: silent(program, lost, signal.SIGSTOP))
             for what, lost in FAULTS.items()}
    kinds["rank 0 sleeps in the start"] = late_root
    failures = 0
    for name, trial in kinds.items():
        if options.only not in name:
            continue
        good = 0
        for _ in range(options.trials):
            problems = trial(options.program)
            good += not problems
            for problem in problems:
                print(f"{name}: {problem}")
        failures += options.trials - good
        print(f"{name}: {good} of {options.trials}", flush=True)
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
