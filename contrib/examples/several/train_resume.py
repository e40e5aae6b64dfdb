#!/usr/bin/env python3
"""A PyTorch training that writes a checkpoint after each epoch and resumes from it when it is started again.

--die-after N kills rank 0 after N epochs if the training started without a checkpoint, like a failing node.
Exit status 1: the processes disagree, or the loss has not fallen since the first epoch of the first start.
"""
import argparse
import json
import os
import signal
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def from_all(value: float) -> list:
    gathered = [torch.zeros(1, dtype=torch.float64) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, torch.tensor([value], dtype=torch.float64))
    return [each.item() for each in gathered]


def say(line: str) -> None:
    """Prints on rank 0 only."""
    if dist.get_rank() == 0:
        print(line, flush=True)


def save(path: str, state: dict) -> None:
    """Replaces the old file atomically, so that a checkpoint is never incomplete."""
    torch.save(state, path + ".new")
    os.replace(path + ".new", path)


def load(path: str, model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[list, list]:
    """The mean loss of each epoch so far, and the epochs at which a start began."""
    if not os.path.exists(path):
        return [], []
    state = torch.load(path)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["history"], state["started"]


def train(arguments: argparse.Namespace) -> bool:
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    history, started = load(arguments.checkpoint, model, optimizer)
    started.append(len(history) + 1)
    say(f"{world_size} processes, beginning with epoch {started[-1]}")

    where = torch.randn(256, 4, generator=torch.Generator().manual_seed(rank))
    height = where.sum(dim=1, keepdim=True).sin()
    while len(history) < arguments.epochs:
        for _ in range(20):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(where), height)
            loss.backward()
            optimizer.step()
        history.append(sum(from_all(loss.item())) / world_size)
        say(f"epoch {len(history)}/{arguments.epochs}   loss {history[-1]:.4f}")
        if rank == 0:
            save(arguments.checkpoint, {"model": model.state_dict(), "optimizer": optimizer.state_dict(),
                                        "history": history, "started": started})
        if rank == 0 and started == [1] and len(history) == arguments.die_after:
            os.kill(os.getpid(), signal.SIGKILL)

    weights = from_all(sum(parameter.double().sum().item() for parameter in model.parameters()))
    good = len(set(weights)) == 1 and history[-1] < history[0] / 2
    say("result: " + json.dumps({
        "framework": "torch", "version": torch.__version__, "world_size": world_size, "started": started,
        "loss": [history[0], history[-1]], "epochs": len(history), "weights": weights, "good": good}))
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description="A training that resumes from its checkpoint")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--checkpoint", default="train_resume.pt")
    parser.add_argument("--die-after", type=int, default=0, metavar="N")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    # The model ends with train(), before the process group: PyTorch 1.13 with gloo sometimes hangs for ever where the
    # model is the last that holds the group (it then joins gloo's threads with Python's lock in its hands).
    good = train(arguments)
    dist.barrier()
    dist.destroy_process_group()
    return 0 if good else 1


if __name__ == "__main__":
    status = main()
    # PyTorch 2 with gloo sometimes aborts while Python shuts down (status 134), when all work is done.
    sys.stdout.flush()
    os._exit(status)
