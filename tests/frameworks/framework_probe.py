#!/usr/bin/env python3
"""Starts one framework in this process's environment and reports what it made of it, on one line:

    observed: {"rank": 0, "size": 4, "environment": "SLURMEnvironment", "master": "10.0.0.1:20000"}

Arguments: FRAMEWORK, and words that say what a script would say in its code.
"""

import json
import os
import sys
import traceback

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
framework, words = sys.argv[1], sys.argv[2:]


def master():
    """Where the process met the others; frameworks leave their own choice in these variables."""
    return f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"


def torch():
    import torch
    import torch.distributed as dist
    dist.init_process_group("gloo")
    dist.all_reduce(torch.ones(1))
    return dist.get_rank(), dist.get_world_size(), "env://", master()


def lightning():
    import lightning
    import torch

    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def training_step(self, batch, _):
            return self.layer(batch).sum()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    nodes, devices = (int(word) for word in words)
    trainer = lightning.Trainer(accelerator="cpu", devices=devices, num_nodes=nodes, strategy="ddp", max_steps=1,
                                logger=False, enable_checkpointing=False, enable_progress_bar=False,
                                enable_model_summary=False)
    trainer.fit(Model(), torch.utils.data.DataLoader(torch.ones(16, 1)))
    environment = trainer.strategy.cluster_environment
    met = f"{environment.main_address}:{environment.main_port}"
    return trainer.global_rank, trainer.world_size, type(environment).__name__, met


def accelerate():
    import accelerate
    state = accelerate.Accelerator(cpu=True) if "cpu" in words else accelerate.Accelerator()
    state.wait_for_everyone()
    met = master() if state.num_processes > 1 else None
    return state.process_index, state.num_processes, state.distributed_type.value, met


def transformers():
    import tempfile
    from transformers import TrainingArguments
    arguments = TrainingArguments(output_dir=tempfile.gettempdir(), report_to="none", use_cpu="cpu" in words)
    met = master() if arguments.world_size > 1 else None
    return arguments.process_index, arguments.world_size, arguments.distributed_state.distributed_type.value, met


def deepspeed():
    import deepspeed
    import torch
    import torch.distributed as dist
    deepspeed.init_distributed()
    model = torch.nn.Linear(2, 1)
    deepspeed.initialize(model=model, model_parameters=model.parameters(), config={
        "train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "SGD", "params": {"lr": 0.1}}})
    dist.all_reduce(torch.ones(1))
    return dist.get_rank(), dist.get_world_size(), None, master()


def ignite():
    import ignite.distributed as idist
    idist.initialize("gloo")
    return idist.get_rank(), idist.get_world_size(), None, master()


def mpi4py():
    from mpi4py import MPI
    return MPI.COMM_WORLD.Get_rank(), MPI.COMM_WORLD.Get_size(), None, None


def horovod():
    import horovod.torch as hvd
    hvd.init()
    if "pairs" in words:
        from horovod.runner.common.util.env import get_env_rank_and_size
        get_env_rank_and_size()
    return hvd.rank(), hvd.size(), None, None


def first_worker(resolver):
    cluster = resolver.cluster_spec().as_dict()
    return cluster["worker"][0] if cluster else None


def tensorflow():
    import tensorflow as tf
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    resolver = strategy.cluster_resolver
    return resolver.task_id or 0, strategy.num_replicas_in_sync, type(resolver).__name__, first_worker(resolver)


def keras():
    import tensorflow as tf
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
        model.compile(optimizer="sgd", loss="mse")
    data = tf.data.Dataset.from_tensor_slices((tf.ones((8, 3)), tf.ones((8, 1)))).batch(4)
    model.fit(data, epochs=1, verbose=0)
    resolver = strategy.cluster_resolver
    return resolver.task_id or 0, strategy.num_replicas_in_sync, type(resolver).__name__, first_worker(resolver)


def jax():
    import jax as framework
    import numpy
    framework.distributed.initialize()
    from jax.experimental import multihost_utils
    multihost_utils.process_allgather(numpy.array([1]))
    from jax._src.distributed import global_state
    return framework.process_index(), framework.process_count(), None, global_state.coordinator_address


try:
    rank, size, environment, met = globals()[framework]()
    line = "observed: " + json.dumps({"rank": rank, "size": size, "environment": environment, "master": met}) + "\n"
    os.write(1, line.encode())
    status = 0
except BaseException:
    os.write(2, traceback.format_exc().encode())
    status = 1
# The others may still need what this process serves; and PyTorch's shutdown may abort after all is done.
if status == 0 and framework in ("torch", "lightning", "accelerate", "deepspeed", "ignite", "transformers"):
    import torch.distributed as dist
    if dist.is_initialized():
        dist.barrier()
if framework in ("mpi4py", "horovod", "jax", "tensorflow", "keras"):
    sys.exit(status)
os._exit(status)
