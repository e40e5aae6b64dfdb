"""DistributedDataParallel's gradients in memory that the ranks of a node share: a communication hook."""

from __future__ import annotations

from typing import Any, Dict, Tuple

import torch
import torch.distributed as dist
from amldist._communicator import Communicator
from torch._C._distributed_c10d import GradBucket


class Buckets:
    """The hook of one model. A bucket is copied into library memory, where all ranks add it up in place with two waits;
    DistributedDataParallel takes the averages from there. Without this, the ranks of a node pass a bucket through
    small buffers, piece by piece.

    The memory is kept for the next step: as much as the model has gradients. It lives as long as the group.
    """

    def __init__(self, group: dist.ProcessGroup, comm: Communicator) -> None:
        self._group = group
        self._comm = comm
        self._memory: Dict[int, Tuple[torch.Tensor, Any]] = {}  # with what the tensor is a view of

    def reduce(self, bucket: GradBucket) -> "torch.futures.Future[torch.Tensor]":
        given = bucket.buffer()
        shared = given
        if given.device.type == "cpu" and given.layout is torch.strided:
            shared = self._shared(bucket.index(), given).copy_(given)
        work = dist.all_reduce(shared, dist.ReduceOp.AVG, group=self._group, async_op=True)
        return work.get_future().then(lambda future: future.value()[0])

    def _shared(self, index: int, like: torch.Tensor) -> torch.Tensor:
        """Library memory for a bucket. DistributedDataParallel cuts its buckets anew after the first step; then nothing
        uses the old ones."""
        if index in self._memory:
            kept, raw = self._memory[index]
            if kept.dtype == like.dtype and kept.numel() == like.numel():
                return kept
            del self._memory[index]
            self._comm.free(raw)
        raw = self._comm.allocate(like.numel() * like.element_size(), "uint8")
        made = torch.frombuffer(raw, dtype=torch.uint8).view(like.dtype)
        self._memory[index] = made, raw
        return made


def use_library_memory(model: "torch.nn.parallel.DistributedDataParallel") -> None:
    """Reduces the gradients of a model in memory that the ranks of a node share, which saves time at each step where
    gradients are in host memory. Call it on all ranks, after the model was wrapped and before its first step. It costs
    as much memory as the gradients, and one copy of them a step.

    Errors: ValueError if the model's group is not libdist's; RuntimeError if the model has a hook already. A step raises
    MemoryError if that memory cannot be had.
    """
    group = model.process_group
    engine = getattr(group, "engine", None)
    if engine is None:
        raise ValueError(f"amldist: the model's group is one of {dist.get_backend(group)}: make it with the back end amldist")
    buckets = Buckets(group, engine.comm)

    def hook(_state: object, bucket: GradBucket) -> "torch.futures.Future[torch.Tensor]":
        return buckets.reduce(bucket)

    hook.__annotations__.clear()  # PyTorch compares them with its types, and here they are text
    model.register_comm_hook(None, hook)
