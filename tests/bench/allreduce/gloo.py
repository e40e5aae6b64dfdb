#!/usr/bin/env python3
"""Gloo's all-reduce as PyTorch programs call it, timed like loop.c: prints BYTES OUT_OF_PLACE IN_PLACE LIMIT.

    gloo.py ROUNDS BYTES...        (RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set)

torch.distributed only works in place: out of place is a copy before it, as a program would have to make. A limit is
not measured (inf). A call of torch.distributed costs some microseconds above Gloo's own, which is what users pay.
"""

from __future__ import annotations

import statistics
import sys
import time

import torch
import torch.distributed as dist


def calls_for(size: int, ranks: int, rounds: int) -> int:
    """As in loop.c, and fewer where one takes 100 us and more."""
    calls = rounds * (60 if size <= 65536 else 30 if size <= 1 << 20 else 5 if size <= 16 << 20 else 3)
    return max(calls, 3) if ranks == 2 else calls // 4 + 3


def measure(send: torch.Tensor, recv: torch.Tensor, calls: int, rank: int) -> float:
    """Median of the slowest rank, microseconds."""
    times = []
    for i in range(-2, calls):
        send.fill_(float(rank + (i + 7) % 7))
        dist.barrier()
        start = time.perf_counter()
        if recv is not send:
            recv.copy_(send)
        dist.all_reduce(recv)
        if i >= 0:
            times.append((time.perf_counter() - start) * 1e6)
    slowest = torch.tensor([statistics.median(times)], dtype=torch.float64)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    return float(slowest[0])


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    rounds, sizes = int(sys.argv[1]), [int(word) for word in sys.argv[2:]]
    for size in sizes:
        send = torch.zeros(max(1, size // 4), dtype=torch.float32)
        recv = torch.zeros_like(send)
        calls = calls_for(size, ranks, rounds)
        out, within = measure(send, recv, calls, rank), measure(recv, recv, calls, rank)
        if rank == 0:
            print(f"{size} {out:.3f} {within:.3f} inf", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
