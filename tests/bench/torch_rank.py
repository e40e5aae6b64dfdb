"""One rank of tests/bench/torch: times PyTorch's calls over several back ends in turns.

"amldist-c10d" is amldist with a hook, so that calls go through PyTorch's dispatcher; "fake" is PyTorch's back end that does
nothing: what PyTorch itself costs.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from typing import Any, Callable

import amldist.torch  # noqa: F401
import torch
import torch.distributed as dist
import torch.testing._internal.distributed.fake_pg  # noqa: F401


def groups_of(backends: list[str]) -> dict[str, Any]:
    groups = {name: dist.new_group(backend=name.partition("-")[0]) for name in backends}
    if "amldist-c10d" in groups:
        groups["amldist-c10d"].register_pre_hook(1, lambda call: None)
    return groups


def pair(data: torch.Tensor, group: Any) -> None:
    """Half the ranks send to the other half, and the data comes back: half a round trip is a call's time."""
    rank, half = dist.get_rank(), dist.get_world_size() // 2
    if rank < half:
        dist.send(data, rank + half, group=group)
        dist.recv(data, rank + half, group=group)
    elif rank < 2 * half:
        dist.recv(data, rank - half, group=group)
        dist.send(data, rank - half, group=group)


def new_group(backend: str) -> None:
    dist.destroy_process_group(dist.new_group(backend=backend))


def calls_of(operation: str, size: int, group: Any, backend: str) -> Callable[[], object]:
    """A call of `size` bytes: of the whole, where each rank gives or gets a part of it."""
    ranks, rank = dist.get_world_size(), dist.get_rank()
    part = torch.zeros(max(1, size // 4 // ranks))
    whole = torch.zeros(part.numel() * ranks)
    other = torch.zeros_like(whole)
    parts = list(whole.chunk(ranks)) if rank == 0 else None
    return {
        "all_reduce": lambda: dist.all_reduce(whole, group=group),
        "broadcast": lambda: dist.broadcast(whole, 0, group=group),
        "reduce": lambda: dist.reduce(whole, 0, group=group),
        "all_gather": lambda: dist.all_gather_into_tensor(whole, part, group=group),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, whole, group=group),
        "all_to_all": lambda: dist.all_to_all_single(other, whole, group=group),
        "gather": lambda: dist.gather(part, parts, 0, group=group),
        "scatter": lambda: dist.scatter(part, parts, 0, group=group),
        "send_recv": lambda: pair(whole, group),
        "barrier": lambda: dist.barrier(group=group),
        "new_group": lambda: new_group(backend),
    }[operation]


def seconds_of(call: Callable[[], object], calls: int) -> float:
    dist.barrier()
    began = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - began) / calls


def measure(operation: str, size: int, groups: dict[str, Any], plan: dict) -> dict:
    """Microseconds of a call over each back end, in turns."""
    ways = {name: calls_of(operation, size, group, name) for name, group in groups.items()}
    times: dict[str, list[float]] = {name: [] for name in groups}
    calls = max(1, min(plan["calls"] // (10 if operation == "new_group" else 1), plan["most_bytes"] // max(size, 1)))
    for turn in range(plan["rounds"] + 1):
        for name, call in ways.items():
            each = seconds_of(call, calls) / (2 if operation == "send_recv" else 1)
            if turn:  # the first turn warms up
                times[name].append(each * 1e6)
    return {name: {"median": statistics.median(each), "least": min(each), "most": max(each)} for name, each in times.items()}


def main() -> None:
    plan = json.loads(sys.argv[1])
    rank = int(os.environ["RANK"])
    torch.set_num_threads(1)
    if plan["bind"]:
        processors = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {processors[rank % len(processors)]})
    dist.init_process_group("gloo")
    groups = groups_of(plan["backends"])
    results = []
    for operation in plan["operations"]:
        for size in plan["bytes"] if operation not in ("barrier", "new_group") else [0]:
            results.append({"operation": operation, "bytes": size, "times": measure(operation, size, groups, plan)})
    if rank == 0:
        print(json.dumps({"torch": torch.__version__, "ranks": dist.get_world_size(), "results": results}))
    dist.barrier()
    dist.destroy_process_group()


main()
