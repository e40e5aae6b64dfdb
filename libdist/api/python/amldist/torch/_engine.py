"""The world of a process group: how a call is made in it, its deadlines, and its end."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import resource
import threading
import time
import weakref
from datetime import timedelta
from typing import Any, Iterator, List, Optional, Protocol, Sequence, Set, Tuple

import torch
import torch.distributed as dist
from amldist import _errors, _interrupt, _library
from amldist._library import lib
from amldist._request import Request
from amldist._world import init
from amldist.torch._failures import BackendError, Members
from amldist.torch._gpu import Gpu, GpuWork, OnGpu, is_wanted, open_gpu, same_device
from amldist.torch._place import After, Place, Tensor
from amldist.torch._waiter import Waiter, helpers, is_threaded, works_with_futures
from amldist.torch._work import DoneWork, JoinedWork, PendingWork

_DESCRIPTORS = 16
_EXIT_S = 2.0  #: at the end of the process, for ranks that have not ended their groups
NO_TIMEOUT = timedelta(0)
_LONGEST_S = 2147483.0  #: 24 days
_NAMES = "allreduce reduce broadcast allgather allgatherv reduce_scatter reduce_scatterv alltoallv gather scatter barrier".split()
_MESSAGES = ["send_tagged", "recv_tagged"]
_BLOCKING = {name: getattr(lib, "amldist_" + name) for name in _NAMES + _MESSAGES}
_STARTING = {name: getattr(lib, "amldist_i" + name) for name in _NAMES + _MESSAGES}

#: Worlds that are still being finalized, for the end of the process.
_finalizers: Set[threading.Thread] = set()


def _wait_for_finalizers() -> None:
    deadline = time.monotonic() + _EXIT_S
    for thread in list(_finalizers):
        thread.join(max(0.0, deadline - time.monotonic()))


atexit.register(_wait_for_finalizers)


def seconds(timeout: timedelta) -> float:
    """A time limit as the library takes it. Programs that never want to time out ask for years."""
    return min(timeout.total_seconds(), _LONGEST_S)


@contextlib.contextmanager
def _asking_store() -> Iterator[None]:
    """Explains the error of a store that does not answer."""
    try:
        yield
    except dist.DistStoreError:  # no answer before the deadline
        raise
    except RuntimeError as error:
        cause = str(error).partition("\n")[0]
        raise BackendError(
            f"amldist: the store through which the group's ranks find each other does not answer ({cause}): does the process that "
            "holds it still run? It is rank 0's, or torchrun's"
        ) from error


def _check_descriptors() -> None:
    """A group that can open no file waits for the other ranks until its timeout. Errors: BackendError."""
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)  # the library raises the soft limit to the hard one
    try:
        lowest = os.open(os.devnull, os.O_RDONLY)
        os.close(lowest)
    except OSError:  # none is left
        lowest = allowed
    if most != resource.RLIM_INFINITY and lowest + _DESCRIPTORS > most:
        raise BackendError(
            f"amldist: this process may open {most} files (ulimit -Hn) and has {lowest} open, and a group takes up to {_DESCRIPTORS}: "
            "raise the limit, or destroy groups that are not used any more"
        )


class _TorchStore:
    """Adapts a process group's store to the package's interface. What rank 0 writes begins with its release of the library."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._keys: List[str] = []
        self._release = _library.version()

    def set(self, key: str, value: bytes) -> None:
        self._keys.append(key)
        with _asking_store():
            self._store.set(key, self._release.encode() + b" " + value)
            self._store.get(key)  # set() alone does not notice that the server is gone

    def clear(self) -> None:
        """Takes back what was set, when the world is made or will not be. A store may outlive its processes, as torchrun's
        does: those that come next under this name would first look for a rank 0 that is gone."""
        for key in self._keys:
            with contextlib.suppress(RuntimeError):  # the store is gone, or does not support it
                self._store.delete_key(key)

    def get(self, key: str, timeout: float) -> bytes:
        with _asking_store():
            self._store.wait([key], timedelta(seconds=max(timeout, 0.001)))
            release, _, value = bytes(self._store.get(key)).partition(b" ")
        if release.decode(errors="replace") != self._release:
            raise BackendError(
                f"amldist: rank 0 uses libamldist {release.decode(errors='replace')}, this rank {self._release} ({_library.path}): "
                "install one release for all ranks"
            )
        return value


