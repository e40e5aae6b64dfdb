"""``python -m amldist``: reports what was found here. Exit status: 0 done, 1 something is broken, 2 wrong usage."""

from __future__ import annotations

import ctypes
import os
import sys
from importlib import metadata

import amldist
from amldist import _library

_PARTS = {
    "NCCL": (("libnccl.so.2",), "collectives on GPUs"),
    "CUDA": (("libcuda.so.1",), "GPUs"),
    "Open MPI": (("libmpi.so.40",), "messages by MPI"),
    "PMIx": (("libpmix.so.2",), "finding rank 0 under srun --mpi=pmix"),
    "verbs": (("libibverbs.so.1",), "the check of InfiniBand"),
}


def _found(names: tuple[str, ...]) -> str:
    for name in names:
        try:
            ctypes.CDLL(name)
            return name
        except OSError:  # not installed under this name
            continue
    return ""


def _identity() -> str:
    try:
        who = amldist.Identity()
    except amldist.Error as error:
        return f"unknown ({error})"
    return (
        f"rank {who.rank} of {who.size}, local {who.local_rank} of {who.local_size}, node {who.node_rank} of {who.nodes}"
    )


def _torch() -> str:
    try:
        return f"{metadata.version('torch')}: init_process_group(\"amldist\")"
    except metadata.PackageNotFoundError:
        return "not installed"


def main(arguments: list[str]) -> int:
    if arguments:
        print("usage: python -m amldist", file=sys.stderr)
        return 2
    print(f"library      {_library.path} {amldist.version()}")
    for part, (names, purpose) in _PARTS.items():
        print(f"{part:<12} {_found(names) or 'not found'} ({purpose})")
    print(f"PyTorch      {_torch()}")
    print(f"identity     {_identity()}")
    settings = {name: value for name, value in sorted(os.environ.items()) if name.startswith("AMLDIST_")}
    for name, value in settings.items():
        print(f"{name}={'(set)' if 'SECRET' in name else value}")
    return 0


sys.exit(main(sys.argv[1:]))
