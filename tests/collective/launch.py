"""Starts N processes as the ranks of one step, without Slurm, and waits for them.

    launch.py --ranks 4 --nodes 2 [--env NAME=VALUE]... -- PROGRAM ARGUMENT...

Each gets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. With several nodes, ranks are placed in blocks, or cyclically
with --cyclic, and every node has its own name (AMLDIST_NODE_NAME), so that its ranks do not share memory with those of
other nodes. Output and errors of a rank are prefixed with its number. Exit status: 0 if every rank's was 0, else the
first other one. No process outlives this one; those left after --limit seconds are killed and reported.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time


# The one that runs this script may be in a folder of its user's.
PYTHON_OF_ANYBODY = "/usr/bin/python3" if os.access("/usr/bin/python3", os.X_OK) else sys.executable
DISTANCE = 48  # of the library's port from MASTER_PORT


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


def free_port() -> int:
    """A MASTER_PORT below the kernel's own ports, with the library's port beside it."""
    while True:
        port = random.SystemRandom().randrange(15000, 32000)
        if is_free(port) and is_free(port + DISTANCE):
            return port


def meeting_port(master_port: int) -> int:
    """Where rank 0 listens."""
    return master_port + DISTANCE


def node_of(rank: int, ranks: int, nodes: int) -> int:
    """Blocks of ranks; if the division is uneven, the first nodes have one more."""
    share, more = divmod(ranks, nodes)
    for node in range(nodes):
        own = share + (1 if node < more else 0)
        if rank < own:
            return node
        rank -= own
    raise ValueError(rank)


class Step:
    """The ranks of one step, with what they have printed so far."""

    def __init__(self, command: list[str], ranks: int, nodes: int = 1, environment: dict[str, str] | None = None,
                 cyclic: bool = False):
        self.lines: list[tuple[int, str]] = []
        self.processes: list[subprocess.Popen] = []
        self._readers: list[threading.Thread] = []
        base = {name: value for name, value in os.environ.items()
                if not name.startswith(("SLURM_", "PMI", "OMPI_", "AMLDIST_NODE", "LOCAL_", "RANK", "WORLD_SIZE"))}
        base |= {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        base |= environment or {}
        for rank in range(ranks):
            own = base | {"RANK": str(rank)}
            if nodes > 1:
                own["AMLDIST_NODE_NAME"] = f"node{rank % nodes if cyclic else node_of(rank, ranks, nodes)}"
            process = subprocess.Popen(command, env=own, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                       errors="replace")
            self.processes.append(process)
            reader = threading.Thread(target=self._read, args=(rank, process.stdout), daemon=True)
            reader.start()
            self._readers.append(reader)

    def _read(self, rank: int, stream) -> None:
        for line in stream:
            self.lines.append((rank, line.rstrip("\n")))

    def wait_for_line(self, begins: str | tuple[str, ...], limit: float, ranks: int = 1) -> None:
        """Waits until `ranks` different ranks have printed a line with this prefix (or one of these prefixes)."""
        end = time.monotonic() + limit
        while len({rank for rank, line in list(self.lines) if line.startswith(begins)}) < ranks:
            if time.monotonic() > end:
                raise TimeoutError(f"no {begins!r} from {ranks} ranks within {limit} s: {self.lines}")
            time.sleep(0.002)

    def wait(self, limit: float) -> list[int]:
        """Exit status of every rank (negative: a signal); kills what is still there after `limit` seconds."""
        end = time.monotonic() + limit
        for process in self.processes:
            try:
                process.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                self.lines.append((self.processes.index(process), "launch.py: still there at the limit, killed"))
                self.kill()
        for reader in self._readers:
            reader.join(5)
        return [process.returncode for process in self.processes]

    def kill(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--cyclic", action="store_true")
    parser.add_argument("--limit", type=float, default=280)
    parser.add_argument("--env", action="append", default=[])
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    step = Step(command, options.ranks, options.nodes, dict(each.split("=", 1) for each in options.env),
                options.cyclic)
    statuses = step.wait(options.limit)
    for rank, line in step.lines:
        print(f"{rank}: {line}")
    bad = [status for status in statuses if status != 0]
    if bad:
        print(f"exit statuses: {statuses}")
    return next((status for status in bad if status is not None and status > 0), int(bool(bad)))


if __name__ == "__main__":
    sys.exit(main())
