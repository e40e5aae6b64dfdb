"""Ranks are killed or stopped, and the others shrink and go on: all survivors must have the same communicator, of all of
them in the old order, and their all-reduce the right sum. A stopped rank must learn that it has no part any more.

    survivors.py --program PROGRAM [--trials N] [--only HOW] [--seed N] [--table]
"""

from __future__ import annotations

import argparse
import random
import re
import signal
import sys
import time

import launch

LAYOUTS = [(2, 1), (3, 1), (4, 2), (5, 3), (6, 2), (4, 4), (7, 3)]
WHAT = {
    "kill": "one rank, during all-reduce",
    "root": "rank 0, during all-reduce",
    "two": "two ranks at once",
    "node": "a whole node",
    "all": "all ranks but one",
    "second": "one during all-reduce, another during shrink",
    "coordinator": "one during all-reduce, the lowest rank during shrink",
    "shrink": "one while all shrink a healthy communicator",
    "split": "one rank; a split communicator shrinks",
    "halt": "one rank is stopped and goes on later",
    "halted": "one during all-reduce, another is stopped during shrink",
    "agree": "one rank; all agree before and after",
    "mixed": "one rank; some agree where the others shrink",
}
SURVIVORS = re.compile(r"survivors (\d+) ranks \d+ own (\d+) sum (\d+)")
EXCLUDED = 8  # exit status of the program


class Trial:
    """One world, and what becomes of it."""

    def __init__(self, program: str, how: str, ranks: int, nodes: int):
        self.how, self.ranks = how, ranks
        self.nodes = [launch.node_of(rank, ranks, nodes) for rank in range(ranks)]
        self.first, self.second = self.choose()
        by_itself = how in ("shrink", "split", "agree")
        victims = ",".join(map(str, self.first + self.second)) if by_itself else "-"
        deadline = 3000 if how in ("halt", "halted") else 20000
        self.step = launch.Step([program, "survivors", how, victims, str(deadline)], ranks, nodes,
                                {"AMLDIST_TRACE_DIR": "off"})
        self.problems: list[str] = []
        self.milliseconds = 0.0  # of the slowest rank: it may wait for others that learn of the loss later
        self.after_last = 0.0  # from the call of the last rank

    def choose(self) -> tuple[list[int], list[int]]:
        everybody = list(range(self.ranks))
        one = random.choice(everybody)
        others = [rank for rank in everybody if rank != one]
        if self.how == "root":
            return [0], []
        if self.how == "shrink":
            return [], [one]
        if self.how in ("two", "all"):
            return random.sample(everybody, min(2, self.ranks - 1) if self.how == "two" else self.ranks - 1), []
        if self.how == "node" and max(self.nodes) > 0:
            return [rank for rank in everybody if self.nodes[rank] == self.nodes[one]], []
        if self.how in ("second", "halted") and self.ranks > 2:
            return [one], [random.choice(others)]
        if self.how == "coordinator" and self.ranks > 2:
            return [one], others[:1]
        return [one], []

    def hit(self, victims: list[int], how: signal.Signals) -> None:
        for rank in victims:
            if self.step.processes[rank].poll() is None:
                self.step.processes[rank].send_signal(how)

    def run(self) -> None:
        try:
            self.step.wait_for_line(("ready", "error "), 120, self.ranks)
            time.sleep(random.uniform(0, 0.02))
            by_itself = self.how in ("shrink", "split", "agree")
            if not by_itself:
                self.hit(self.first, signal.SIGSTOP if self.how == "halt" else signal.SIGKILL)
            if self.second and not by_itself:
                self.step.wait_for_line("error ", 60)
                time.sleep(random.choice([0, random.uniform(0, 0.01), random.uniform(0, 0.1)]))
                self.hit(self.second, signal.SIGSTOP if self.how == "halted" else signal.SIGKILL)
            stopped = {"halt": self.first, "halted": self.second}.get(self.how, [])
            end = time.monotonic() + 120
            for rank, process in enumerate(self.step.processes):
                if rank not in stopped:
                    process.wait(max(0.0, end - time.monotonic()))
            self.hit(stopped, signal.SIGCONT)
            self.judge(self.step.wait(120), stopped)
        except Exception as problem:  # noqa: BLE001  a trial that cannot be evaluated has failed
            self.problems.append(repr(problem))
        finally:
            self.step.kill()
        if self.problems:
            self.problems += [f"  {rank}: {line}" for rank, line in self.step.lines]

    def judge(self, statuses: list[int], stopped: list[int]) -> None:
        last = {rank: SURVIVORS.match(line) for rank, line in self.step.lines if line.startswith("survivors ")}
        last = {rank: found for rank, found in last.items() if statuses[rank] == 0}
        # Who was hit late may have got through.
        hit = self.first + [rank for rank in self.second if statuses[rank] != 0]
        alive = [rank for rank in range(self.ranks) if rank not in hit]
        if sorted(last) != alive:
            self.problems.append(f"survivors are {sorted(last)} instead of {alive}: exit statuses {statuses}")
        sums = {int(found[3]) for found in last.values()}
        if len(sums) != 1:
            self.problems.append(f"the survivors do not have one sum: {sums}")
            return
        took_part = [rank for rank in range(self.ranks) if sums.copy().pop() >> rank & 1]
        late = [rank for rank in self.second if rank not in alive]
        if set(took_part) - set(late) != set(alive):
            self.problems.append(f"{took_part} are in the communicator instead of {alive}")
        if self.how == "split":
            took_part.reverse()  # as the communicator that shrinks
        for rank, found in last.items():
            if int(found[1]) != len(took_part) or int(found[2]) != took_part.index(rank):
                self.problems.append(f"rank {rank} is {found[2]} of {found[1]}, but the ranks are {took_part}")
        for rank in stopped:
            if statuses[rank] not in (EXCLUDED, 0) or (statuses[rank] == 0) != (rank in alive):
                self.problems.append(f"rank {rank} was stopped, and ended with {statuses[rank]}")
        if self.how == "agree":
            agreed = {line for rank, line in self.step.lines if line.startswith("agreed ")}
            expected = sum(1 << rank for rank in alive)
            if len(agreed) != 1 or not agreed.copy().pop().startswith(f"agreed {expected}: rank {self.first[0]} ("):
                self.problems.append(f"not one result of agree: {agreed}")
        times = [float(line.split()[2]) for rank, line in self.step.lines
                 if rank in alive and line.startswith("shrunk in ")]
        self.milliseconds, self.after_last = max(times, default=0.0), min(times, default=0.0)


