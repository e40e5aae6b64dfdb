"""One rank of tests/bench/torch: times PyTorch's all-reduce over several back ends in turns.

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


def seconds_of(call: Callable[[], object], calls: int) -> float:
    dist.barrier()
    began = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - began) / calls


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
    for size in plan["bytes"]:
        data = torch.zeros(max(1, size // 4))
        times: dict[str, list[float]] = {name: [] for name in groups}
        calls = max(1, min(plan["calls"], plan["most_bytes"] // size))
        for turn in range(plan["rounds"] + 1):
            for name, group in groups.items():
                each = seconds_of(lambda: dist.all_reduce(data, group=group), calls)
                if turn:  # the first turn warms up
                    times[name].append(each * 1e6)
        results.append({"bytes": size, "times": {
            name: {"median": statistics.median(each), "least": min(each)} for name, each in times.items()}})
    if rank == 0:
        print(json.dumps({"torch": torch.__version__, "results": results}))
    dist.barrier()
    dist.destroy_process_group()


main()