class MemoryLender(Protocol):
    """An object that has lent library memory to PyTorch."""

    def leave(self, frees: bool) -> None:
        """Moves PyTorch's data out of library memory, which is about to be freed."""


class OnHost(Place):
    """In host memory. Tensors on a GPU are copied there and back."""

    def __init__(self, engine: Engine, operation: str, device: Optional[torch.device] = None) -> None:
        """``device``: the GPU of the call's tensors, if they are on one."""
        self._operation, self._engine, self._device = operation, engine, device

    def has(self, tensor: Tensor) -> bool:
        return tensor.is_cpu

    def moved(self, tensor: Tensor) -> Tensor:
        return tensor.cpu()

    def empty(self, count: int, dtype: torch.dtype) -> Tensor:
        return torch.empty(count, dtype=dtype)

    def run(self, name: str, arguments: Tuple[Any, ...], outputs: Any, keep: Any, waits: bool) -> Any:
        engine = self._engine
        if not waits or is_threaded():  # another thread's call may have to come before this one ends
            return engine.begin(name, arguments, outputs, (keep, self), self.after)
        return engine.make(name, arguments, self.after)

    def _copy_back(self) -> None:
        super()._copy_back()
        if self._device is not None:
            torch.cuda.current_stream(self._device).synchronize()  # another thread's stream than the caller's, perhaps


