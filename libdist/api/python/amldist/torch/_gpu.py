"""Calls on CUDA tensors: enqueued on a stream by libdist's own communicator over NCCL, and watched there.

As with PyTorch's NCCL back end, a call that the program waits for at once goes onto its current stream, and another onto a
stream of the group's. wait() lets the current stream wait, not the program; the library's watchdog waits for the device.
When a rank is missing the stream becomes idle at the deadline, and the next call, wait() or barrier() raises the sentence.
"""

from __future__ import annotations

import ctypes
import os
import warnings
from datetime import timedelta
from typing import Any, Callable, List, Optional, Tuple

import torch
from amldist import _errors
from amldist._communicator import milliseconds
from amldist._errors import check
from amldist._library import lib
from amldist.torch._failures import Members, refuse
from amldist.torch._place import Place, Tensor
from amldist.torch._work import GroupWork, tensors_in

#: "host": CUDA tensors go through host memory. All ranks must have the same.
VARIABLE = "AMLDIST_TORCH_CUDA"
#: Operators that NCCL lacks: 16-bit integers, and bits of anything but bools
# (libdist/collective/gpu/nccl_backend.cpp).
_INT16, _UINT16, _BOOL = 10, 11, 12
_BITWISE, _BXOR = (5, 6, 7), 7


class Gpu:
    """A group's half on one GPU. Everything but ``failure`` and ``end`` is for one thread at a time."""

    def __init__(self, handle: int, device: torch.device, members: Members) -> None:
        self.device = device
        self._members = members
        self._handle: Optional[int] = handle
        self._stream: Optional[int] = -1  # none yet: 0 is the default stream
        self._side: Any = None
        self._is_reported = False
        self.limit_s = 0.0

    def takes(self, reduction: Optional[Tuple[int, int]]) -> bool:
        """Whether NCCL can combine this type with this operator; None: the data is only moved."""
        if reduction is None:
            return True
        kind, operator = reduction
        if kind in (_INT16, _UINT16):
            return False
        return operator != _BXOR if kind == _BOOL else operator not in _BITWISE

    def call(
        self,
        function: Callable[..., int],
        arguments: Tuple[Any, ...],
        outputs: Any,
        keep: Any,
        after: Optional[Callable[[], object]],
        waits: bool,
    ) -> GpuWork:
        """Enqueues a collective after the work on the current stream, and ``after`` after the collective."""
        current = torch.cuda.current_stream(self.device)
        stream = current
        if not waits:
            if self._side is None:
                make: Any = torch.cuda.Stream  # has no types
                self._side = make(self.device)
            stream = self._side
            stream.wait_stream(current)
        self._use(stream)
        status = function(self._handle, *arguments)
        if status < 0:
            raise self._error(status)
        with torch.cuda.stream(stream):
            if after is not None:
                after()
            event = None if waits else stream.record_event()
        if not waits:
            for tensor in tensors_in([outputs, keep]):
                if tensor.is_cuda:
                    tensor.record_stream(stream)
        return GpuWork(self, stream, event, outputs)

    def _use(self, stream: Any) -> None:
        if stream.cuda_stream != self._stream:
            check(lib.amldist_set_stream(self._handle, ctypes.c_void_p(stream.cuda_stream)))
            self._stream = stream.cuda_stream

    def set_timeout(self, limit_s: float) -> None:
        self.limit_s = limit_s
        if self._handle is not None:
            check(lib.amldist_set_timeout(self._handle, milliseconds(limit_s)))

    def _error(self, status: int) -> Exception:
        self._is_reported = True
        return self._members.error(_errors.last_error(status), self.limit_s)

    def failure(self) -> Optional[Exception]:
        """The failure that the watchdog or an earlier call found; None if there is no failure."""
        if self._handle is None:
            return None
        status = lib.amldist_health(self._handle)
        return self._error(status) if status < 0 else None

    def drain(self) -> None:
        """Waits until the device has done this group's calls. Errors: what the watchdog found meanwhile."""
        torch.cuda.current_stream(self.device).synchronize()
        if self._side is not None:
            self._side.synchronize()
        failed = self.failure()
        if failed is not None:
            raise failed

    def unreported(self) -> Optional[Exception]:
        """A failure that no call has raised yet."""
        return None if self._is_reported else self.failure()

    def abort(self) -> None:
        self._is_reported = True  # to the thread that aborts
        if self._handle is not None:
            lib.amldist_abort(self._handle)

    def take(self) -> Optional[int]:
        """The communicator, for its end."""
        handle, self._handle = self._handle, None
        return handle


