#!/usr/bin/env python3
"""Sharded training with PyTorch: each process keeps only its share of parameters, gradients and optimizer state.

A network learns to recognise on which side of a curved surface a point lies. Needs PyTorch 2.6 or later.
Exit status 1: the shards do not add up, the processes disagree about the loss, or it has not fallen; 2: an old PyTorch.
"""
import argparse
import json
import os
import sys

import torch
import torch.distributed as dist
from torch import nn

try:
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import DTensor
except ImportError:
    print(f"train_fsdp.py needs PyTorch 2.6 or later, this is {torch.__version__}", file=sys.stderr)
    sys.exit(2)

WIDTH = 8


def points(count: int, seed: int):
    generator = torch.Generator().manual_seed(seed)
    where = torch.randn(count, WIDTH, generator=generator)
    return where, (where[:, 0] * where[:, 1] + where[:, 2] > 0).float()


def own_device() -> torch.device:
    """The task's GPU, if there are any: where Slurm shows each task only its own, that one has index 0."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def from_all(value: float, device: torch.device) -> list:
    gathered = [torch.zeros(1, dtype=torch.float64, device=device) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, torch.tensor([value], dtype=torch.float64, device=device))
    return [each.item() for each in gathered]


def main() -> int:
    parser = argparse.ArgumentParser(description="Sharded training with PyTorch")
    parser.add_argument("--steps", type=int, default=60)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    device = own_device()
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(WIDTH, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1)).to(device)
    whole = sum(parameter.numel() for parameter in model.parameters())
    mesh = dist.init_device_mesh(device.type, (world_size,))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    where, side = (each.to(device) for each in points(512, seed=rank))  # each process has its own data

    losses = []
    for step in range(1, arguments.steps + 1):
        optimizer.zero_grad()
        loss = nn.functional.binary_cross_entropy_with_logits(model(where).squeeze(1), side)
        loss.backward()  # gathers the layers' parameters and scatters their gradients
        optimizer.step()
        losses.append(sum(from_all(loss.item(), device)) / world_size)
        if rank == 0 and step % 20 == 0:
            print(f"step {step:3d}/{arguments.steps}   loss {losses[-1]:.4f}", flush=True)

    shards = from_all(sum(p.to_local().numel() for p in model.parameters() if isinstance(p, DTensor)), device)
    # Every process gathers the whole model for itself: all must have the same.
    weights = from_all(sum(p.full_tensor().double().sum().item() for p in model.parameters()), device)
    good = sum(shards) == whole and len(set(weights)) == 1 and losses[-1] < losses[0] / 2
    if rank == 0:
        print("result: " + json.dumps({
            "framework": "torch.distributed.fsdp", "version": torch.__version__, "world_size": world_size,
            "loss": [losses[0], losses[-1]], "weights": weights, "parameters": whole, "shards": shards, "good": good}))
    dist.barrier()
    dist.destroy_process_group()
    return 0 if good else 1


if __name__ == "__main__":
    status = main()
    # PyTorch 2 with gloo sometimes aborts while Python shuts down (status 134), when all work is done.
    sys.stdout.flush()
    os._exit(status)
