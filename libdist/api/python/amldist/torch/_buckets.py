"""DistributedDataParallel's gradients in memory that the ranks of a node share: a communication hook."""

from __future__ import annotations

import sys
from typing import Any, Dict, Tuple

import torch
import torch.distributed as dist
from amldist.torch._engine import Engine
from amldist.torch._work import PendingWork
from torch._C._distributed_c10d import GradBucket


def _can_move() -> bool:
    """Whether this PyTorch can exchange the memory of two storages so that all views of them see it. It has a method for
    that since 2.14 at the latest; the name is not public, so what it does is tried."""
    seen, other = torch.zeros(2)[1:], torch.ones(2)
    memory: Any = seen.untyped_storage()
    try:
        memory._swap_data_ptr_(other.untyped_storage())
    except (AttributeError, RuntimeError, TypeError):
        return False
    return bool(seen.item() == 1 and other[1].item() == 0)


CAN_MOVE = _can_move()


class Buckets:
    """The hook of one model. Its buckets lie in library memory, where all ranks add them up in place with two waits.
    Without this, the ranks of a node pass a bucket through small buffers, piece by piece.

    Each bucket moves there when it is first seen, and back into memory of PyTorch's before the library's goes away.
    Where PyTorch cannot do that, each step copies it to library memory, from where DistributedDataParallel takes the
    averages.
    """

    def __init__(self, group: dist.ProcessGroup, engine: Engine) -> None:
        self._group = group
        self._engine = engine
        #: For each bucket, by its number: the tensor in library memory, and the array to free.
        self._known: Dict[int, Tuple[torch.Tensor, Any]] = {}
        engine.lenders.add(self)

    def __del__(self) -> None:
        if hasattr(self, "_known") and not sys.is_finalizing():
            self.leave(frees=True)

    def reduce(self, bucket: GradBucket) -> "torch.futures.Future[torch.Tensor]":
        given = bucket.buffer()
        shared = given
        if given.device.type == "cpu" and given.layout is torch.strided:
            shared = self._moved(bucket.index(), given) if CAN_MOVE else self._copied(bucket.index(), given)
        work = dist.all_reduce(shared, dist.ReduceOp.AVG, group=self._group, async_op=True)
        if isinstance(work, PendingWork):
            return work.future_at_end_of_backward(shared)
        return work.get_future().then(lambda future: future.value()[0])

    def leave(self, frees: bool) -> None:
        """Moves all buckets into PyTorch's memory. ``frees``: no rank is in a call that uses the library's."""
        known, self._known = self._known, {}
        for tensor, raw in known.values():
            if CAN_MOVE:
                storage: Any = tensor.untyped_storage()
                storage._swap_data_ptr_(storage.clone())
            if frees and self._engine.comm._handle is not None:
                self._engine.comm.free(raw)

    def _moved(self, index: int, given: torch.Tensor) -> torch.Tensor:
        """A bucket, whose storage is in library memory afterwards."""
        if index in self._known:
            if self._known[index][0].data_ptr() == given.data_ptr():
                return given
            self.leave(frees=True)  # DistributedDataParallel has rebuilt its buckets, as it does after the first step
        storage: Any = given.untyped_storage()
        ours, raw = self._allocate(storage.nbytes())
        memory = ours.untyped_storage()
        memory.copy_(storage)
        storage._swap_data_ptr_(memory)
        self._known[index] = given, raw
        return given

    def _copied(self, index: int, given: torch.Tensor) -> torch.Tensor:
        kept, raw = self._known.get(index, (None, None))
        if kept is None or kept.dtype != given.dtype or kept.numel() != given.numel():
            if kept is not None:
                del self._known[index]
                self._engine.comm.free(raw)
            made, raw = self._allocate(given.numel() * given.element_size())
            kept = made.view(given.dtype)
            self._known[index] = kept, raw
        return kept.copy_(given)

    def _allocate(self, size: int) -> Tuple[torch.Tensor, Any]:
        raw = self._engine.comm.allocate(size, "uint8")
        return torch.frombuffer(raw, dtype=torch.uint8), raw


def use_library_memory(model: "torch.nn.parallel.DistributedDataParallel") -> None:
    """Reduces the gradients of a model in memory that the ranks of a node share, which saves time at each step where
    gradients are in host memory. Call it on all ranks, after the model was wrapped and before its first step.

    DistributedDataParallel's buckets themselves lie there until the group is destroyed. A child by fork() shares them:
    it may not write gradients. Where PyTorch cannot move them, it costs as much memory as the gradients, and one copy of
    them a step.

    Errors: ValueError if the model's group is not libdist's; RuntimeError if the model has a hook already. A step raises
    MemoryError if that memory is not available.
    """
    group = model.process_group
    engine = getattr(group, "engine", None)
    if engine is None:
        raise ValueError(f"amldist: the model's group has the back end {dist.get_backend(group)}: make it with the back end amldist")
    buckets = Buckets(group, engine)

    def hook(_state: object, bucket: GradBucket) -> "torch.futures.Future[torch.Tensor]":
        return buckets.reduce(bucket)

    hook.__annotations__.clear()  # PyTorch compares them with its types, and here they are text
    model.register_comm_hook(None, hook)
