"""Ways in which a rank ends, and what the line about it must say. A sample of each runs in test_causes.py, twenty of each in
tests/soak/causes."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
import shlex
import shutil

ROOT = pathlib.Path(__file__).resolve().parents[3]
LIBRARY = pathlib.Path(os.environ.get("AMLDIST_BUILD", ROOT / "build-development")) / "lib/libamldist.so.0"
# Memory is limited, by Slurm's own cgroups of version 1; and a job of the partition `high` takes the nodes of one in `main`.
SETTINGS = ["TaskPlugin=task/cgroup", "SelectTypeParameters=CR_Core_Memory", "DefMemPerCPU=64", "PreemptType=preempt/partition_prio",
            "PreemptMode=REQUEUE", "PartitionName=high Nodes=ALL PriorityTier=10 PreemptMode=OFF",
            "PartitionName=low Nodes=ALL PriorityTier=1 PreemptMode=CANCEL"]
ARGUMENTS = [word for setting in SETTINGS for word in ("--conf", setting)]
# On each node, so that they can be filled.
SMALL = "mount -o remount,size=16m /dev/shm && mkdir -p /tmp/full && mount -t tmpfs -o size=4m none /tmp/full && chmod 777 /tmp/full"
# Without an installed package: what its .pth file does.
HOOK = "import amldist_errors; amldist_errors.install()\n"


@dataclasses.dataclass
class Cause:
    """`program`: Python that the guilty rank runs, or shell if it begins with "$ ". The others wait."""

    name: str
    program: str
    cause: str  # of the end record
    says: str  # what follows "rank R (local L) on HOST: ", as a pattern
    other: str = "import time; time.sleep(30)"
    flags: str = "-K"

    def command(self, folder: pathlib.Path, rank: int) -> str:
        task = folder / f"{self.name}.sh"
        lines = ["#!/bin/bash", f"if [ $RANK = {rank} ]; then", words(folder, self.name, self.program), "fi",
                 words(folder, self.name + "-other", self.other)]
        task.write_text("\n".join(lines) + "\n")
        task.chmod(0o755)
        record = folder / f"{self.name}.json"
        record.unlink(missing_ok=True)
        return (f"cd {folder}; export AMLDIST_END_RECORD={record} PYTHONPATH={folder} AMLDIST_LIBRARY={folder}/libamldist.so.0; "
                f"srun {self.flags} -N2 -n4 --mem=200 --aml-dist=pytorch {task}")

    def wrong(self, rank: int, text: str) -> str:
        """What is wrong with the lines of a step; empty: nothing."""
        # A task that is killed in the middle of a line leaves srun's to follow on it.
        lines = [line[line.index("aml-dist: "):] for line in text.splitlines() if "aml-dist: " in line]
        pattern = rf"aml-dist: first failure: rank {rank} \(local \d\) on node\d: {self.says}"
        return "" if len(lines) == 1 and re.fullmatch(pattern, lines[0]) else f"{self.name}: not {pattern}:\n{text[-2000:]}"


def words(folder: pathlib.Path, name: str, program: str) -> str:
    if program.startswith("$ "):
        return program[2:]
    path = folder / f"{name.replace(' ', '-')}.py"
    path.write_text(HOOK + program)
    return f"exec /usr/bin/python3 {shlex.quote(str(path))}"


def prepare(folder: pathlib.Path) -> None:
    """Users of the cluster may not be able to read the checkout."""
    shutil.copy(LIBRARY, folder / "libamldist.so.0")
    (folder / "amldist_errors.py").write_text((ROOT / "libdist/api/python/amldist_errors/__init__.py").read_text())


AFTER = r", \d+\.\d s after the start"
MEMORY = r"out of memory: the step may use 200 MiB on this node and used it; its largest process was \d+ \S+ \(\d+ MiB\)" + AFTER
EAT = "x = bytearray(600 << 20)\n"

CAUSES = [
    Cause("memory", EAT, "out_of_memory", MEMORY),
    Cause("memory-of-a-child", "import subprocess, sys\nif subprocess.run([sys.executable, '-c', 'x = bytearray(600 << 20)']).returncode:\n"
          "    raise RuntimeError('DataLoader worker is killed by signal: Killed.')\n", "out_of_memory", MEMORY),
    Cause("killed", "$ kill -9 $$", "rank_signal",
          r"signal 9 \(SIGKILL\)" + AFTER + "; SIGKILL came from outside and not for want of memory: scancel, a person or a program sent it"),
    Cause("exception", "def forward():\n    raise RuntimeError('shape mismatch')\nforward()\n", "rank_exit",
          r"exit status 1: RuntimeError: shape mismatch at exception\.py:3 in forward" + AFTER),
    Cause("hostile-text", "raise ValueError('\\x1b[2J\\n' + '%s;$(reboot)' * 1_000_000)\n", "rank_exit",
          r"exit status 1: ValueError: \?\[2J %s;\$\(reboot\)[ -~]*\.\.\. at hostile-text\.py:2" + AFTER),
    Cause("peers-complain-first", "import time; time.sleep(0.6)\nraise KeyError('label')\n", "rank_exit",
          r"exit status 1: KeyError: 'label' at peers-complain-first\.py:3" + AFTER + "(; all 4 tasks ended this way)?",  # if it was the first to be heard, too
          other="import time; time.sleep(0.3)\nraise RuntimeError('[gloo/transport/tcp/pair.cc:598] Connection closed by peer')\n", flags=""),
    Cause("address-space", "import resource\nresource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))\nx = bytearray(4 << 30)\n", "rank_exit",
          r"exit status 1: MemoryError: \(its address space is limited to 1\.0 GiB: ulimit -v\) at address-space\.py:4" + AFTER),
    Cause("torchelastic", "$ echo '{\"message\": {\"message\": \"RuntimeError: no convergence\", \"extraInfo\": {\"py_callstack\": \"\"}}}' "
          ">$TORCHELASTIC_ERROR_FILE; exit 1", "rank_exit", "exit status 1: RuntimeError: no convergence" + AFTER),
    Cause("assertion", "import ctypes, json\ndef backward():\n    ctypes.CDLL(None).__assert_fail(b'loss > 0', b'kernel.cu', 12, b'step')\nbackward()\n", "rank_signal",
          r"signal 6 \(SIGABRT\): abort: python3: kernel\.cu:12: step: Assertion `loss > 0' failed\. at assertion\.py:4 in backward" + AFTER),
    Cause("segmentation-fault", "import ctypes, faulthandler\nfaulthandler.enable()\ndef forward():\n    ctypes.string_at(0)\nforward()\n", "rank_signal",
          r"signal 11 \(SIGSEGV\): segmentation fault at segmentation-fault\.py:5 in forward" + AFTER),
    Cause("shared-memory", "import mmap, os\nfile = os.open('/dev/shm/full', os.O_RDWR | os.O_CREAT)\nos.ftruncate(file, 1 << 30)\n"
          "memory = mmap.mmap(file, 1 << 30)\nfor i in range(0, 1 << 30, 4096):\n    memory[i] = 1\n", "rank_signal",
          r"signal 7 \(SIGBUS\): /dev/shm is full \(16 MiB\)" + AFTER),
    Cause("disk", "with open('/tmp/full/file', 'wb') as file:\n    file.write(bytes(64 << 20))\n", "rank_exit",
          r"exit status 1: OSError: \[Errno 28\] No space left on device at disk\.py:[23]" + AFTER),
]
