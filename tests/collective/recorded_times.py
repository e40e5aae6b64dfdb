"""The recorded times of calls that follow a burst of others, of which not each reads the clock.

    recorded_times.py --program PROGRAM --tool AML-DIST

Exit status: 0 if they are right, else 1.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import launch

BURST = 1300  # of recorded.c
LATE = 500_000_000  # nanoseconds that it waits; on a busy machine the other rank comes later, too
TICK = 100_000_000  # much longer than the kernel's


def calls_of(tool: str, folder: str) -> list[list[dict[str, object]]]:
    """The last ones of both ranks."""
    (recorders,) = {file.parent for file in Path(folder).rglob("*.trace")}
    told = subprocess.run([tool, "trace", str(recorders), "--json", "--last", "65536"], check=True, capture_output=True, text=True)
    return [recorder["calls"] for recorder in json.loads(told.stdout)["recorders"]]


def problems_of(calls: list[list[dict[str, int]]]) -> list[str]:
    found = []
    for rank, own in enumerate(calls):
        if len(own) != 3 * (BURST + 1) + 1:
            found.append(f"rank {rank}: {len(own)} calls")
        for before, call in zip(own, own[1:]):
            is_in_order = before["started_ns"] - TICK <= call["started_ns"] <= call["ended_ns"]
            if not is_in_order or call["state"] != "completed":
                found.append(f"rank {rank}: {before}, then {call}")
        waits = [call for call in own if call["started_ns"] != call["ended_ns"]]
        overlapping = [pair for pair in zip(waits, waits[1:]) if pair[1]["started_ns"] < pair[0]["ended_ns"]]
        if not waits or overlapping:
            found.append(f"rank {rank}: calls that waited, one after the other: {len(waits)}, overlapping {overlapping[:1]}")
    for kind, late_rank in enumerate([1, 0, 0]):
        last = (kind + 1) * (BURST + 1) - 1
        late, waiting = calls[late_rank], calls[1 - late_rank][last]
        if waiting["ended_ns"] - waiting["started_ns"] < LATE / 2:
            found.append(f"rank {1 - late_rank} has waited: {waiting}")
        if late[last]["started_ns"] - late[last - 1]["ended_ns"] < LATE / 2:
            found.append(f"rank {late_rank} was late: {late[last - 1 : last + 1]}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--tool", required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        step = launch.Step([options.program, "recorded"], 2, environment={"AMLDIST_TRACE_DIR": folder})
        assert step.wait(100) == [-signal.SIGKILL] * 2, step.lines
        calls = calls_of(options.tool, folder)
    problems = problems_of(calls)
    print("\n".join([*problems, f"{len(problems)} problems"]))
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
