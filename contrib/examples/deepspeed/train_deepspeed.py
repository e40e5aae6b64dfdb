#!/usr/bin/env python3
"""Training with DeepSpeed and ZeRO: optimizer state, and from stage 3 the parameters, are spread over the processes.

Exit status 1: the processes disagree about the model, or the loss has not fallen.
"""
import argparse
import json
import os
import sys

import deepspeed
import torch
import torch.distributed as dist
from torch import nn

STEPS = 40


def points(seed: int, device):
    """Points, and on which side of a plane each one lies."""
    where = torch.randn(64, 8, generator=torch.Generator().manual_seed(seed)).to(device)
    return where, (where[:, 0] + where[:, 1] - where[:, 2] > 0).float()


def whole_sum(engine) -> float:
    """The sum of all parameters, gathered first where stage 3 has spread them."""
    total = 0.0
    for parameter in engine.module.parameters():
        with deepspeed.zero.GatheredParameters(parameter):
            total += parameter.detach().double().sum().item()
    return total


def main() -> int:
    parser = argparse.ArgumentParser(description="Training with DeepSpeed")
    parser.add_argument("--zero", type=int, default=1, choices=(0, 1, 2, 3), help="stage of ZeRO")
    parser.add_argument("--local_rank", type=int, default=-1, help="taken for the sake of scripts that give it")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    deepspeed.init_distributed()
    rank, size = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 1))
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config={
        "train_micro_batch_size_per_gpu": 64,
        "optimizer": {"type": "Adam", "params": {"lr": 0.02, "torch_adam": True}},
        "zero_optimization": {"stage": arguments.zero},
    })
    where, side = points(rank, engine.device)  # each process has its own data
    losses = []
    for step in range(1, STEPS + 1):
        loss = nn.functional.binary_cross_entropy_with_logits(engine(where).squeeze(1), side)
        engine.backward(loss)
        engine.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(mean.item() / size)
        if rank == 0 and step % 10 == 0:
            print(f"step {step:3d}/{STEPS}   loss {losses[-1]:.4f}", flush=True)

    weights = [None] * size
    dist.all_gather_object(weights, whole_sum(engine))
    good = len(set(weights)) == 1 and losses[-1] < losses[0] / 2
    if rank == 0:
        print("result: " + json.dumps({
            "framework": "deepspeed", "version": deepspeed.__version__, "world_size": size,
            "environment": f"ZeRO {arguments.zero}, {dist.get_backend()}", "loss": [losses[0], losses[-1]],
            "weights": weights, "good": good}), flush=True)
    dist.barrier()
    dist.destroy_process_group()
    return 0 if good else 1


if __name__ == "__main__":
    status = main()
    # PyTorch 2 with gloo sometimes aborts while Python shuts down (status 134), when all work is done.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
