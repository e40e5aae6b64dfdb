"""One rank of a step is killed, stopped, late, gone, or makes another call. Every other rank must get an error that names
it before the deadline, exactly one line must appear on standard error, and nothing may be left behind.

    failures.py --program PROGRAM [--trials N] [--only HOW]
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import sys
import time

import launch
import leftovers

DEADLINE_MS = 1000
LAYOUTS = [(2, 1), (3, 1), (4, 2), (3, 3), (5, 2)]
HOWS = ["kill", "stop", "late", "exit", "operation", "size", "type", "redop", "counts", "lists", "abort", "midway", "root",
        "across", "alone", "longer", "message", "unreceived"]
CALL = re.compile(r"(allreduce|broadcast|alltoallv|allgatherv|gather|scatter) #6\b")
# Two ranks that make different calls: neither can be called the wrong one.
EITHER = {"operation", "size", "type", "redop", "counts", "lists", "root", "across", "alone", "longer"}


def shared_memory_files() -> set[str]:
    return set(os.listdir("/dev/shm"))


def judge(how: str, victim: int, ranks: int, step: launch.Step, statuses: list[int], seconds: float) -> list[str]:
    """What is wrong with a trial; nothing if all is well."""
    problems = []
    said = [line for _, line in step.lines if line.startswith("aml-dist: ")]
    survivors = [rank for rank in range(ranks) if rank != victim]
    for rank in survivors:
        if statuses[rank] != 7:
            problems.append(f"rank {rank} ended with {statuses[rank]} instead of an error value")
    errors = {rank: line for rank, line in step.lines if line.startswith("error ")}
    names = rf"rank {victim} \("
    if how in EITHER and ranks == 2:
        names = r"rank [01] \("
    # The ranks that a wrong call is compared with follow this word.
    accused = {rank: line.split(" where rank ")[0] for rank, line in errors.items()}
    for rank in survivors:
        if how in EITHER and ranks > 2 and not re.search(names, accused.get(rank, "")):
            problems.append(f"rank {rank} does not accuse rank {victim}: {errors.get(rank)!r}")
        if not re.search(names, errors.get(rank, "")):
            problems.append(f"rank {rank} does not name rank {victim}: {errors.get(rank)!r}")
        if how != "abort" and not CALL.search(errors.get(rank, "")):
            if how in ("late", *EITHER):  # killed and stopped ranks are hit at any point
                problems.append(f"rank {rank} does not name the call: {errors.get(rank)!r}")
    if len(said) != (0 if how == "abort" else 1):
        problems.append(f"{len(said)} lines instead of one: {said}")
    if how != "abort" and said and not re.search(names, said[0]):
        problems.append(f"the line does not name rank {victim}: {said[0]!r}")
    limit = DEADLINE_MS / 1000 + 10  # generous, for a busy machine
    if seconds > limit:
        problems.append(f"it took {seconds:.1f} s")
    if problems:
        problems += [f"  {rank}: {line}" for rank, line in step.lines]
    return problems


def trial(program: str, how: str, ranks: int, nodes: int, victim: int) -> list[str]:
    # The flight recorder keeps its file on purpose; here everything that is left counts.
    step = launch.Step([program, "victim", how, str(victim), str(DEADLINE_MS)], ranks, nodes, {"AMLDIST_TRACE_DIR": "off"})
    try:
        step.wait_for_line(("ready", "error "), 60, ranks)
        if how in ("kill", "stop"):
            time.sleep(random.uniform(0, 0.02))
            step.processes[victim].send_signal(signal.SIGKILL if how == "kill" else signal.SIGSTOP)
        began = time.monotonic()
        for rank, process in enumerate(step.processes):
            if rank != victim:
                process.wait(60)
        seconds = time.monotonic() - began
        if how == "stop":
            step.processes[victim].kill()
        return judge(how, victim, ranks, step, step.wait(30), seconds)
    except Exception as problem:  # noqa: BLE001  a trial that cannot be evaluated has failed
        return [repr(problem)]
    finally:
        step.kill()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--trials", type=int, default=2, help="of each kind")
    parser.add_argument("--only", choices=HOWS)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    options = parser.parse_args()
    random.seed(options.seed)
    print(f"seed {options.seed}")
    leftovers.own_mounts()  # where that is allowed, nobody else writes there meanwhile
    before = shared_memory_files()
    failures = 0
    for how in [options.only] if options.only else HOWS:
        good = 0
        for number in range(options.trials):
            ranks, nodes = LAYOUTS[(number + HOWS.index(how)) % len(LAYOUTS)]
            victim = random.randrange(ranks)
            problems = trial(options.program, how, ranks, nodes, victim)
            good += not problems
            for problem in problems:
                print(f"{how}, rank {victim} of {ranks} on {nodes} nodes: {problem}")
        failures += options.trials - good
        print(f"{how}: {good} of {options.trials} named")
    left = shared_memory_files() - before
    if left:
        failures += 1
        print(f"left in /dev/shm: {left}")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