class GpuWork(GroupWork):
    """A call that a stream has. ``event`` follows it; None: the call is on the stream that was current."""

    def __init__(self, gpu: Gpu, stream: Any, event: Optional[Any], outputs: Any) -> None:
        super().__init__(outputs)
        self._gpu, self._stream, self._event = gpu, stream, event

    def wait(self, timeout: Optional[timedelta] = None) -> bool:
        """Lets the current stream wait; with a time limit the caller, too."""
        self._wait_at_most(timeout)
        if self._event is not None:
            torch.cuda.current_stream(self._gpu.device).wait_event(self._event)
        self.let_go()
        failed = self._gpu.failure()
        if failed is not None:
            raise failed
        return True

    def followed(self, outputs: Any) -> GpuWork:
        """The last of several as all of them."""
        return GpuWork(self._gpu, self._stream, self._event, outputs)

    def is_completed(self) -> bool:
        return bool((self._stream if self._event is None else self._event).query())

    def exception(self) -> Optional[Exception]:
        return self._gpu.failure()

    def get_future(self) -> "torch.futures.Future[Any]":
        """Complete at once: a wait for it makes the stream wait."""
        future: "torch.futures.Future[Any]" = torch.futures.Future(devices=[self._gpu.device])
        with torch.cuda.stream(self._stream):
            future.set_result(self._outputs)
        return future


class OnGpu(Place):
    """CUDA tensors in place; lists of them as one buffer on the same device."""

    def __init__(self, gpu: Gpu, operation: str) -> None:
        super().__init__(operation)
        self._gpu = gpu

    def has(self, tensor: Tensor) -> bool:
        return True

    def empty(self, count: int, dtype: torch.dtype) -> Tensor:
        return torch.empty(count, dtype=dtype, device=self._gpu.device)

    def run(self, name: str, arguments: Tuple[Any, ...], outputs: Any, keep: Any, waits: bool) -> Any:
        return self._gpu.call(getattr(lib, "amldist_" + name), arguments, outputs, (keep, self._back), self.after, waits)


def is_wanted(device: torch.device) -> bool:
    """False for GPUs that CUDA does not know, and if the user wants the calls to go through host memory."""
    value = os.environ.get(VARIABLE, "")
    if value not in ("", "nccl", "host"):
        raise ValueError(f"amldist: {VARIABLE} is {value!r}: it must be nccl or host")
    return value != "host" and device.type == "cuda" and torch.version.hip is None


def open_gpu(world: Optional[int], rank: int, device: torch.device, limit_s: float, members: Members) -> Optional[Gpu]:
    """A communicator of the same ranks for their GPUs; collective. None, with a warning: NCCL cannot be used here, which
    all ranks find together. Errors: a rank is missing."""
    handle = ctypes.c_void_p()
    status = lib.amldist_split(world, 0, rank, ctypes.byref(handle))
    if status < 0:
        raise members.error(_errors.last_error(status), limit_s)
    gpu = Gpu(handle.value or 0, device, members)
    gpu.set_timeout(limit_s)
    with torch.cuda.device(device):
        probe = torch.zeros(1, dtype=torch.uint8, device=device)
        gpu._use(torch.cuda.current_stream(device))
        status = lib.amldist_allreduce(gpu._handle, probe.data_ptr(), probe.data_ptr(), 1, 1, 2)
    if status >= 0:
        return gpu
    error = gpu._error(status)
    lib.amldist_finalize(gpu.take())  # no rank has used it
    if status != _errors.EUNAVAILABLE:
        raise error
    warnings.warn(f"amldist: tensors on GPUs go through host memory: {error}", stacklevel=2)
    return None


def same_device(gpu: Gpu, tensor: Tensor, operation: str) -> None:
    if tensor.device != gpu.device:
        raise refuse(operation, f"this group's calls are on {gpu.device}, the tensor lies on {tensor.device}: a process uses one GPU for a group")
