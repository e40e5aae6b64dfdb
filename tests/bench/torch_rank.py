"""One rank of tests/bench/torch: times PyTorch's all-reduce over several back ends in turns.

"amldist" takes the compiled calls where they are there, "amldist-python" the package's Python code, and "fake" PyTorch's
back end that does nothing: what PyTorch itself costs.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from typing import Any, Callable

os.environ["AMLDIST_TORCH_COMPILED"] = "0"  # until both ways are known

import amldist.torch  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.testing._internal.distributed.fake_pg  # noqa: E402, F401
from amldist.torch import _direct, _group  # noqa: E402


def ways() -> dict[str, dict[str, Any]]:
    """The methods of the two ways; the second is empty where the extension is not there."""
    names = [name for name in _direct._METHODS if name in vars(_group.AmldistGroup)]
    python = {name: vars(_group.AmldistGroup)[name] for name in names}
    del os.environ["AMLDIST_TORCH_COMPILED"]
    compiled = {name: vars(_group.AmldistGroup)[name] for name in names} if _direct.install() else {}
    return {"amldist-python": python, "amldist": compiled}


def use(methods: dict[str, Any]) -> None:
    for name, method in methods.items():
        setattr(_group.AmldistGroup, name, method)


def groups_of(backends: list[str]) -> dict[str, Any]:
    libdist = dist.new_group(backend="amldist")
    return {name: dist.new_group(backend=name) if name in ("gloo", "fake") else libdist for name in backends}


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
    methods = ways()
    dist.init_process_group("gloo")
    groups = groups_of(plan["backends"])
    results = []
    for size in plan["bytes"]:
        data = torch.zeros(max(1, size // 4))
        times: dict[str, list[float]] = {name: [] for name in groups}
        calls = max(1, min(plan["calls"], plan["most_bytes"] // size))
        for turn in range(plan["rounds"] + 1):
            for name, group in groups.items():
                use(methods.get(name, {}))
                each = seconds_of(lambda: dist.all_reduce(data, group=group), calls)
                if turn:  # the first turn warms up
                    times[name].append(each * 1e6)
        results.append({"bytes": size, "times": {
            name: {"median": statistics.median(each), "least": min(each)} for name, each in times.items()}})
    if rank == 0:
        print(json.dumps({"torch": torch.__version__, "is_compiled": bool(methods["amldist"]), "results": results}))
    dist.barrier()
    dist.destroy_process_group()


main()
