#!/usr/bin/env python3
"""The same as ranks.cpp with mpi4py: MPI, PMIx and the environment must agree about who is who, and a sum be right."""
import json
import os
import sys

import mpi4py
from mpi4py import MPI

world = MPI.COMM_WORLD
rank, size = world.Get_rank(), world.Get_size()
node = world.Split_type(MPI.COMM_TYPE_SHARED)
expected = {
    "RANK": rank, "OMPI_COMM_WORLD_RANK": rank, "PMIX_RANK": rank,
    "WORLD_SIZE": size, "OMPI_COMM_WORLD_SIZE": size,
    "LOCAL_RANK": node.Get_rank(), "OMPI_COMM_WORLD_LOCAL_RANK": node.Get_rank(),
    "LOCAL_WORLD_SIZE": node.Get_size(), "OMPI_COMM_WORLD_LOCAL_SIZE": node.Get_size(),
}
wrong = {name: os.environ.get(name) for name, value in expected.items() if os.environ.get(name) != str(value)}
if wrong:
    print(f"rank {rank}: MPI says {expected} but the environment has {wrong}", flush=True)

rank_sum = world.allreduce(rank)
disagreements = world.allreduce(len(wrong))
good = rank_sum == size * (size - 1) // 2 and disagreements == 0
if rank == 0:
    print("result: " + json.dumps({
        "framework": "mpi4py", "version": f"{mpi4py.__version__} with {MPI.Get_library_version().split(',')[0]}",
        "world_size": size, "rank_sum": rank_sum, "disagreements": disagreements, "good": good}), flush=True)
sys.exit(0 if good else 1)
