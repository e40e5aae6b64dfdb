"""Where the data of a call is for the library: the interface that _calls.py uses, and its implementation for the host."""

from __future__ import annotations

import ctypes
from typing import Any, Callable, List, Optional, Sequence, Tuple

import torch
from amldist.torch._failures import refuse

Tensor = torch.Tensor
After = Optional[Callable[[], object]]


def shown(tensor: Tensor) -> str:
    return f"a tensor of {str(tensor.dtype).rpartition('.')[2]} and shape {list(tensor.shape)}"


def check(operation: str, *tensors: Tensor) -> None:
    for tensor in tensors:
        if tensor.layout is not torch.strided:
            raise refuse(operation, f"sparse tensors are not accepted here ({tensor.layout}): pass tensor.to_dense()")
        if not tensor.is_cpu and not tensor.is_cuda:
            raise refuse(operation, f"{shown(tensor)} lies on {tensor.device}: use cpu or cuda")


def _is_lazy(tensor: Tensor) -> bool:
    """Its memory holds other numbers than it shows: conjugated or negated when it is read."""
    return tensor.is_conj() or tensor.is_neg()


def _is_plain(tensor: Tensor) -> bool:
    return tensor.is_contiguous() and not _is_lazy(tensor)


def _is_whole(tensor: Tensor) -> bool:
    """Its elements fill a piece of memory without gaps, in whatever order."""
    return torch.ops.aten.is_non_overlapping_and_dense(tensor) and not _is_lazy(tensor)


def overwriting(tensor: Tensor) -> Any:
    """A context in which results may be copied to a tensor, on any thread."""
    return torch.inference_mode() if tensor.is_inference() else torch.no_grad()


def lists(counts: List[int]) -> Tuple[Any, Any]:
    """Counts, and where each part begins if they are adjacent."""
    offsets, total = [], 0
    for count in counts:
        offsets.append(total)
        total += count
    array = ctypes.c_size_t * len(counts)
    return array(*counts), array(*offsets)


def _as_one(parts: Sequence[Tensor]) -> Optional[Tensor]:
    """Adjacent parts of one tensor as one; None if they are not adjacent."""
    first, end = parts[0], parts[0].data_ptr()
    for part in parts:
        if part.data_ptr() != end or not _is_plain(part):
            return None
        end += part.nbytes
    storage = first.untyped_storage()
    if end > storage.data_ptr() + storage.nbytes():
        return None
    return first.detach().as_strided((sum(part.numel() for part in parts),), (1,))


class Place:
    """The data of one call. `read`, `write` and `change` give memory that the library can use for a tensor, `join` and
    `split` one piece of memory for several; the tensors themselves where that is possible. `after` is what copies results back."""

    _back: Sequence[Tuple[Tensor, Sequence[Tensor]]] = ()  #: what is copied back, and to which tensors

    def __init__(self, operation: str) -> None:
        self._operation = operation

    def has(self, tensor: Tensor) -> bool:
        """Whether the library can use a tensor's memory."""
        raise NotImplementedError

    def moved(self, tensor: Tensor) -> Tensor:
        """A copy of a tensor where the library can use it."""
        raise NotImplementedError

    def empty(self, count: int, dtype: torch.dtype) -> Tensor:
        raise NotImplementedError

    def run(self, name: str, arguments: Tuple[Any, ...], outputs: Any, keep: Any, waits: bool) -> Any:
        """Makes the call; its work. ``waits``: the caller will wait at once. The group's lock is held."""
        raise NotImplementedError

    def read(self, tensor: Tensor) -> Tensor:
        if not _is_plain(tensor):
            tensor = tensor.detach().resolve_conj().resolve_neg().contiguous()
        return tensor if self.has(tensor) else self.moved(tensor)

    def change(self, tensor: Tensor, in_order: bool = False) -> Tensor:
        """For a tensor that is read and written, whose elements may lie in any order; ``in_order``: other ranks read() theirs."""
        if self.has(tensor) and (_is_plain(tensor) or not in_order and _is_whole(tensor)):
            return tensor
        self._check_writable([tensor])
        data = self.read(tensor)
        return self._bring_back(data.clone() if data is tensor else data, [tensor])

    def write(self, tensor: Tensor) -> Tensor:
        if self.has(tensor) and _is_plain(tensor):
            return tensor
        self._check_writable([tensor])
        return self._bring_back(self.empty(tensor.numel(), tensor.dtype), [tensor])

    def join(self, parts: Sequence[Tensor], changes: bool = False) -> Tensor:
        """For tensors that are read; ``changes``: and written."""
        one = _as_one(parts) if self.has(parts[0]) else None
        if one is not None:
            return one
        if changes:
            self._check_writable(parts)
        data = torch.cat([self.read(part).reshape(-1) for part in parts])
        return self._bring_back(data, parts) if changes else data

    def split(self, parts: Sequence[Tensor]) -> Tensor:
        """For tensors that are written."""
        one = _as_one(parts) if self.has(parts[0]) else None
        if one is not None:
            return one
        self._check_writable(parts)
        return self._bring_back(self.empty(sum(part.numel() for part in parts), parts[0].dtype), parts)

    def copy_to(self, data: Tensor, tensors: Sequence[Tensor]) -> None:
        """Copies a result to each of several tensors."""
        self._check_writable(tensors)
        self._back = [*self._back, *((data, [tensor]) for tensor in tensors)]

    def _check_writable(self, tensors: Sequence[Tensor]) -> None:
        for tensor in tensors:
            if any(extent > 1 and stride == 0 for extent, stride in zip(tensor.shape, tensor.stride())):
                raise refuse(
                    self._operation, f"{shown(tensor)} shows one element in several places and cannot be written: pass tensor.clone()"
                )

    def _bring_back(self, data: Tensor, parts: Sequence[Tensor]) -> Tensor:
        self._back = [*self._back, (data, parts)]
        return data

    @property
    def after(self) -> After:
        return self._copy_back if self._back else None

    def _copy_back(self) -> None:
        for data, parts in self._back:
            flat, offset = data.reshape(-1), 0
            for part in parts:
                with overwriting(part):
                    part.copy_(flat[offset : offset + part.numel()].view(part.shape))
                offset += part.numel()
