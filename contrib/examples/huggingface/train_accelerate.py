#!/usr/bin/env python3
"""A training loop with Hugging Face's accelerate: a plane is fitted to points.

Exit status 1: the processes disagree about the plane, or the loss has not fallen.
"""
import json
import os
import sys

import accelerate
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 4


def main() -> int:
    torch.set_num_threads(1)
    # On CPUs accelerate sees the other processes only with cpu=True; otherwise each would train alone.
    accelerator = accelerate.Accelerator(cpu=not torch.cuda.is_available())

    def say(text: str) -> None:  # accelerator.print would say it once on each node
        if accelerator.is_main_process:
            print(text, flush=True)

    generator = torch.Generator().manual_seed(7)
    points = torch.randn(1024, 3, generator=generator)
    heights = points @ torch.tensor([[2.0], [-3.0], [0.5]])
    torch.manual_seed(1)
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    model, optimizer, loader = accelerator.prepare(
        model, optimizer, DataLoader(TensorDataset(points, heights), batch_size=16, shuffle=True))

    history = []
    for epoch in range(1, EPOCHS + 1):
        losses = []
        for where, height in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(where), height)
            accelerator.backward(loss)
            optimizer.step()
            losses.append(loss.detach())
        history.append(accelerator.gather(torch.stack(losses).mean()).mean().item())
        say(f"epoch {epoch}/{EPOCHS}   loss {history[-1]:.6f}")

    own = sum(each.detach().double().sum() for each in model.parameters())
    weights = accelerator.gather(own.reshape(1)).tolist()
    good = len(weights) == accelerator.num_processes and len(set(weights)) == 1 and history[-1] < history[0] / 10
    say("result: " + json.dumps({
        "framework": "accelerate", "version": accelerate.__version__, "world_size": accelerator.num_processes,
        "environment": accelerator.distributed_type.value, "loss": [history[0], history[-1]], "weights": weights,
        "good": good}))
    accelerator.wait_for_everyone()
    accelerator.end_training()
    return 0 if good else 1


if __name__ == "__main__":
    status = main()
    # PyTorch 2 with gloo sometimes aborts while Python shuts down (status 134), when all work is done.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
