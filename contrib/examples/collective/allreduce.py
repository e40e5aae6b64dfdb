#!/usr/bin/env python3
"""An all-reduce from Python with nothing but ctypes: no MPI, no torch, no compiler.

    srun -N2 -n4 --aml-dist=pytorch python3 allreduce.py

AMLDIST_LIBRARY may name the library where it is not on the linker's path.
"""

import array
import ctypes
import os
import sys

FLOAT64, SUM = 8, 0

library = ctypes.CDLL(os.environ.get("AMLDIST_LIBRARY", "libamldist.so.0"))
library.amldist_last_error.restype = ctypes.c_char_p
library.amldist_host.restype = ctypes.c_char_p
library.amldist_allreduce.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int,
                                      ctypes.c_int]
for name in ("amldist_rank", "amldist_size", "amldist_finalize"):
    getattr(library, name).argtypes = [ctypes.c_void_p]
library.amldist_host.argtypes = [ctypes.c_void_p, ctypes.c_int]


def check(status: int) -> None:
    if status < 0:
        sys.exit(f"allreduce.py: {library.amldist_last_error().decode()}")


def main() -> None:
    world = ctypes.c_void_p()
    check(library.amldist_init(ctypes.byref(world), 60000))
    rank, size = library.amldist_rank(world), library.amldist_size(world)
    data = array.array("d", [rank + 1] * 1000)
    address, count = data.buffer_info()
    check(library.amldist_allreduce(world, address, address, count, FLOAT64, SUM))
    assert data[0] == data[-1] == size * (size + 1) / 2
    print(f"rank {rank} of {size} on {library.amldist_host(world, rank).decode()}: the sum is {data[0]:g}")
    check(library.amldist_finalize(world))


if __name__ == "__main__":
    main()
