"""A rank is killed, or stopped for longer than the deadline, while ranks fetch long messages from each other. Every other rank must
name it, and no rank, not even the one that goes on afterwards, may take what it fetched for a result.

    fetching.py --program PROGRAM [--trials N] [--seed N]
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import time

import launch


def judge(victim: int, how: str, step: launch.Step) -> list[str]:
    """What is wrong with a trial."""
    problems = [f"rank {rank}: {line}" for rank, line in step.lines if line.startswith("wrong ")]
    errors = {rank: line for rank, line in step.lines if line.startswith("error ")}
    for rank in range(len(step.processes)):
        if rank == victim:
            if how == "stop" and rank not in errors:
                problems.append(f"rank {rank}, which was stopped, has no error")
        elif f"rank {victim} (" not in errors.get(rank, ""):
            problems.append(f"rank {rank} does not name rank {victim}: {errors.get(rank)!r}")
    return problems


def trial(program: str, ranks: int, victim: int, how: str) -> list[str]:
    step = launch.Step([program, "fetching"], ranks, environment={"AMLDIST_TRACE_DIR": "off", "AMLDIST_SINGLE_COPY": "always"})
    try:
        step.wait_for_line("ready", 60, ranks)
        time.sleep(random.uniform(0, 0.25))
        step.processes[victim].send_signal(signal.SIGKILL if how == "kill" else signal.SIGSTOP)
        step.wait_for_line("error ", 60, ranks - 1)
        if how == "stop":
            step.processes[victim].send_signal(signal.SIGCONT)
        step.wait(60)
        return judge(victim, how, step)
    except TimeoutError as problem:
        return [str(problem)]
    finally:
        step.kill()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--trials", type=int, default=3, help="of each kind")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    options = parser.parse_args()
    random.seed(options.seed)
    print(f"seed {options.seed}")
    failures = 0
    for how in ("kill", "stop"):
        good = 0
        for number in range(options.trials):
            ranks = 2 + number % 3
            victim = random.randrange(ranks)
            problems = trial(options.program, ranks, victim, how)
            good += not problems
            for problem in problems:
                print(f"{how}, rank {victim} of {ranks}: {problem}")
        failures += options.trials - good
        print(f"{how}: {good} of {options.trials}")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
