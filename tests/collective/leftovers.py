"""Worlds whose ranks are killed at any moment leave nothing behind: no shared memory, file or process.

    leftovers.py --program PROGRAM [--runs N] [--seed N]

Every second run kills one rank of a working world, and the other ranks must end by themselves. The other runs kill all
ranks at a random moment, bootstrap included. Flight recorder files are meant to stay; here they have their own folder,
which is checked last. Secrets of starts that were killed stay until the user's next start removes them, which is the last
one here. As root, the test has its own empty /dev/shm and /tmp.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import pathlib
import random
import sys
import tempfile
import time

import launch

CLONE_NEWNS = 0x00020000
MS_REC_PRIVATE = 0x4000 | (1 << 18)
LAYOUTS = [(2, 1), (3, 1), (4, 2)]
MARK = "AMLDIST_TEST_LEFTOVERS"


def own_mounts() -> bool:
    """Gives this process and its children their own /dev/shm and /tmp, if it is allowed to."""
    libc = ctypes.CDLL(None, use_errno=True)
    if os.geteuid() != 0 or libc.unshare(CLONE_NEWNS) != 0 or libc.mount(b"none", b"/", None, MS_REC_PRIVATE, None) != 0:
        return False
    return all(libc.mount(b"tmpfs", place, b"tmpfs", 0, b"size=4g") == 0 for place in (b"/dev/shm", b"/tmp"))


def files(folder: str) -> set[str]:
    return {str(path) for path in pathlib.Path(folder).rglob("*")}


def living(mark: str) -> list[int]:
    """Processes that carry this test's mark."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"{MARK}={mark}".encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
        except OSError:
            continue  # it has just ended, or belongs to another user
    return found


def run(program: str, number: int, mark: str, traces: str) -> str:
    """One world; "" or what is wrong with it."""
    ranks, nodes = LAYOUTS[number % len(LAYOUTS)]
    recorder = traces if number % 4 < 2 else "off"
    step = launch.Step([program, "victim", "nothing", "-1", "2000"], ranks, nodes,
                       {MARK: mark, "AMLDIST_TRACE_DIR": recorder})
    try:
        if number % 2 == 0:
            time.sleep(random.uniform(0, 0.08))
            step.kill()
            step.wait(10)
            return ""
        victim = random.randrange(ranks)
        step.wait_for_line("ready", 30, ranks)
        step.processes[victim].kill()
        statuses = step.wait(15)
        if any(status != 7 for rank, status in enumerate(statuses) if rank != victim):
            return f"rank {victim} of {ranks} was killed, and the others ended with {statuses}: {step.lines}"
        return ""
    except TimeoutError as problem:
        return str(problem)
    finally:
        step.kill()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    options = parser.parse_args()
    random.seed(options.seed)
    is_private = own_mounts()
    print(f"seed {options.seed}, {'private' if is_private else 'shared'} /dev/shm and /tmp")
    mark = f"{os.getpid()}-{options.seed}"
    problems = []
    with tempfile.TemporaryDirectory() as traces:
        before = files("/dev/shm") | files("/tmp")
        for number in range(options.runs):
            if problem := run(options.program, number, mark, traces):
                problems.append(problem)
        last = launch.Step([options.program, "place"], 2, environment={"AMLDIST_TRACE_DIR": "off"})
        if any(last.wait(60)):
            problems.append(f"the start after them: {last.lines}")
        folder = f"/tmp/aml-dist-{os.geteuid()}"  # of the user's secrets; empty but for the lock
        left = (files("/dev/shm") | files("/tmp")) - {folder, f"{folder}/aml-dist-secrets.lock"}
        # Without its own folders, other programs may use them too.
        extra = {path for path in left - before if not path.startswith(traces) and (is_private or "aml" in path)}
        if extra:
            problems.append(f"files left: {sorted(extra)[:10]}")
        odd = {path for path in files(traces) if os.path.isfile(path) and not path.endswith(".trace")}
        if odd:
            problems.append(f"beside the recorders: {sorted(odd)[:10]}")
    if processes := [pid for pid in living(mark) if pid != os.getpid()]:
        problems.append(f"processes left: {processes}")
    for problem in problems:
        print(problem)
    print(f"{options.runs} runs with kills: {'nothing left' if not problems else f'{len(problems)} problems'}")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
