"""Joining a world."""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any, Callable, Optional, Protocol

from amldist import _errors, _interrupt
from amldist._communicator import Communicator, int32, milliseconds
from amldist._library import ConfigStruct, IdentityStruct, StoreGet, StoreSet, StoreStruct, lib


def stop_requested() -> bool:
    """Whether this process has heard that the step should stop. Only Communicator.should_stop() is the same on all ranks."""
    return bool(lib.amldist_stop_requested())


class Store(Protocol):
    """A key-value store that all ranks of a world reach. Called by one thread, only while the world is being made."""

    def set(self, key: str, value: bytes) -> object:
        """Stores a value."""

    def get(self, key: str, timeout: float) -> bytes:
        """Waits at most ``timeout`` seconds until the key has a value, and returns it."""


class _StoreBridge:
    """A store as the library calls it. Keeps the first exception that the store raised before it had the value: the library
    asks again if no process answers at the address that it got, and then that is the error."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.error: Optional[BaseException] = None
        self._has_found = False
        self._set, self._get = StoreSet(self._on_set), StoreGet(self._on_get)
        self.struct = StoreStruct(ctypes.sizeof(StoreStruct), None, self._set, self._get)

    def _keep(self, error: BaseException) -> int:
        self.error = self.error or (None if self._has_found else error)
        return -1

    def _on_set(self, _context: Any, key: bytes, value: Any, length: int) -> int:
        try:
            self._store.set(key.decode(), ctypes.string_at(value, length))
            return 0
        except BaseException as error:  # noqa: B036 - it must not go through the library
            return self._keep(error)

    def _on_get(self, _context: Any, key: bytes, value: Any, capacity: int, length: Any, timeout_ms: int) -> int:
        try:
            found = bytes(self._store.get(key.decode(), timeout_ms / 1000))
            if len(found) > capacity:
                raise ValueError(f"the store's value of {key.decode()} has {len(found)} bytes: at most {capacity} fit")
            ctypes.memmove(value, found, len(found))
            length[0] = len(found)
            self._has_found = True
            return 0
        except BaseException as error:  # noqa: B036
            return self._keep(error)


def _needs_this_thread() -> bool:
    """MPI may allow its calls in one thread only."""
    by_mpi = "mpi" in (os.environ.get("AMLDIST_BOOTSTRAP"), os.environ.get("AMLDIST_TRANSPORT"))
    return by_mpi or "mpi4py.MPI" in sys.modules


def _join(call: Callable[[Any], int]) -> int:
    """Makes a world in a thread of its own, so that Ctrl-C ends the waiting; its handle."""
    handle = ctypes.c_void_p()
    error: Optional[Exception] = None

    def work() -> int:
        nonlocal error
        status = call(ctypes.byref(handle))
        error = _errors.last_error(status) if status < 0 else None  # it is told to the thread of the call
        return status

    def leave() -> None:
        if handle.value:
            lib.amldist_abort(handle)
            lib.amldist_finalize(handle)

    if _needs_this_thread():
        work()
    else:
        _interrupt.apart(work, leave)
    if error is not None:
        raise error
    return handle.value or 0


def _encoded(value: Optional[str]) -> Optional[bytes]:
    return None if value is None else value.encode()


def init(
    timeout: Optional[float] = None,
    *,
    rank: Optional[int] = None,
    size: Optional[int] = None,
    address: Optional[str] = None,
    port: Optional[int] = None,
    secret: Optional[str] = None,
    store: Optional[Store] = None,
    name: Optional[str] = None,
    label: Optional[str] = None,
) -> Communicator:
    """Joins all processes of the step, and returns their communicator; collective.

    Without arguments the environment says who and where this process is: aml-dist's plugin, torchrun, mpirun, PMIx,
    Slurm. Outside any step the world is this process alone. ``timeout``, in seconds, limits this call and becomes the
    deadline of every later one (default: AMLDIST_TIMEOUT_MS, else 300 s).

    The other arguments describe a world instead: ``rank`` and ``size``, with ``address`` and ``port`` of rank 0 or a
    ``store`` by which the ranks find it, and a ``name`` that tells worlds apart. Then the process may be in several.
    ``label`` is what ``aml-dist trace`` calls the world. ``secret`` (at least 32 characters, the same on all ranks) keeps strangers out where the plugin does not.

    Errors: TimeoutError names the ranks that are missing; MismatchError, when two sources disagree about this process;
    Error, when rank 0 cannot be found or strangers cannot be kept out; ValueError for what cannot be right. What the
    store raises is raised.
    """
    limit = milliseconds(timeout)
    if all(given is None for given in (rank, size, address, port, secret, store, name, label)):
        return Communicator(_join(lambda world: lib.amldist_init(world, limit)))
    if (rank is None) != (size is None):
        raise ValueError("init: rank and size belong together: give both or neither")
    bridge = None if store is None else _StoreBridge(store)
    config = ConfigStruct(
        ctypes.sizeof(ConfigStruct),
        int32(rank or 0, "init: rank"),
        int32(size or 0, "init: size"),
        _encoded(address),
        int32(port or 0, "init: port"),
        _encoded(secret),
        ctypes.pointer(bridge.struct) if bridge else None,
        _encoded(name),
        _encoded(label),
    )
    try:
        handle = _join(lambda world: lib.amldist_init_config(world, ctypes.byref(config), limit))
    except _errors.Error as error:
        if bridge and bridge.error:
            raise bridge.error from error
        raise
    return Communicator(handle)


class Identity:
    """The numbers of this process in its step, all counted from 0 without gaps."""

    def __init__(self) -> None:
        """Reads the identity that the plugin gave. Errors: Error outside such a step, MismatchError when the variables
        contradict each other."""
        found = IdentityStruct(ctypes.sizeof(IdentityStruct))
        _errors.check(lib.amldist_get_identity(ctypes.byref(found)))
        self.rank: int = found.rank
        self.size: int = found.size
        self.local_rank: int = found.local_rank
        self.local_size: int = found.local_size
        self.node_rank: int = found.node_rank
        self.nodes: int = found.nodes
        self.master_port: int = found.master_port
