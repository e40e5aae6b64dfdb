"""What the tests of the Python package share: real processes on this machine, each one rank of a world."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "libdist/api/python"
LIBRARY = Path(os.environ.get("AMLDIST_LIBRARY", ROOT / "build-development" / "lib" / "libamldist.so"))

#: Before every program: the package, a world by the environment, and its sizes as short names.
PREAMBLE = """
import os, sys, time, signal, array, threading
import amldist
comm = amldist.init(timeout={timeout})
rank, size = comm.rank, comm.size
"""


def free_port() -> int:
    """Below the kernel's own ports, which any connection of this machine may take meanwhile."""
    while True:
        port = random.SystemRandom().randrange(15000, 32000)
        with socket.socket() as listener:
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:  # taken: the next
                continue
            return port


def environment(**more: object) -> dict[str, str]:
    """This process's, without what would make a child part of another world."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "PMI", "OMPI_", "AMLDIST_"))}
    kept.update(PYTHONPATH=str(PACKAGE), AMLDIST_LIBRARY=str(LIBRARY), OMP_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1")
    kept.update({name: str(value) for name, value in more.items()})
    return kept


def interruptible() -> None:
    """What a shell starts in the background ignores Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class World:
    """Processes that run one program, with rank and size as launchers give them."""

    def __init__(self, program: str, size: int, timeout: float, preamble: str = PREAMBLE, python: str = sys.executable):
        source = preamble.format(timeout=timeout) + textwrap.dedent(program)
        shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(), "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size}
        self.processes = [
            subprocess.Popen(
                [python, "-c", source], env=environment(RANK=rank, LOCAL_RANK=rank, **shared), text=True,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, preexec_fn=interruptible,
            )
            for rank in range(size)
        ]
        self.outputs: list[str] = []
        self.errors: list[str] = []

    def finish(self, limit: float = 60) -> "World":
        """Waits for all of them; what is left after the limit is killed and fails the test."""
        deadline, late = time.monotonic() + limit, []
        for rank, process in enumerate(self.processes):
            try:
                output, error = process.communicate(timeout=max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                late.append(rank)
                os.killpg(process.pid, signal.SIGKILL)
                output, error = process.communicate()
            self.outputs.append(output)
            self.errors.append(error)
        assert not late, f"ranks {late} hang: {self.outputs} {self.errors}"
        return self

    def statuses(self) -> list[int]:
        return [process.returncode for process in self.processes]


@pytest.fixture
def run():
    """run(PROGRAM, size=2): runs the program in every rank, which all have to end well; their outputs."""
    worlds: list[World] = []

    def go(program: str, size: int = 2, timeout: float = 20, check: bool = True, **more) -> World:
        world = World(program, size, timeout, **more)
        worlds.append(world)
        if check:
            world.finish()
            assert world.statuses() == [0] * size, f"{world.outputs} {world.errors}"
        return world

    yield go
    for world in worlds:
        for process in world.processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
