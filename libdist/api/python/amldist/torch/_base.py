"""How each of torch.distributed's calls goes through libdist: its deadline, its Work, several as one; and a group's end."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import threading
import weakref
from datetime import timedelta
from typing import Any, Callable, Dict, List, Optional, Protocol, Sequence, Set, Tuple

import torch
import torch.distributed as dist
from amldist import _errors, _interrupt
from amldist._library import lib
from amldist._request import Request
from amldist._world import init
from amldist.torch._device import DeviceWork, Gpu, OnDevice, is_wanted, open_gpu, same_device
from amldist.torch._tensors import OnHost, check, is_lazy, is_whole, refuse, resolved, shown, spread
from amldist.torch._work import DoneWork, JoinedWork, KeptWork, PendingWork, Waiter, backend_error

Tensor = torch.Tensor
_Op = dist.ReduceOp

TYPES: Dict[torch.dtype, int] = {
    torch.int8: 0, torch.uint8: 1, torch.int32: 2, torch.int64: 4, torch.float16: 6, torch.float32: 7,
    torch.float64: 8, torch.bfloat16: 9, torch.int16: 10, torch.bool: 12,
}  # fmt: skip
for _name, _number in (("uint32", 3), ("uint64", 5), ("uint16", 11)):
    if hasattr(torch, _name):
        TYPES[getattr(torch, _name)] = _number
_UINT8 = 1
OPERATORS: Dict[Any, int] = {
    _Op.SUM: 0, _Op.PRODUCT: 1, _Op.MAX: 2, _Op.MIN: 3, _Op.AVG: 4, _Op.BAND: 5, _Op.BOR: 6, _Op.BXOR: 7,
}  # fmt: skip
_EXIT_S = 10.0
_RESOLVED = "tensor.resolve_conj().resolve_neg()"
NO_TIMEOUT = timedelta(0)

#: What is still being finalized, for the end of the process.
_finalizers: Set[threading.Thread] = set()


def _wait_for_finalizers() -> None:
    for thread in list(_finalizers):
        thread.join(_EXIT_S)


atexit.register(_wait_for_finalizers)


class _TorchStore:
    """A process group's store as the package's."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._keys: List[str] = []

    def set(self, key: str, value: bytes) -> None:
        self._store.set(key, value)
        self._keys.append(key)

    def clear(self) -> None:
        """Takes back what was set, when the world is made or will not be. A store may outlive its processes, as torchrun's
        does: those that come next under this name would first look for a rank 0 that is gone."""
        for key in self._keys:
            with contextlib.suppress(RuntimeError):  # the store is gone, or cannot do that
                self._store.delete_key(key)

    def get(self, key: str, timeout: float) -> bytes:
        self._store.wait([key], timedelta(seconds=max(timeout, 0.001)))
        return bytes(self._store.get(key))


class Guest(Protocol):
    """What has lent library memory to PyTorch."""

    def leave(self, frees: bool) -> None:
        """Takes PyTorch's data out of it, which is about to go away."""


