#!/usr/bin/env python3
"""Data-parallel training with PyTorch Lightning: a network learns to tell on which side of a surface a point lies.

Lightning finds the other processes by itself, or starts those of its node; --devices and --nodes are what its Trainer
wants to know. Exit status 1: there are not nodes x devices processes, they disagree, or the loss has not fallen.
"""
import argparse
import json
import os
import sys

import lightning
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 6


class Classifier(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 1))
        self.history = []
        self.losses = []

    def training_step(self, batch, _):
        where, side = batch
        loss = nn.functional.binary_cross_entropy_with_logits(self.network(where).squeeze(1), side)
        self.losses.append(loss.detach())
        return loss

    def on_train_epoch_end(self) -> None:
        self.history.append(self.all_gather(torch.stack(self.losses).mean()).mean().item())
        self.losses.clear()
        if self.global_rank == 0:
            print(f"epoch {self.current_epoch + 1}/{EPOCHS}   loss {self.history[-1]:.4f}", flush=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.02)


def points() -> TensorDataset:
    generator = torch.Generator().manual_seed(7)
    where = torch.randn(2048, 8, generator=generator)
    return TensorDataset(where, (where[:, 0] + where[:, 1] - where[:, 2] > 0).float())


def main() -> int:
    parser = argparse.ArgumentParser(description="Data-parallel training with PyTorch Lightning")
    parser.add_argument("--devices", type=int, default=2, help="processes on each node")
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--azureml-helper", action="store_true", help="call the helper of Azure ML's guide first")
    arguments = parser.parse_args()
    if arguments.azureml_helper:
        from azureml_env_adapter import set_environment_variables
        set_environment_variables(arguments.devices)
    torch.set_num_threads(1)
    lightning.seed_everything(1)
    model = Classifier()
    trainer = lightning.Trainer(
        accelerator="auto", devices=arguments.devices, num_nodes=arguments.nodes, strategy="ddp", max_epochs=EPOCHS,
        logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(model, DataLoader(points(), batch_size=32))

    weights = [None] * trainer.world_size
    dist.all_gather_object(weights, sum(each.double().sum().item() for each in model.parameters()))
    good = (trainer.world_size == arguments.nodes * arguments.devices and len(set(weights)) == 1
            and model.history[-1] < model.history[0] / 2)
    if trainer.global_rank == 0:
        print("result: " + json.dumps({
            "framework": "lightning", "version": lightning.__version__, "world_size": trainer.world_size,
            "environment": type(trainer.strategy.cluster_environment).__name__,
            "loss": [model.history[0], model.history[-1]], "weights": weights, "good": good}), flush=True)
    dist.barrier()
    return 0 if good else 1


if __name__ == "__main__":
    status = main()
    # PyTorch 2 with gloo sometimes aborts while Python shuts down (status 134), when all work is done.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
