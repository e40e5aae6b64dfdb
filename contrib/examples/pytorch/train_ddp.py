#!/usr/bin/env python3
"""Data-parallel training with PyTorch, as one writes it for Azure Machine Learning.

Three intertwined spirals are to be told apart by a small network. Nothing here knows about Slurm: who the other
processes are comes from MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE and LOCAL_RANK, which are set for every task by

    srun --nodes=4 --ntasks-per-node=2 --aml-dist=pytorch python3 train_ddp.py

At the end the processes compare their parameters and rank 0 can write a report (--report FILE, as JSON).
Exit status 1: the parameters differ between processes, or the loss has not fallen enough.
"""
import argparse
import json
import math
import os
import socket
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

ARMS = 3


def spirals(points: int) -> TensorDataset:
    """`points` noisy points in the plane, each with the number of the spiral it lies on. The same in every process."""
    generator = torch.Generator().manual_seed(7)
    label = torch.arange(points) % ARMS
    radius = 0.1 + 0.9 * torch.rand(points, generator=generator)
    angle = 4.5 * radius + label * (2 * math.pi / ARMS) + 0.12 * torch.randn(points, generator=generator)
    return TensorDataset(torch.stack((radius * angle.cos(), radius * angle.sin()), dim=1), label)


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Linear(2, 64), nn.Tanh(),
        nn.Linear(64, 64), nn.Tanh(),
        nn.Linear(64, ARMS))


def train_epoch(model: nn.Module, loader: DataLoader, optimizer: torch.optim.Optimizer, device: torch.device) -> float:
    """One pass over this process's share of the data; the mean loss over it."""
    total = 0.0
    for points, labels in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(points.to(device)), labels.to(device))
        loss.backward()  # DistributedDataParallel averages the gradients of all processes here
        optimizer.step()
        total += loss.item()
    return total / len(loader)


def from_all(value: float, device: torch.device) -> list:
    """The value of every process, by rank."""
    mine = torch.tensor([value], dtype=torch.float64, device=device)
    gathered = [torch.zeros_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, mine)
    return [each.item() for each in gathered]


def largest_difference(model: nn.Module) -> float:
    """The largest difference between two processes in any one parameter; exactly 0 if all trained together."""
    lowest = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    highest = lowest.clone()
    dist.all_reduce(lowest, op=dist.ReduceOp.MIN)
    dist.all_reduce(highest, op=dist.ReduceOp.MAX)
    return (highest - lowest).max().item()


def who_am_i(device: torch.device) -> dict:
    """This process's rank, host and so on, for the report."""
    def number(name: str):
        return int(os.environ[name]) if name in os.environ else None

    return {
        "rank": dist.get_rank(),
        "world_size": dist.get_world_size(),
        "local_rank": number("LOCAL_RANK"),
        "local_world_size": number("LOCAL_WORLD_SIZE"),
        "node_rank": number("NODE_RANK"),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "device": str(device),
        "master_addr": os.environ.get("MASTER_ADDR"),
        "master_port": number("MASTER_PORT"),
    }


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Data-parallel training with PyTorch")
    parser.add_argument("--backend", help="of torch.distributed (default: nccl with GPUs, else gloo)")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--batch-size", type=int, default=24, help="per process")
    parser.add_argument("--points", type=int, default=3840, help="of all processes together")
    parser.add_argument("--learning-rate", type=float, default=0.006)
    parser.add_argument("--fall", type=float, default=4.0, metavar="FACTOR",
                        help="fail unless the loss falls by this factor (default: 4)")
    parser.add_argument("--report", metavar="FILE", help="where rank 0 writes what happened, as JSON")
    return parser.parse_args()


def write_report(path: str, **what) -> None:
    report = {"torch": torch.__version__, "backend": dist.get_backend(), "world_size": dist.get_world_size(), **what}
    with open(path, "w", encoding="utf-8") as file:
        json.dump(report, file, indent=1)


def train(arguments: argparse.Namespace, device: torch.device) -> bool:
    rank, world_size = dist.get_rank(), dist.get_world_size()

    def say(text: str) -> None:  # at once: in a batch job the output goes to a file
        if rank == 0:
            print(text, flush=True)

    began = time.perf_counter()
    model = DistributedDataParallel(network().to(device))
    optimizer = torch.optim.Adam(model.parameters(), lr=arguments.learning_rate)
    data = spirals(arguments.points)
    sampler = DistributedSampler(data, shuffle=True, seed=3)  # each process gets its own share of the data
    loader = DataLoader(data, batch_size=arguments.batch_size, sampler=sampler)
    say(f"{world_size} process{'es' if world_size > 1 else ''}, {dist.get_backend()} on {device.type}, "
        f"PyTorch {torch.__version__}: {len(data)} points, {len(sampler)} for each")

    curve = []
    for epoch in range(1, arguments.epochs + 1):
        epoch_began = time.perf_counter()
        sampler.set_epoch(epoch)  # another order in each epoch
        losses = from_all(train_epoch(model, loader, optimizer, device), device)
        curve.append({"epoch": epoch, "loss": sum(losses) / world_size, "loss_by_rank": losses,
                      "seconds": time.perf_counter() - epoch_began})
        say(f"epoch {epoch:2d}/{arguments.epochs}   loss {curve[-1]['loss']:.4f}   {curve[-1]['seconds']:.2f} s")

    # Every process computes these from the same numbers, so all come to the same verdict.
    difference = largest_difference(model)
    fall = curve[0]["loss"] / curve[-1]["loss"]
    good = difference == 0 and fall >= arguments.fall

    processes = [None] * world_size
    dist.all_gather_object(processes, who_am_i(device))
    say(f"largest difference between the processes' parameters: {difference:g}")
    say(f"the loss fell by a factor of {fall:.1f} (wanted: {arguments.fall:g}): {'good' if good else 'NOT GOOD'}")
    if rank == 0 and arguments.report:
        write_report(arguments.report, processes=processes, epochs=curve, largest_parameter_difference=difference,
                     parameters_equal=difference == 0, loss_fall=fall, wanted_loss_fall=arguments.fall,
                     seconds=time.perf_counter() - began)
    return good


def main() -> int:
    arguments = parse_arguments()
    torch.set_num_threads(1)  # the processes of a node share its cores; by default each would start a thread per core
    on_gpu = torch.cuda.is_available()
    dist.init_process_group(arguments.backend or ("nccl" if on_gpu else "gloo"), init_method="env://")
    if on_gpu:
        # Where Slurm shows each task only its own GPU, that one has index 0.
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
        torch.cuda.set_device(device)
    else:
        device = torch.device("cpu")
    good = train(arguments, device)
    dist.barrier()  # rank 0 serves the others' rendezvous: it goes last
    dist.destroy_process_group()
    return 0 if good else 1


if __name__ == "__main__":
    status = main()
    # PyTorch 2 with gloo sometimes aborts while Python shuts down (status 134, "terminate called without an active
    # exception"), when all work is long done. The status of the training is what counts, so we skip Python's shutdown.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