class Group:
    """One process group: its world in libdist, and what all of its calls share."""

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta, name: str, label: str = "") -> None:
        self._timeout = timeout
        told = _TorchStore(store)
        try:
            self.comm = init(
                timeout.total_seconds(),
                rank=rank,
                size=size,
                store=told,
                name=name[-120:] or None,
                label=label or None,
            )
        except _errors.Error as error:
            raise backend_error(error) from error
        finally:
            told.clear()
        self.rank, self.size = rank, size
        self._handle = self.comm._handle
        self._deadline = self._unset = timeout
        self._lock = threading.RLock()
        self._waiter = Waiter()
        self._pending: Set[PendingWork] = set()
        self._coalesced: Optional[List[Any]] = None
        self._done = DoneWork()
        self._gpu: Optional[Gpu] = None
        self._has_looked_for_gpu = False
        self.calls = 0
        self.guests: "weakref.WeakSet[Guest]" = weakref.WeakSet()

    # ---- how a call goes ----

    def set_timeout(self, timeout: timedelta) -> None:
        self._unset = timeout

    def _use_deadline(self, timeout: Optional[timedelta]) -> None:
        wanted = self._unset if timeout is None or timeout <= NO_TIMEOUT else timeout  # -1 ms stands for the group's
        if wanted != self._deadline:
            self.comm.set_timeout(wanted.total_seconds())
            self._deadline = wanted
            if self._gpu is not None:
                self._gpu.set_timeout(wanted.total_seconds())

    def _deadline_of(self, opts: Any) -> None:
        self._use_deadline(opts.timeout)

    def _call(
        self,
        name: str,
        arguments: Tuple[Any, ...],
        opts: Any,
        outputs: Any,
        keep: Any,
        place: OnHost,
        after: Optional[Callable[[], object]] = None,
    ) -> Any:
        """One collective. A caller that waits anyway has it run in its own thread, or on its own stream."""
        after = place.finish(after)
        self._waiter.keep_order()
        with self._lock:
            self.calls += 1
            self._deadline_of(opts)
            if isinstance(place, OnDevice):
                waits = self._coalesced is None and not getattr(opts, "asyncOp", True)
                return self._kept(place.gpu.call(_BLOCKING[name], arguments, outputs, keep, after, waits))
            if self._coalesced is None and not getattr(opts, "asyncOp", True):
                status = _BLOCKING[name](self._handle, *arguments)
                if status < 0:
                    raise self._error(status)
                if after is not None:
                    after()
                return self._done
            return self._work([self._begin(name, arguments, keep)], outputs, after)

    def _error(self, status: int) -> Exception:
        _interrupt.check()
        return backend_error(_errors.last_error(status), self._deadline.total_seconds())

    def _begin(self, name: str, arguments: Tuple[Any, ...], keep: Any) -> Request:
        handle = ctypes.c_void_p()
        status = _STARTING[name](self._handle, *arguments, ctypes.byref(handle))
        if status < 0:
            raise self._error(status)
        return Request(handle.value or 0, None, keep, lambda request: None)

    def _work(
        self, requests: List[Request], outputs: Any, after: Optional[Callable[[], object]], source: Any = None
    ) -> PendingWork:
        self._reap()
        work = PendingWork(requests, outputs, after, self._waiter, source, self._deadline.total_seconds(), self._pending)
        self._pending.add(work)  # nobody has to wait for it
        self._kept(work)
        return work

    def _kept(self, work: Any) -> Any:
        """Notes a work that begins while several are joined."""
        if self._coalesced is not None:
            self._coalesced.append(work)
        return work

    def _reap(self) -> None:
        if len(self._pending) >= 32:
            for work in list(self._pending):
                work.is_completed()  # which takes it out

    def _operator(self, op: Any, operation: str) -> Tuple[int, Any]:
        """The operator's number, and the factor of PREMUL_SUM."""
        kind = getattr(op, "op", op)
        if kind == _Op.PREMUL_SUM:
            return 0, op.factor
        number = OPERATORS.get(kind)
        if number is None:
            raise refuse(operation, f"the operator {kind} is none of libdist's")
        return number, None

    def _type(self, tensor: Tensor, operation: str) -> int:
        """For a reduction. Moving data takes any type: _bytes()."""
        kind = TYPES.get(tensor.dtype)
        if kind is None:
            hint = ": pass torch.view_as_real(tensor)" if tensor.is_complex() else ""
            raise refuse(operation, f"{shown(tensor)} cannot be reduced{hint}")
        return kind

    @staticmethod
    def _moved(tensor: Tensor) -> Tuple[int, int]:
        """Count and type with which a tensor is moved: types that libdist has not go as bytes."""
        kind = TYPES.get(tensor.dtype)
        if kind is None:
            return tensor.numel() * tensor.element_size(), _UINT8
        return tensor.numel(), kind

    def _in_place(self, tensors: Sequence[Tensor], operation: str) -> Tensor:
        if len(tensors) != 1:
            raise refuse(operation, f"{len(tensors)} tensors were given: one for each rank is taken")
        tensor = tensors[0]
        self._check_whole(tensor, operation)
        if is_lazy(tensor):
            raise refuse(operation, f"{shown(tensor)} is a view that shows other numbers than its memory holds: pass {_RESOLVED}")
        return tensor

    def _check_whole(self, tensor: Tensor, operation: str) -> None:
        check(tensor, operation)
        if not is_whole(tensor):
            raise refuse(operation, f"{shown(tensor)} is not contiguous: pass tensor.contiguous()")

    def _in_rows(self, output: Tensor, source: Tensor, place: OnHost) -> Tuple[Tensor, Tensor, Optional[Callable[[], object]]]:
        """What the library reads and writes where data is cut along the first dimension, and what is then left to do. Unlike
        elsewhere, the order of a tensor's elements in memory matters."""
        given = place.read(resolved(source.detach()).contiguous())
        if output.is_contiguous() and not is_lazy(output):
            return given, place.write(output), None
        result = place.empty(output.numel(), output.dtype)
        return given, result, spread(result, [output])

    # ---- GPUs ----

    def open_gpu(self, device: torch.device) -> None:
        """Makes the part for the process's GPU; collective, the first time. A later call tells nothing new."""
        with self._lock:
            if self._has_looked_for_gpu:
                return
            self._has_looked_for_gpu = True
            if is_wanted(device):
                self._gpu = open_gpu(self._handle, self.rank, device, self._deadline.total_seconds())

    def _place(self, tensor: Tensor, operation: str, reduction: Optional[Tuple[int, int]] = None) -> OnHost:
        """Where a call on such a tensor finds its data; ``reduction``: type and operator. The same on all ranks."""
        device = tensor.device
        if device.type == "cpu":
            return OnHost()
        self.open_gpu(device)
        if self._gpu is None:
            return OnHost(device)
        same_device(self._gpu, tensor, operation)
        return OnDevice(self._gpu) if self._gpu.takes(reduction) else OnHost(device)

    def _drain(self) -> None:
        """Until the GPU has done this group's calls."""
        if self._gpu is not None:
            self._gpu.drain()

    # ---- several calls as one ----

    def _several(self, calls: List[Tuple[Callable[..., Any], Tuple[Any, ...]]], opts: Any, outputs: Any) -> Any:
        works = [function(*arguments, opts) for function, arguments in calls]
        if all(work is self._done for work in works):
            return self._done
        return self._of_each(self._joined(works, outputs), outputs)

    @staticmethod
    def _of_each(work: Any, tensors: Sequence[Any]) -> Any:
        """The work of a call on several tensors."""
        if isinstance(work, KeptWork):
            work.expect_waits(len(tensors))
        return work

    def _joined(self, works: List[Any], outputs: Any) -> Any:
        if works and all(isinstance(work, DeviceWork) for work in works):
            return works[-1].followed(outputs)  # a stream keeps their order
        return JoinedWork(works, outputs, self._waiter)

    def start_coalescing(self) -> None:
        self._coalesced = []

    def end_coalescing(self) -> Any:
        works, self._coalesced = self._coalesced or [], None
        return self._joined(list(works), [])

    # ---- life ----

    def abort(self) -> None:
        self.comm.abort()
        if self._gpu is not None:
            self._gpu.abort()

    def shutdown(self) -> None:
        """Ends the world without waiting for the ranks that still use it: in which order groups are destroyed is each
        rank's own business. The end of the process waits for them, at most ten seconds."""
        comm, self._handle = self.comm, None
        if comm._handle is None:
            return
        for guest in list(self.guests):
            guest.leave(frees=False)
        pending, self._pending = list(self._pending), set()
        gpu, self._gpu = self._gpu, None
        unheard = None if gpu is None else gpu.unheard()
        of_gpu = None if gpu is None else gpu.take()

        def finalize() -> None:
            for work in pending:
                work.finish()
            if of_gpu is not None:
                lib.amldist_finalize(of_gpu)
            handle, comm._handle = comm._handle, None
            if handle is not None:
                lib.amldist_finalize(handle)
            _finalizers.discard(thread)

        thread = threading.Thread(target=finalize, name="amldist-finalize", daemon=True)
        _finalizers.add(thread)
        thread.start()
        if unheard is not None:
            raise unheard


_NAMES = (
    "allreduce reduce broadcast allgather allgatherv reduce_scatter reduce_scatterv alltoall alltoallv gather scatter send recv barrier"
).split()
_BLOCKING = {name: getattr(lib, "amldist_" + name) for name in _NAMES}
_STARTING = {name: getattr(lib, "amldist_i" + name) for name in _NAMES}
_STARTING.update({name: getattr(lib, "amldist_i" + name) for name in ("send_tagged", "recv_tagged")})
