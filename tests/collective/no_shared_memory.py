"""Where ranks of one node cannot share memory, they use TCP, and say between whom and why.

    no_shared_memory.py --program PROGRAM

Rank 1 has too little address space for the memory of the others, may make no file of that length, or sees no /proc
(where mounting is allowed). Exit status: 0 if all is said as it should be, else 1.
"""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys

import launch

LIMIT = 'if [ "$RANK" = 1 ]; then ulimit -v 4000000; fi; exec "$@"'
TOO_LITTLE = (r"shared memory of rank 1 is not available \(not enough address space for \d+ bytes of shared memory: "
              r"Cannot allocate memory \(see ulimit -v\)\), tcp is used")
SHORT_FILES = 'if [ "$RANK" = 1 ]; then ulimit -f 1000; fi; exec "$@"'
TOO_LONG = (r"shared memory of rank 1 is not available \(shared memory of \d+ bytes is longer than a file may be "
            r"\(see ulimit -f\)\), tcp is used")
HIDE = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh"]
HIDDEN = f'if [ "$RANK" = 1 ]; then exec {shlex.join(HIDE)} "$@"; fi; exec "$@"'
NO_PROC = r"shared memory between rank 0 and rank 1 is not available \([^()]*/proc/[^()]*\), tcp is used"


def problems_of(program: str, ranks: int, nodes: int, way: str, limit: str, sentence: str) -> list[str]:
    step = launch.Step(["sh", "-c", limit, "sh", program, "place", "messages", "exchanges"], ranks, nodes, {"AMLDIST_TRACE_DIR": "off"})
    statuses = step.wait(200)
    found = []
    if any(statuses):
        found.append(f"statuses {statuses}")
    told = [line for _, line in step.lines if line.startswith("aml-dist: ")]
    if len(told) != 1 or not re.fullmatch(f"aml-dist: {sentence}", told[0]):
        found.append(f"told: {told}")
    for rank in range(ranks):
        places = [line for which, line in step.lines if which == rank and line.startswith("rank ")]
        if not places or not re.search(rf"; {way} \({sentence}\); no flight recorder", places[0]):
            found.append(f"rank {rank}: {places}")
    return [f"{ranks} ranks on {nodes}: {each}" for each in found]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    program = parser.parse_args().program
    cases = [(LIMIT, TOO_LITTLE), (SHORT_FILES, TOO_LONG)]
    if subprocess.run([*HIDE, "true"], stderr=subprocess.DEVNULL, check=False).returncode == 0:
        cases.append((HIDDEN, NO_PROC))
    problems = []
    for case in cases:
        problems += problems_of(program, 3, 1, "tcp between ranks of one node", *case)
        problems += problems_of(program, 4, 2, "tcp between ranks and nodes", *case)
    print("\n".join([*problems, f"{len(problems)} problems"]))
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
