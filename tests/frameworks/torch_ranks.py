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


def takes_parts() -> bool:
    try:
        type("Part", (torch._C._distributed_c10d.Backend,), {})(0, 1)
    except TypeError:
        return False
    return True


# What releases of PyTorch lack, whatever the back end. The newest lacks nothing (test_torch_interface.py).
_C10D = inspect.getsource(dist.distributed_c10d)
LACKS = {
    what: sentence
    for what, (is_there, sentence) in {
        "parts": (takes_parts(), "takes no back end in Python for one device of a group"),
        "hooks": (hasattr(dist.ProcessGroup, "register_pre_hook"), "has no hooks of a process group"),
        "NaN check": ("TORCH_DIST_NAN_CHECK" in _C10D, "does not read TORCH_DIST_NAN_CHECK"),
        "recorder": ("backend" in str(getattr(torch._C._distributed_c10d, "_dump_fr_trace_json", None).__doc__), "has no flight recorder of other back ends than NCCL's"),
        "entry point": ("torch.distributed.backends" in _C10D, "looks for no entry points of back ends: it needs `import amldist.torch`"),
        "names of hooks": (hasattr(getattr(torch._C._distributed_c10d, "HookOpName", None), "ALLGATHER_BASE"), "tells a hook that an operation is an all-gather, not which form of it"),
        "monitored barrier": ("get_backend(group) != Backend.GLOO" not in inspect.getsource(dist.monitored_barrier), "offers monitored_barrier() to Gloo alone"),
        "split": ("No device associated with the default pg" not in _C10D, "splits groups only where there is an accelerator"),
    }.items()
    if not is_there
}


def need(*features: str) -> None:
    """Ends the rank, and the test is skipped with the reason, where this release lacks something."""
    for what in features:
        if what in LACKS:
            print(f"skipped: PyTorch {torch.__version__.partition('+')[0]} {LACKS[what]}")
            sys.exit()


def monitored_barrier(**named) -> None:
    """By PyTorch's function, or where that serves Gloo alone by the group's method."""
    if "monitored barrier" in LACKS and dist.get_backend() != "gloo":
        dist.group.WORLD.monitored_barrier(**named)
    else:
        dist.monitored_barrier(**named)


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
