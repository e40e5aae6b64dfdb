"""`aml-dist ray` and the processes below it, with a program in Ray's place that only says that it has started."""

from __future__ import annotations

import random
import subprocess
import sys

RAY = """#!/bin/sh
case $1 in
--version) echo "ray, version 2.60.0" ;;
start) echo "Ray runtime started."; exec sleep 60 ;;
esac
"""
# Five orphans end; then it counts the ended processes below aml-dist ray that are still there.
DRIVER = """
import os, pathlib, subprocess, time
def ended_below(parent):
    found = 0
    for file in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            state, ppid = file.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        found += state == "Z" and int(ppid) == parent
    return found
for _ in range(5):
    subprocess.run(["sh", "-c", "sleep 0.1 & exit 0"], check=True)
time.sleep(0.5)
end = time.monotonic() + 5
while ended_below(os.getppid()) and time.monotonic() < end:
    time.sleep(0.05)
print("left:", ended_below(os.getppid()))
"""


def test_orphans_that_end_do_not_stay_until_the_step_ends(tool, tmp_path):
    """Those of a worker process of Ray's that was killed, say: each took a place of the step's until its end."""
    (tmp_path / "ray").write_text(RAY)
    (tmp_path / "ray").chmod(0o755)
    port = random.randrange(20000, 30000)  # the kernel gives none of these to whoever asks for any port
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "AMLDIST_STAMP": "12.0 kind=ray", "NODE_RANK": "0", "WORLD_SIZE": "1",
           "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "SLURM_STEP_NODELIST": "n1", "SLURMD_NODENAME": "n1"}
    done = subprocess.run([str(tool.path), "ray", "--", sys.executable, "-c", DRIVER], capture_output=True, text=True, timeout=60,
                          env=env, stdin=subprocess.DEVNULL, check=False)
    assert done.returncode == 0 and "left: 0" in done.stdout.splitlines(), done