class Engine:
    """One process group: its world in libdist, and what all of its calls share."""

    def __init__(
        self, store: Any, rank: int, size: int, timeout: timedelta, name: str, label: str = "", ranks: Sequence[int] = ()
    ) -> None:
        """``label``: what people call the group; ``ranks``: the program's numbers of its ranks, if they are others."""
        self.rank, self.size, self.ranks = rank, size, list(ranks) or list(range(size))
        self.members = Members(self.ranks, label)
        self.store = store
        self.timeout = self._deadline = timeout
        _check_descriptors()
        told = _TorchStore(store)
        try:
            self.comm = init(
                seconds(timeout), rank=rank, size=size, store=told, name=name[-120:] or None, label=label or None
            )
        except _errors.Error as error:
            raise self.members.error(error) from error
        except dist.DistStoreError as error:
            first = self.members.renumbered("rank 0")
            raise BackendError(
                f"amldist: {first} did not join the group within {timeout.total_seconds():g} s: all of its ranks have to call "
                "new_group() or init_process_group(), in the same order"
            ) from error
        finally:
            told.clear()
        self.handle = self.comm._handle
        self._lock = threading.RLock()
        self._first_end = threading.Lock()
        self.waiter = Waiter()
        self.pending: Set[PendingWork] = set()
        self.done = DoneWork()
        self._coalesced: Optional[List[Any]] = None
        self._gpu: Optional[Gpu] = None
        self._has_looked_for_gpu = False
        self.calls = 0
        self.lenders: "weakref.WeakSet[MemoryLender]" = weakref.WeakSet()

    # ---- how a call is made ----

    @property
    def limit_s(self) -> float:
        return seconds(self._deadline)

    def use_deadline(self, timeout: Optional[timedelta]) -> None:
        """Deadline of the next calls; None or 0: the group's own. Errors: BackendError for a group that was destroyed, or is
        another process's."""
        if self.handle is None:
            raise BackendError("amldist: the process group was destroyed: calls can no longer be made on it")
        wanted = self.timeout if timeout is None or timeout <= NO_TIMEOUT else timeout
        if wanted != self._deadline:
            try:
                self.comm.set_timeout(seconds(wanted))
            except _errors.Error as error:
                raise self.members.error(error) from error
            self._deadline = wanted
            if self._gpu is not None:
                self._gpu.set_timeout(seconds(wanted))

    @contextlib.contextmanager
    def deadline(self, limit_s: float) -> Iterator[None]:
        """Deadline of messages that begin in this context."""
        outer, self.timeout = self.timeout, timedelta(seconds=limit_s)
        try:
            yield
        finally:
            self.timeout = outer

    def run(self, name: str, arguments: Tuple[Any, ...], opts: Any, outputs: Any, keep: Any, place: Place) -> Any:
        """One collective. If the caller waits anyway, it runs in the caller's thread, or on its stream."""
        if works_with_futures:
            self.waiter.keep_order()
        with self._lock:
            self.calls += 1
            self.use_deadline(opts.timeout)
            waits = self._coalesced is None and not getattr(opts, "asyncOp", True)
            work = place.run(name, arguments, outputs, keep, waits)
            if self._coalesced is not None:
                self._coalesced.append(work)
        if waits and isinstance(work, PendingWork):
            work.wait()
            return self.done
        return work

    def message(
        self, name: str, arguments: Tuple[Any, ...], outputs: Any, keep: Any, after: After = None, source: Any = None, waits: bool = False
    ) -> Any:
        """A send or receive. ``waits``: the caller will wait at once."""
        with self._lock:
            self.use_deadline(None)
            if waits and self._coalesced is None and not is_threaded():
                return self.make(name, arguments, after)
            work = self.begin(name, arguments, outputs, keep, after, source)
            if self._coalesced is not None:
                self._coalesced.append(work)
            return work

    def make(self, name: str, arguments: Tuple[Any, ...], after: After) -> DoneWork:
        """A call in the caller's thread."""
        status = _BLOCKING[name](self.handle, *arguments)
        if status < 0:
            raise self.error(status)
        if after is not None:
            after()
        return self.done

    def begin(self, name: str, arguments: Tuple[Any, ...], outputs: Any, keep: Any, after: After, source: Any = None) -> PendingWork:
        handle = ctypes.c_void_p()
        status = _STARTING[name](self.handle, *arguments, ctypes.byref(handle))
        if status < 0:
            raise self.error(status)
        if len(self.pending) >= 32:
            for work in list(self.pending):
                work.is_completed()  # which removes it
        work = PendingWork(self, Request(handle.value or 0, None, keep, lambda request: None), outputs, after, source)
        self.pending.add(work)  # no caller has to wait for it
        return work

    def error(self, status: int) -> Exception:
        """The error of the library's last call in this thread."""
        _interrupt.check()
        return self.members.error(_errors.last_error(status), self.limit_s)

    # ---- GPUs ----

    def open_gpu(self, device: torch.device) -> None:
        """Makes the part for the process's GPU; collective, the first time. Later calls do nothing."""
        with self._lock:
            if self._has_looked_for_gpu:
                return
            self._has_looked_for_gpu = True
            if is_wanted(device):
                self._gpu = open_gpu(self.handle, self.rank, device, self.limit_s, self.members)

    def place(self, operation: str, tensor: Tensor, reduction: Optional[Tuple[int, int]] = None) -> Place:
        """For a call on such a tensor; ``reduction``: type and operator. The same on all ranks."""
        if tensor.is_cpu:
            return OnHost(self, operation)
        device = tensor.device
        self.open_gpu(device)
        if self._gpu is None:
            return OnHost(self, operation, device)
        same_device(self._gpu, tensor, operation)
        return OnGpu(self._gpu, operation) if self._gpu.takes(reduction) else OnHost(self, operation, device)

    def drain(self) -> None:
        """Waits until the GPU has done this group's calls."""
        if self._gpu is not None:
            self._gpu.drain()

    # ---- several calls as one ----

    def joined(self, works: List[Any], outputs: Any) -> Any:
        """The works of several calls as one."""
        if all(work is self.done for work in works):
            return self.done
        if all(isinstance(work, GpuWork) for work in works):
            return works[-1].followed(outputs)  # a stream keeps their order
        return JoinedWork(self, works, outputs)

    def start_coalescing(self) -> None:
        self._coalesced = []

    def end_coalescing(self) -> Any:
        works, self._coalesced = self._coalesced or [], None
        return self.joined(works, [])

    # ---- life ----

    def wait_for_all(self) -> None:
        """Waits until all calls that were begun have ended."""
        for work in list(self.pending):
            work.finish()
        self.drain()

    def abort(self) -> None:
        self.comm.abort()
        if self._gpu is not None:
            self._gpu.abort()

    def shutdown(self) -> None:
        """Ends the world without waiting for the ranks that still use it: in which order groups are destroyed is each
        rank's own business. The end of the process waits for them, at most two seconds."""
        comm = self.comm
        if comm._handle is None or not self._first_end.acquire(blocking=False):
            return
        for lender in list(self.lenders):
            lender.leave(frees=False)
        with self._lock:  # a call of another thread is in `pending`, or is refused
            self.handle = None
            pending, self.pending = list(self.pending), set()
        gpu, self._gpu = self._gpu, None
        unreported = None if gpu is None else gpu.unreported()
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
            helpers.discard(thread)

        thread = threading.Thread(target=finalize, name="amldist-finalize", daemon=True)
        _finalizers.add(thread)
        helpers.add(thread)
        thread.start()
        if unreported is not None:
            raise unreported