def main() -> int:
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    parser.add_argument("--program", required=True, help="tests/collective/program of a built tree")
    parser.add_argument("--trials", type=int, default=2, help="of each kind")
    parser.add_argument("--only", choices=sorted(WHAT), action="append")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--table", action="store_true", help="times from the diagnosis to the new communicator, too")
    options = parser.parse_args()
    random.seed(options.seed)
    print(f"seed {options.seed}", flush=True)
    if options.table:
        print("| what ends | trials | good | median ms | largest ms | largest ms after the last rank came |\n|---|---|---|---|---|---|", flush=True)
    failures = 0
    for how in options.only or WHAT:
        good, times, last = 0, [], []
        for number in range(options.trials):
            ranks, nodes = LAYOUTS[(number + list(WHAT).index(how)) % len(LAYOUTS)]
            trial = Trial(options.program, how, ranks, nodes)
            trial.run()
            good += not trial.problems
            times.append(trial.milliseconds)
            last.append(trial.after_last)
            if trial.problems:
                print(f"{how}, {ranks} ranks on {nodes} nodes, {trial.first}, then {trial.second}:")
                print("\n".join(trial.problems), flush=True)
        failures += options.trials - good
        times.sort()
        cells = [WHAT[how], str(options.trials), str(good), f"{times[len(times) // 2]:.0f}", f"{times[-1]:.0f}",
                 f"{max(last):.0f}"]
        print(f"| {' | '.join(cells)} |" if options.table else f"{how}: {good} of {options.trials}", flush=True)
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
