"""Leaders inside a node: who fails at whatever level is named by all others, sums have the same bits in every run, and the
library says which domains it has.

    domains.py --program PROGRAM [--seed N]
"""

from __future__ import annotations

import argparse
import random
import re
import sys

import failures
import launch

DOMAINS = "0-1,2-3/4-5,6-7"
RANKS = 8
# Leads all; is led; leads its domain; leads its socket; is led by that one.
VICTIMS = [0, 1, 2, 4, 5]
LONG_MS = 600_000
HOWS = ["kill", "stop", "operation", "size", "longer"]


def run(program: str, case: str, domains: str) -> list[str]:
    """What each rank prints."""
    step = launch.Step([program, case], RANKS, environment={"AMLDIST_NODE_DOMAINS": domains})
    statuses = step.wait(120)
    if any(statuses):
        raise RuntimeError(f"{statuses}: {step.lines}")
    return [line for _, line in sorted(step.lines)]


def check_victims(program: str) -> list[str]:
    problems = []
    for how in HOWS:
        # Another call is noticed at once, not after the deadline.
        failures.DEADLINE_MS = LONG_MS if how in failures.EITHER else 1000
        for victim in VICTIMS:
            found = failures.trial(program, how, RANKS, 1, victim, {"AMLDIST_NODE_DOMAINS": DOMAINS})
            problems += [f"{how}, rank {victim}: {problem}" for problem in found]
    return problems


def check_sums(program: str) -> list[str]:
    runs = [run(program, "sums", DOMAINS) for _ in range(3)]
    if len(runs[0]) != RANKS or not all(line.startswith("sums ") for line in runs[0]):
        return [f"no sums: {runs[0]}"]
    problems = [] if all(each == runs[0] for each in runs) else [f"sums differ from run to run: {runs}"]
    if len({line.split()[1] for line in runs[0]}) != 1:
        problems.append(f"sums differ from rank to rank: {runs[0]}")
    return problems


def check_provenance(program: str) -> list[str]:
    """What the library says of domains that are given, that lack a rank, and of none."""
    problems = []
    for domains, says in [(DOMAINS, "4 cache domains, leaders of 2 groups"), ("0-3,4-7", "2 cache domains, leaders"),
                          ("0-3,4-6", "cache domains unknown"), ("off", "cache domains unknown"), ("0-7", "1 cache domain")]:
        for line in run(program, "place", domains):
            if not re.search(rf"shared memory \([^()]*, {says}\)", line):
                problems.append(f"{domains}: {line!r} lacks {says!r}")
    return problems


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    options = parser.parse_args()
    random.seed(options.seed)
    print(f"seed {options.seed}")
    problems = check_provenance(options.program) + check_sums(options.program) + check_victims(options.program)
    for problem in problems:
        print(problem)
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
