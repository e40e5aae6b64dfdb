"""One rank of tests/bench/torch_step: times steps of DistributedDataParallel over two back ends in turns."""

import copy
import json
import os
import sys
import time
from typing import Callable

import amldist.torch
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

SHAPES = {"large": (24, 1020), "small": (200, 64)}
#: Steps of one turn.
STEPS = {"large": 2, "small": 6}
#: A back end, or a back end with its own memory.
COMPARED = ("gloo", "amldist", "amldist memory")


def model_of(layers: int, width: int) -> torch.nn.Module:
    torch.manual_seed(1)
    return torch.nn.Sequential(*[torch.nn.Linear(width, width) for _ in range(layers)])


def milliseconds_of(step: Callable[[], None], steps: int) -> float:
    dist.barrier()
    began = time.perf_counter()
    for _ in range(steps):
        step()
    return (time.perf_counter() - began) / steps * 1e3


def step_of(model: torch.nn.Module, data: torch.Tensor) -> Callable[[], None]:
    def step() -> None:
        model.zero_grad(set_to_none=True)
        model(data).square().mean().backward()

    return step


def without_communication(model: DistributedDataParallel, step: Callable[[], None]) -> Callable[[], None]:
    def alone() -> None:
        with model.no_sync():
            step()

    return alone


def communicate_nothing(_: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


def meet_of(group: dist.ProcessGroup) -> Callable[..., torch.futures.Future[torch.Tensor]]:
    def meet(_: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        met = dist.all_reduce(torch.zeros(1), group=group, async_op=True)
        return met.get_future().then(lambda _: bucket.buffer())

    return meet


def main() -> None:
    plan = json.loads(sys.argv[1])
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    processors = sorted(os.sched_getaffinity(0))
    if ranks <= len(processors):
        os.sched_setaffinity(0, {processors[rank]})
    dist.init_process_group("gloo")
    layers, width = SHAPES[plan["model"]]
    plain = model_of(layers, width)
    data = torch.randn(plan["batch"], width)
    groups = {name: dist.new_group(backend=name.partition(" ")[0]) for name in COMPARED}
    models = {name: DistributedDataParallel(copy.deepcopy(plain), process_group=group) for name, group in groups.items()}
    amldist.torch.use_library_memory(models["amldist memory"])
    models["nothing"] = DistributedDataParallel(copy.deepcopy(plain), process_group=dist.new_group(backend="gloo"))
    models["nothing"].register_comm_hook(None, communicate_nothing)
    own = [dist.new_group([each], backend="amldist") for each in range(ranks)][rank]
    models["single"] = DistributedDataParallel(copy.deepcopy(plain), process_group=own)
    models["met"] = DistributedDataParallel(copy.deepcopy(plain), process_group=dist.new_group(backend="gloo"))
    models["met"].register_comm_hook(None, meet_of(groups["amldist"]))
    steps = {name: step_of(model, data) for name, model in models.items()}
    steps["alone"] = without_communication(models["gloo"], step_of(models["gloo"], data))
    times: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(plan["rounds"] + 1):
        for name, step in steps.items():
            each = milliseconds_of(step, STEPS[plan["model"]])
            if turn:  # the first turn warms up
                times[name].append(each)
    for name in COMPARED:
        steps[name]()
    for parameters in zip(*(models[name].parameters() for name in COMPARED)):
        assert all(torch.allclose(each.grad, parameters[0].grad, rtol=1e-4, atol=1e-6) for each in parameters)
    if rank == 0:
        print(json.dumps({"ms": times, "parameters": sum(each.numel() for each in plain.parameters())}))
    dist.barrier()
    dist.destroy_process_group()


main()
