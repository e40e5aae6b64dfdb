"""Ranks of one world of PyTorch on this machine: one process imports PyTorch, and each rank is a fork of it.

    python torch_ranks.py SIZE PROGRAM        PROGRAM sees torch, dist, rank, size and the helpers below

Each rank's exit status and what it printed last come back as JSON, in the order of ranks.
"""

from __future__ import annotations

import inspect
import json
import os
import random
import shutil
import signal
import socket
import sys
import tempfile
import time
import traceback
from datetime import timedelta

import torch
import torch.distributed as dist

if not os.environ.get("AMLDIST_TEST_ENTRY_POINT"):
    import amldist.torch  # noqa: F401

torch.set_num_threads(1)
#: Older releases of PyTorch offer it to Gloo alone.
OFFERS_MONITORED_BARRIER = "get_backend(group) != Backend.GLOO" not in inspect.getsource(dist.monitored_barrier)


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


def start(backend: str = "amldist", timeout: float = 30, **named) -> None:
    dist.init_process_group(backend, timeout=timedelta(seconds=timeout), **named)


def raises(call, kind, *words: str) -> BaseException:
    """The exception of a call that has to raise one with these words."""
    try:
        call()
    except kind as error:
        for word in words:
            assert word in str(error), (word, str(error))
        return error
    raise AssertionError(f"nothing was raised: {kind} with {words}")


def in_rank(rank: int, size: int, program: str, output: str) -> None:
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(size), LOCAL_WORLD_SIZE=str(size))
    sys.stdout = open(output, "w", buffering=1)
    names = {"rank": rank, "size": size, **globals()}
    status = 0
    try:
        exec(compile(program, "PROGRAM", "exec"), names)
    except SystemExit as end:
        status = int(end.code or 0)
    except BaseException:
        traceback.print_exc(file=sys.stdout)
        status = 1
    sys.stdout.flush()
    import atexit

    if status == 0:
        atexit._run_exitfuncs()
    os._exit(status)


def main() -> None:
    folder = tempfile.mkdtemp(prefix="amldist-ranks-")  # TemporaryDirectory would remove it at the end of each fork
    print(json.dumps(run(int(sys.argv[1]), sys.argv[2], folder)))
    shutil.rmtree(folder)


def run(size: int, program: str, folder: str) -> list[str]:
    """What each rank printed. What they print until then is kept in the folder."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()), RES_OPTIONS="timeout:1 attempts:1")
    outputs, children = [os.path.join(folder, str(rank)) for rank in range(size)], []
    for rank in range(size):
        child = os.fork()
        if child == 0:
            in_rank(rank, size, program, outputs[rank])
        children.append(child)
    limit, statuses = time.monotonic() + float(os.environ.get("AMLDIST_TEST_LIMIT", "90")), {}
    while len(statuses) < size and time.monotonic() < limit:
        for rank, child in enumerate(children):
            if rank not in statuses and os.waitpid(child, os.WNOHANG)[0]:
                statuses[rank] = True
        time.sleep(0.02)
        finished = [rank for rank in statuses]
        stopped = os.environ.get("AMLDIST_TEST_STOPPED")
        if stopped and len(finished) == size - 1 and int(stopped) not in finished:
            os.kill(children[int(stopped)], signal.SIGKILL)
    for rank, child in enumerate(children):
        if rank not in statuses:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    texts = []
    for rank, output in enumerate(outputs):
        with open(output) as file:
            texts.append(file.read() if rank in statuses else "HANGS: " + file.read())
    return texts


main()
