"""An unmodified PyTorch program over Gloo, in which rank 2 of four does something wrong after some steps.

    torch_faults.py WAY FAULT SEED STEPS        WAY: ddp, fsdp, pipeline
"""

import os
import random
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch import nn


def ways(way: str, rank: int):
    """The training step of each way, as a function of no arguments, and the groups that it makes."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    data = torch.full((3, 8), float(rank + 1))
    if way == "pipeline":
        return pipeline(rank)
    if way == "ddp":
        model = nn.parallel.DistributedDataParallel(model)
    else:
        from torch.distributed.fsdp import fully_shard

        fully_shard(model, mesh=dist.init_device_mesh("cpu", (dist.get_world_size(),)))

    def step() -> None:
        model(data).sum().backward()

    return step


def pipeline(rank: int):
    """Two stages of two ranks; each stage is a group that reduces its gradients."""
    stages = [dist.new_group([0, 1], group_desc="stage 0"), dist.new_group([2, 3], group_desc="stage 1")]
    layer = nn.Linear(8, 8)
    passed = torch.ones(2, 8)

    def step() -> None:
        if rank < 2:
            dist.send(layer(passed).detach(), rank + 2)
            gradient = torch.zeros(2, 8)
            dist.recv(gradient, rank + 2)
        else:
            given = torch.zeros(2, 8)
            dist.recv(given, rank - 2)
            dist.send(layer(given).detach(), rank - 2)
        dist.all_reduce(layer.weight.detach().clone(), group=stages[rank // 2])

    return step


def do_wrong(fault: str) -> None:
    if fault == "late":
        time.sleep(1000)
    elif fault == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif fault == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault == "operation":
        dist.barrier()
    elif fault == "exception":
        raise RuntimeError("rank 2 has had enough")


def call_together(fault: str, rank: int, others: dist.ProcessGroup) -> None:
    """The faults that are one call, which rank 2 makes in another way than the others; the circle is everybody's."""
    wrong = rank == 2
    data = torch.ones(1 << 20)
    if fault == "root":
        dist.reduce(data, 3 if wrong else 0)  # a broadcast from another rank passes with Gloo
    elif fault == "count":
        dist.broadcast(data[:0] if wrong else data, 0)
    elif fault == "communicator":
        dist.all_reduce(data, group=others if wrong else None)
    elif fault == "circle":
        dist.send(data, (rank + 1) % dist.get_world_size())
        dist.recv(data, (rank - 1) % dist.get_world_size())


def main() -> None:
    way, fault, seed, steps = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    step = ways(way, rank)
    others = dist.new_group(list(range(dist.get_world_size())), group_desc="others")
    pause = random.Random(seed * 100 + rank)
    for _ in range(steps):
        time.sleep(pause.random() * 0.02 + (0.3 if fault == "straggler" and rank == 2 else 0))
        step()
    if rank == 2:
        do_wrong(fault)
    call_together(fault, rank, others)
    if rank != 2 or fault != "skipped":
        step()
    dist.barrier()
    dist.destroy_process_group()
    print("done", rank)


main()
