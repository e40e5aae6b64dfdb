#!/usr/bin/env python3
"""Data-parallel training with Horovod and PyTorch: a plane is fitted to points of which each process has its own.

Who the other processes are Horovod learns from MPI. Exit status 1: the processes disagree about the plane, a local rank
is not that of the environment, or the loss has not fallen.
"""
import json
import os
import sys

import horovod
import horovod.torch as hvd
import torch
from torch import nn

STEPS = 60


def main() -> int:
    hvd.init()
    torch.set_num_threads(1)
    rank, size = hvd.rank(), hvd.size()
    torch.manual_seed(rank)  # different at first: the broadcast below makes all equal
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

    points = torch.randn(64, 3)
    heights = points @ torch.tensor([[2.0], [-3.0], [0.5]])
    losses = []
    for step in range(1, STEPS + 1):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(points), heights)
        loss.backward()
        optimizer.step()  # averages the gradients of all processes
        losses.append(hvd.allreduce(loss.detach(), name="loss").item())
        if rank == 0 and step % 20 == 0:
            print(f"step {step:3d}/{STEPS}   loss {losses[-1]:.6f}", flush=True)

    own = sum(parameter.detach().double().sum() for parameter in model.parameters())
    weights = hvd.allgather(own.reshape(1), name="weights").tolist()
    ranks_agree = os.environ["RANK"] == str(rank) and os.environ["LOCAL_RANK"] == str(hvd.local_rank())
    disagreements = int(hvd.allreduce(torch.tensor([0 if ranks_agree else 1]), op=hvd.Sum, name="ranks").item())
    good = len(set(weights)) == 1 and disagreements == 0 and losses[-1] < losses[0] / 100
    if rank == 0:
        print("result: " + json.dumps({
            "framework": "horovod", "version": f"{horovod.__version__} with torch {torch.__version__}",
            "world_size": size, "loss": [losses[0], losses[-1]], "weights": weights, "disagreements": disagreements,
            "good": good}), flush=True)
    hvd.shutdown()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
