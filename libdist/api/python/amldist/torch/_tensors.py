"""Tensors as libdist takes them: what is refused, host memory for those on a device, one buffer for a list."""

from __future__ import annotations

import ctypes
from typing import Any, Callable, List, Optional, Sequence, Tuple

import torch
import torch.distributed as dist

Tensor = torch.Tensor


class RefusedCall(ValueError, RuntimeError):
    """A call that cannot be right. PyTorch's own functions raise ValueError for such, its back ends RuntimeError."""


def refuse(operation: str, what: str) -> RefusedCall:
    return RefusedCall(f"amldist: {operation}: {what}")


def shown(tensor: Tensor) -> str:
    return f"a tensor of {str(tensor.dtype).rpartition('.')[2]} and shape {list(tensor.shape)}"


def check(tensor: Tensor, operation: str) -> None:
    if tensor.layout is not torch.strided:
        raise refuse(operation, f"sparse tensors are not taken here ({tensor.layout}): pass tensor.to_dense()")
    if tensor.device.type not in ("cpu", "cuda"):
        raise refuse(operation, f"{shown(tensor)} lies on {tensor.device}: only cpu and cuda can be used")


def only_one(tensors: Sequence[Tensor], operation: str, what: str) -> Tensor:
    """The tensor of a list of one."""
    if len(tensors) != 1:
        raise refuse(operation, f"{len(tensors)} {what}s were given: one for each rank is taken")
    check(tensors[0], operation)
    return tensors[0]


def check_alike(tensors: Sequence[Tensor], operation: str) -> None:
    """Of a rank that gives several tensors."""
    for tensor in tensors:
        check(tensor, operation)
        if (tensor.dtype, tensor.shape, tensor.device.type) != (tensors[0].dtype, tensors[0].shape, "cpu"):
            raise refuse(operation, "several tensors must lie on the cpu and have the same type and shape")


def check_root_tensor(tensors: Sequence[Tensor], opts: Any, operation: str) -> None:
    """Options name one of the root's tensors: 0, but for those who give several."""
    if opts.rootTensor not in range(len(tensors)):
        raise refuse(operation, f"the options name tensor {opts.rootTensor}, and {len(tensors)} were given")


def is_whole(tensor: Tensor) -> bool:
    """Its elements fill a piece of memory without gaps, in whatever order."""
    return tensor.is_contiguous() or torch.ops.aten.is_non_overlapping_and_dense(tensor)


def is_lazy(tensor: Tensor) -> bool:
    """Its memory holds other numbers than it shows: conjugated or negated when it is read."""
    return tensor.is_conj() or tensor.is_neg()


def resolved(tensor: Tensor) -> Tensor:
    """The same numbers in memory."""
    return tensor.resolve_conj().resolve_neg()


def as_real(tensor: Tensor, opts: Any) -> Tensor:
    """Complex numbers are added, and divided by the number of ranks, part by part. With another operator they stay what
    they are, and are refused."""
    adds = getattr(opts.reduceOp, "op", opts.reduceOp) in (dist.ReduceOp.SUM, dist.ReduceOp.AVG)
    return torch.view_as_real(tensor.detach()) if tensor.is_complex() and adds else tensor


def overwriting(tensor: Tensor) -> Any:
    """A context in which results may be copied to a tensor, on any thread."""
    return torch.inference_mode() if tensor.is_inference() else torch.no_grad()


class OnHost:
    """Where a call's data lie for the library: in host memory. What it reads of CUDA tensors is copied there, what it
    writes is copied back."""

    def __init__(self, device: Optional[torch.device] = None) -> None:
        """``device``: the GPU of the call's tensors, if they are on one."""
        self._device = device
        self._back: List[Tuple[Tensor, Tensor]] = []

    def read(self, tensor: Tensor) -> Tensor:
        return tensor.cpu() if tensor.device.type == "cuda" else tensor

    def write(self, tensor: Tensor) -> Tensor:
        if tensor.device.type != "cuda":
            return tensor
        host = torch.empty_like(tensor, device="cpu")
        self._back.append((tensor, host))
        return host

    def both(self, tensor: Tensor) -> Tensor:
        host = self.read(tensor)
        if host is not tensor:
            self._back.append((tensor, host))
        return host

    def join(self, tensors: Sequence[Tensor]) -> Tensor:
        """A copy of tensors, one after the other."""
        return torch.cat([self.read(tensor.detach().reshape(-1)) for tensor in tensors])

    def empty(self, count: int, dtype: torch.dtype) -> Tensor:
        return torch.empty(count, dtype=dtype)

    def finish(self, after: Optional[Callable[[], object]] = None) -> Optional[Callable[[], object]]:
        """What is left to do when the library is done."""
        if self._device is None:
            return after

        def copy_back() -> None:
            if after is not None:
                after()
            for tensor, host in self._back:
                with overwriting(tensor):
                    tensor.copy_(host)
            torch.cuda.current_stream(self._device).synchronize()  # another thread's stream than the caller's, perhaps

        return copy_back


def lists(counts: List[int]) -> Tuple[Any, Any]:
    """Counts, and where each part begins when they lie one after the other."""
    offsets, total = [], 0
    for count in counts:
        offsets.append(total)
        total += count
    array = ctypes.c_size_t * len(counts)
    return array(*counts), array(*offsets)


def copied_to(source: Tensor, tensors: Sequence[Tensor]) -> Callable[[], object]:
    """What copies one tensor to all of the others."""

    def copy() -> None:
        for tensor in tensors:
            with overwriting(tensor):
                tensor.copy_(source)

    return copy


def spread(flat: Tensor, parts: Sequence[Tensor]) -> Callable[[], object]:
    """Copies one buffer into tensors, one after the other."""

    def copy() -> None:
        offset = 0
        for part in parts:
            with overwriting(part):
                part.copy_(flat[offset : offset + part.numel()].view(part.shape))
            offset += part.numel()

    return copy
