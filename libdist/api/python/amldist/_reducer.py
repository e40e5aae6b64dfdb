"""Gradients all-reduced in buckets."""

from __future__ import annotations

import ctypes
from typing import Any, Optional, Protocol, Sequence

from amldist import _interrupt
from amldist._buffers import SIZES, TYPES, array_of, operator_of, type_of, whole_numbers
from amldist._errors import check, raise_last
from amldist._library import ReducerOptionsStruct, lib


class World(Protocol):
    """What a reducer needs from a communicator."""

    _handle: Optional[int]


class Reducer:
    """All-reduces many tensors in few calls, while others are still being computed.

    In each step call ready() for each tensor in any order, then wait(). Tensors are expected from the last to the
    first, as backward passes produce them. A tensor is a view() into its bucket (zero-copy) or the caller's own array
    (bind()). All ranks give the same counts, type and options. One thread at a time.

    ``bucket_bytes`` (25 MiB), ``first_bucket_bytes`` (1 MiB) and ``fuse_bytes`` may be given by name.
    """

    def __init__(self, comm: World, counts: Sequence[int], dtype: Any = "float32", op: str = "avg", **options: int) -> None:
        self._comm = comm
        self._counts = whole_numbers(counts, "Reducer: counts")
        unknown = set(options) - {"bucket_bytes", "first_bucket_bytes", "fuse_bytes"}
        if unknown:
            raise TypeError(f"Reducer: {sorted(unknown)[0]} is not an option of it")
        whole_numbers(options.values(), f"Reducer: {', '.join(options)}")
        self._type = type_of(dtype)
        self._kept: dict[int, object] = {}
        given = ReducerOptionsStruct(ctypes.sizeof(ReducerOptionsStruct), op=operator_of(op), **options)
        lengths = (ctypes.c_size_t * len(self._counts))(*self._counts)
        handle = ctypes.c_void_p()
        check(
            lib.amldist_reducer_create(
                comm._handle, lengths, len(self._counts), self._type, ctypes.byref(given), ctypes.byref(handle)
            )
        )
        self._handle = handle.value

    def view(self, tensor: int) -> memoryview:
        """A tensor's memory in its bucket, as bytes: ``numpy.frombuffer(reducer.view(0), "float32")``. Valid until
        free()."""
        data = ctypes.c_void_p()
        check(lib.amldist_reducer_view(self._handle, self._index(tensor), ctypes.byref(data)))
        length = self._counts[tensor] * SIZES[self._type]
        return memoryview((ctypes.c_char * length).from_address(data.value or 0)).cast("B") if length else memoryview(bytearray())

    def bind(self, tensor: int, array: Any) -> None:
        """Makes the tensor the caller's array. Errors: ValueError, TypeError for another count or type."""
        given = array_of(array, f"bind: tensor {tensor}", True)
        if given.count != self._counts[self._index(tensor)]:
            raise ValueError(f"bind: tensor {tensor} has {self._counts[tensor]} elements, the array {given.count}")
        if given.count and given.type != self._type:
            names = {number: name for name, number in TYPES.items()}
            raise TypeError(f"bind: the reducer takes {names[self._type]}, the array has {names[given.type]}")
        check(lib.amldist_reducer_bind(self._handle, tensor, given.address))
        self._kept[tensor] = given

    def _index(self, tensor: int) -> int:
        if not 0 <= tensor < len(self._counts):
            raise IndexError(f"tensor {tensor} is out of range 0..{len(self._counts) - 1}")
        return tensor

    def ready(self, tensor: int) -> None:
        """This rank's tensor is complete. Leave it alone until wait() returns."""
        check(lib.amldist_reducer_ready(self._handle, self._index(tensor)))

    def wait(self) -> None:
        """Returns when all tensors hold the result."""
        status = lib.amldist_reducer_wait(self._handle)
        if status < 0:
            _interrupt.check()
            raise_last(status)

    @property
    def calls(self) -> int:
        """Number of collective calls in a step."""
        return check(lib.amldist_reducer_calls(self._handle))

    def free(self) -> None:
        """Waits for calls in progress and frees the buckets. Does nothing a second time."""
        handle, self._handle = self._handle, None
        status = lib.amldist_reducer_free(handle)
        self._kept.clear()  # until here calls may have written to them
        check(status)
