"""The communicator: every collective, blocking and not."""

from __future__ import annotations

import ctypes
import functools
import inspect
import math
import sys
from contextlib import contextmanager
from operator import index
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Iterator, Optional, Sequence, Union

from amldist import _errors, _interrupt
from amldist._buffers import SIZES, TYPES, Array, array_of, offsets_of, operator_of, sizes_of, type_of
from amldist._errors import check, raise_last
from amldist._library import lib, text
from amldist._reducer import Reducer
from amldist._request import Request

if TYPE_CHECKING:
    from typing_extensions import Concatenate, ParamSpec

    _P = ParamSpec("_P")

_Shape = Union[int, Sequence[int]]
#: A call's return value, the objects that must be kept meanwhile, and the library's arguments.
_Prepared = tuple[Any, object, tuple[Any, ...]]


def milliseconds(seconds: Optional[float]) -> int:
    """A time limit for the library; 0, its default, for None. Errors: ValueError."""
    if seconds is None:
        return 0
    if not 0 < seconds <= 2147483:
        raise ValueError(f"timeout is {seconds} s: it must be more than 0 and at most 2147483 s")
    return max(1, math.ceil(seconds * 1000))


def int32(given: Any, what: str) -> int:
    """A number as the library takes it, in 32 bits: ctypes would cut a longer one to another number. Errors: ValueError,
    TypeError."""
    number = index(given)
    if not -(2**31) <= number < 2**31:
        raise ValueError(f"{what} {number} is out of range")
    return number


def _same_type(first: Array, second: Array, operation: str) -> None:
    if first.count and second.count and first.type != second.type:
        types = {number: name for name, number in TYPES.items()}
        raise TypeError(f"{operation}: the arrays have different elements, {types[first.type]} and {types[second.type]}")


def _in_both_forms(
    prepare: Callable[Concatenate[Communicator, _P], _Prepared],
) -> tuple[Callable[Concatenate[Communicator, _P], Any], Callable[Concatenate[Communicator, _P], Request]]:
    """A blocking call and its non-blocking form, from a function that makes the arguments of both."""
    name = prepare.__name__[1:]
    blocking, starting = getattr(lib, f"amldist_{name}"), getattr(lib, f"amldist_i{name}")

    def wait(self: Communicator, /, *given: _P.args, **named: _P.kwargs) -> Any:
        result, _keep, arguments = prepare(self, *given, **named)
        self._run(blocking, *arguments)
        return result

    def start(self: Communicator, /, *given: _P.args, **named: _P.kwargs) -> Request:
        result, keep, arguments = prepare(self, *given, **named)
        return self._begin(starting, result, keep, *arguments)

    method: Any
    for method, called, returned in ((wait, name, Any), (start, f"i{name}", Request)):
        functools.update_wrapper(method, prepare)
        method.__name__, method.__qualname__ = called, f"Communicator.{called}"
        method.__annotations__ = {**prepare.__annotations__, "return": returned}
        method.__signature__ = inspect.signature(prepare).replace(return_annotation=returned)
    start.__doc__ = f"{name}() without waiting."
    return wait, start


class Communicator:
    """The processes of a step, or some of them; made by amldist.init().

    Arrays are anything with the buffer protocol (NumPy, array.array, bytearray, memoryview) or with DLPack (PyTorch,
    JAX, CuPy). They are contiguous, and are never copied: a reduction without ``out`` replaces the array's elements.
    Every rank calls the same collectives in the same order with the same counts, types, operators and roots.

    Each collective exists twice: ``allreduce`` returns when it is complete, ``iallreduce`` at once with a Request.
    All of them raise PeerError or TimeoutError, which name rank, host, operation and number, when a rank is missing or
    wrong; AbortedError ever after; ValueError and TypeError for what cannot be right, and then the communicator goes on.

    Several threads may use different communicators; on one, one call at a time. The GIL is released in every call.
    """

    def __init__(self, handle: int) -> None:
        self._handle: Optional[int] = handle
        self.rank: int = lib.amldist_rank(handle)
        self.size: int = lib.amldist_size(handle)
        self.local_rank: int = lib.amldist_local_rank(handle)
        self.local_size: int = lib.amldist_local_size(handle)
        self.node_rank: int = lib.amldist_node_rank(handle)
        self.nodes: int = lib.amldist_nodes(handle)
        self._pending: set[Request] = set()
        _interrupt.watch()

    def __repr__(self) -> str:
        state = "finalized" if self._handle is None else f"rank {self.rank} of {self.size}"
        return f"<amldist.Communicator {state}>"

    def __enter__(self) -> Communicator:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        value: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        if kind is not None:
            self.abort()
        self.finalize()

    # ---- facts ----

    def host(self, rank: int) -> str:
        """Host name of a rank. Errors: ValueError."""
        name = lib.amldist_host(self._handle, int32(rank, "host: rank"))
        if name is None:
            raise ValueError(f"rank {rank} is out of range 0..{self.size - 1}")
        return text(name)

    @property
    def task_map(self) -> str:
        """The map of ranks to nodes in PMI's notation, ``(vector,(0,2,4))``."""
        return text(lib.amldist_task_map(self._handle))

    @property
    def provenance(self) -> str:
        """Where identity and map came from, whether strangers are kept out, and what carries the data."""
        return text(lib.amldist_provenance(self._handle))

    @property
    def healthy(self) -> bool:
        """False once the communicator has failed. Any thread may ask at any time."""
        return self._handle is not None and lib.amldist_health(self._handle) == 0

    # ---- making a call ----

    def _abort_quietly(self) -> None:
        if self._handle is not None:
            lib.amldist_abort(self._handle)

    def _run(self, function: Callable[..., int], *arguments: Any) -> None:
        status = function(self._handle, *arguments)
        if status < 0:
            _interrupt.check()
            raise_last(status)

    def _begin(self, function: Callable[..., int], result: Any, keep: object, *arguments: Any) -> Request:
        handle = ctypes.c_void_p()
        check(function(self._handle, *arguments, ctypes.byref(handle)))
        request = Request(handle.value or 0, result, keep, self._pending.discard)
        self._pending.add(request)
        return request

    # ---- arguments of the collectives, for both forms ----

    def _reduction(self, name: str, array: Any, op: str, out: Any) -> _Prepared:
        operator = operator_of(op)
        if out is None:
            both = array_of(array, f"{name}: the array", True)
            return array, (both, None), (both.address, both.address, both.count, both.type, operator)
        send, recv = array_of(array, f"{name}: the array", False), array_of(out, f"{name}: out", True)
        _same_type(send, recv, name)
        if send.count != recv.count:
            raise ValueError(f"{name}: the array has {send.count} elements and out has {recv.count}: both must be equal")
        return out, (send, recv), (send.address, recv.address, send.count, send.type, operator)

    def _allreduce(self, array: Any, op: str = "sum", *, out: Any = None) -> _Prepared:
        """Every rank gets the combination of all ranks' arrays, in ``out`` or in the array itself.

        ``op`` is "sum", "prod", "max", "min" or "avg"; of integers and bools also "band", "bor" or "bxor". Integers wrap around; float16 and bfloat16 are combined in
        float32. Returns the array that holds the result.
        """
        return self._reduction("allreduce", array, op, out)

    def _reduce(self, array: Any, root: int = 0, op: str = "sum", *, out: Any = None) -> _Prepared:
        """As allreduce(), but only ``root`` gets the result. The other ranks' arrays stay as they are."""
        root = int32(root, "reduce: root")
        if out is not None or self.rank == root:
            result, keep, arguments = self._reduction("reduce", array, op, out)
        else:
            send = array_of(array, "reduce: the array", False)
            result, keep, arguments = array, (send, None), (send.address, None, send.count, send.type, operator_of(op))
        return result, keep, (*arguments, root)

    def _broadcast(self, array: Any, root: int = 0) -> _Prepared:
        """Every rank's array becomes the root's."""
        root = int32(root, "broadcast: root")
        buffer = array_of(array, "broadcast: the array", self.rank != root)
        return array, buffer, (buffer.address, buffer.count, buffer.type, root)

    def _allgather(self, send: Any, recv: Any) -> _Prepared:
        """``recv`` (size x n elements) gets every rank's ``send`` (n elements), in the order of ranks."""
        few, many = self._one_and_all("allgather", send, recv, False)
        return recv, (few, many), (few.address, many.address, few.count, few.type)

    def _one_and_all(self, name: str, one: Any, everything: Any, scatters: bool) -> tuple[Array, Array]:
        few = array_of(one, f"{name}: the array of one part", scatters)
        many = array_of(everything, f"{name}: the array of all parts", not scatters)
        _same_type(few, many, name)
        if many.count != few.count * self.size:
            raise ValueError(
                f"{name}: all parts have {many.count} elements, but {self.size} parts of {few.count} elements are "
                f"{few.count * self.size}"
            )
        return few, many

    def _reduce_scatter(self, send: Any, recv: Any, op: str = "sum") -> _Prepared:
        """``recv`` (n elements) gets this rank's part of the combination of all ranks' ``send`` (size x n)."""
        few, many = self._one_and_all("reduce_scatter", recv, send, True)
        return recv, (few, many), (many.address, few.address, few.count, few.type, operator_of(op))

    def _reduce_scatterv(
        self, send: Any, recv: Any, counts: Sequence[int], op: str = "sum", offsets: Optional[Sequence[int]] = None
    ) -> _Prepared:
        """As reduce_scatter() with ``counts[r]`` elements for rank r, at ``offsets[r]`` of ``send`` (default: one after
        the other). The counts are equal on all ranks."""
        few, many = array_of(recv, "reduce_scatterv: recv", True), array_of(send, "reduce_scatterv: send", False)
        _same_type(few, many, "reduce_scatterv")
        lengths = sizes_of(counts, self.size, "reduce_scatterv: counts")
        starts = sizes_of(offsets_of(lengths) if offsets is None else offsets, self.size, "reduce_scatterv: offsets")
        self._within(many, lengths, starts, "reduce_scatterv: send")
        if few.count != lengths[self.rank]:
            raise ValueError(
                f"reduce_scatterv: recv has {few.count} elements, and counts[{self.rank}] is {lengths[self.rank]}"
            )
        kind = many.type if many.count else few.type
        return recv, (few, many), (many.address, few.address, lengths, starts, kind, operator_of(op))

    def _alltoall(self, send: Any, recv: Any) -> _Prepared:
        """Part r of ``send`` goes to rank r; part r of ``recv`` comes from rank r. All parts are equally long."""
        source, target = array_of(send, "alltoall: send", False), array_of(recv, "alltoall: recv", True)
        _same_type(source, target, "alltoall")
        if source.count != target.count or source.count % self.size:
            raise ValueError(
                f"alltoall: send has {source.count} elements and recv has {target.count}: both must be the same "
                f"multiple of {self.size}, the number of ranks"
            )
        return recv, (source, target), (source.address, target.address, source.count // self.size, source.type)

    def _within(self, array: Array, counts: Any, offsets: Any, what: str) -> None:
        for rank, (count, offset) in enumerate(zip(counts, offsets)):
            if offset + count > array.count:
                raise ValueError(f"{what}: the part of rank {rank} ends at {offset + count}, the array at {array.count}")

    def _allgatherv(self, send: Any, recv: Any, counts: Sequence[int], offsets: Optional[Sequence[int]] = None) -> _Prepared:
        """As allgather() with ``counts[rank]`` elements of each rank, at ``offsets[rank]`` (default: one after the
        other). Both lists are in elements, and equal on all ranks."""
        few, many = array_of(send, "allgatherv: send", False), array_of(recv, "allgatherv: recv", True)
        _same_type(few, many, "allgatherv")
        lengths = sizes_of(counts, self.size, "allgatherv: counts")
        starts = sizes_of(offsets_of(lengths) if offsets is None else offsets, self.size, "allgatherv: offsets")
        self._within(many, lengths, starts, "allgatherv: recv")
        if few.count != lengths[self.rank]:
            raise ValueError(f"allgatherv: send has {few.count} elements, and counts[{self.rank}] is {lengths[self.rank]}")
        kind = few.type if few.count else many.type
        return recv, (few, many), (few.address, few.count, many.address, lengths, starts, kind)

    def _alltoallv(
        self,
        send: Any,
        send_counts: Sequence[int],
        recv: Any,
        recv_counts: Sequence[int],
        send_offsets: Optional[Sequence[int]] = None,
        recv_offsets: Optional[Sequence[int]] = None,
    ) -> _Prepared:
        """As alltoall() with counts and offsets in elements for each rank. Not in place."""
        source, target = array_of(send, "alltoallv: send", False), array_of(recv, "alltoallv: recv", True)
        _same_type(source, target, "alltoallv")
        lists = []
        for array, counts, offsets, side in (
            (source, send_counts, send_offsets, "send"),
            (target, recv_counts, recv_offsets, "recv"),
        ):
            lengths = sizes_of(counts, self.size, f"alltoallv: {side}_counts")
            starts = sizes_of(offsets_of(lengths) if offsets is None else offsets, self.size, f"alltoallv: {side}_offsets")
            self._within(array, lengths, starts, f"alltoallv: {side}")
            lists.append((lengths, starts))
        kind = source.type if source.count else target.type
        return recv, (source, target), (source.address, *lists[0], target.address, *lists[1], kind)

    def _gather(self, send: Any, recv: Any = None, root: int = 0) -> _Prepared:
        """``recv`` (size x n elements) on the root gets every rank's ``send`` (n elements)."""
        root = int32(root, "gather: root")
        if self.rank != root:
            few = array_of(send, "gather: send", False)
            return recv, few, (few.address, None, few.count, few.type, root)
        few, many = self._one_and_all("gather", send, recv, False)
        return recv, (few, many), (few.address, many.address, few.count, few.type, root)

    def _scatter(self, send: Any, recv: Any, root: int = 0) -> _Prepared:
        """``recv`` (n elements) gets this rank's part of the root's ``send`` (size x n elements)."""
        root = int32(root, "scatter: root")
        if self.rank != root:
            few = array_of(recv, "scatter: recv", True)
            return recv, few, (None, few.address, few.count, few.type, root)
        few, many = self._one_and_all("scatter", recv, send, True)
        return recv, (few, many), (many.address, few.address, few.count, few.type, root)

    def _send(self, array: Any, peer: int) -> _Prepared:
        """Sends one message. It may wait until the peer receives it; the peer may be this rank."""
        buffer = array_of(array, "send: the array", False)
        return None, buffer, (buffer.address, buffer.count, buffer.type, int32(peer, "send: peer"))

    def _recv(self, array: Any, peer: int) -> _Prepared:
        """Receives a message of exactly this count and type, in the order in which the peer sent."""
        buffer = array_of(array, "recv: the array", True)
        return array, buffer, (buffer.address, buffer.count, buffer.type, int32(peer, "recv: peer"))

    def _barrier(self) -> _Prepared:
        """Returns when every rank has called it."""
        return None, None, ()

    allreduce, iallreduce = _in_both_forms(_allreduce)
    reduce, ireduce = _in_both_forms(_reduce)
    broadcast, ibroadcast = _in_both_forms(_broadcast)
    allgather, iallgather = _in_both_forms(_allgather)
    allgatherv, iallgatherv = _in_both_forms(_allgatherv)
    reduce_scatter, ireduce_scatter = _in_both_forms(_reduce_scatter)
    reduce_scatterv, ireduce_scatterv = _in_both_forms(_reduce_scatterv)
    alltoall, ialltoall = _in_both_forms(_alltoall)
    alltoallv, ialltoallv = _in_both_forms(_alltoallv)
    gather, igather = _in_both_forms(_gather)
    scatter, iscatter = _in_both_forms(_scatter)
    send, isend = _in_both_forms(_send)
    recv, irecv = _in_both_forms(_recv)
    barrier, ibarrier = _in_both_forms(_barrier)

    @contextmanager
    def group(self) -> Iterator[None]:
        """Collects the blocking calls made inside and runs them at the end: collectives in order, then all messages at
        once, so that they may cross. Keep the arrays until the end of the block."""
        check(lib.amldist_group_begin(self._handle))
        try:
            yield
        except BaseException:
            lib.amldist_group_end(self._handle)
            raise
        self._run(lib.amldist_group_end)

    # ---- life ----

    def set_timeout(self, seconds: Optional[float]) -> None:
        """Deadline of every later call in seconds; None: the default. Local: set it on every rank."""
        check(lib.amldist_set_timeout(self._handle, milliseconds(seconds)))

    def split(self, color: Optional[int], key: int = 0) -> Optional[Communicator]:
        """A communicator of the ranks that gave the same colour (0 or more), ordered by key, then by rank; collective.
        With None as colour a rank gets None."""
        if color is not None and color < 0:
            raise ValueError(f"split: the colour is {color}: it must be 0 or more, or None for no communicator")
        return self._derived(lib.amldist_split, -1 if color is None else int32(color, "split: colour"), int32(key, "split: key"))

    def shrink(self) -> Communicator:
        """Goes on after a loss: a communicator of the ranks that are left, in their order; collective over these.

        This communicator stays, failed; finalize both. Raises AbortedError on a rank that the others have excluded.
        """
        handle = ctypes.c_void_p()
        self._agreement(lambda: int(lib.amldist_shrink(self._handle, ctypes.byref(handle))))
        return Communicator(handle.value or 0)

    def _agreement(self, function: Callable[[], int]) -> None:
        """Runs a call that an abort does not end, but that Ctrl-C must end."""
        error: Optional[Exception] = None

        def work() -> int:
            nonlocal error
            status = function()
            error = _errors.last_error(status) if status < 0 else None
            return status

        _interrupt.apart(work, lambda: None)
        if error is not None:
            raise error

    def _derived(self, function: Callable[..., int], *arguments: Any) -> Optional[Communicator]:
        handle = ctypes.c_void_p()
        self._run(function, *arguments, ctypes.byref(handle))
        return Communicator(handle.value) if handle.value else None

    def agree(self, flags: int) -> int:
        """Bitwise AND of what the ranks that are left gave, 32 bits; possible after a loss, and the same on each of
        them. Raises PeerError, with the agreed value as ``flags``, if ranks were lost."""
        agreed = ctypes.c_int(ctypes.c_int32(flags).value)
        try:
            self._agreement(lambda: int(lib.amldist_agree(self._handle, ctypes.byref(agreed))))
        except _errors.PeerError as error:
            error.flags = agreed.value
            raise
        return agreed.value

    def should_stop(self) -> bool:
        """Whether the ranks should save and end: true from the same call on, on every rank. Every rank calls it equally often,
        such as once in each step; it sends nothing and does not wait until a rank has heard of the stop.

        A rank hears of it under the key ``stop=`` of ``srun --aml-dist``; elsewhere the answer stays false."""
        stop = ctypes.c_int()
        self._run(lib.amldist_should_stop, ctypes.byref(stop))
        return stop.value != 0

    def allocate(self, shape: _Shape, dtype: Any = "float32") -> Any:
        """A zeroed array in memory that collectives use without copying it: a NumPy array where NumPy is installed, else
        a memoryview of one dimension. bfloat16 is shown as uint16.

        It is valid until free() or finalize(). Errors: MemoryError.
        """
        kind = type_of(dtype)
        extents = (shape,) if isinstance(shape, int) else tuple(shape)
        count = math.prod(extents)
        if count < 0 or any(extent < 0 for extent in extents):
            raise ValueError(f"allocate: the shape {extents} has a negative extent")
        if count * SIZES[kind] > sys.maxsize:  # ctypes would cut it
            raise MemoryError(f"allocate: {count * SIZES[kind]} bytes are more than this machine can address")
        memory = ctypes.c_void_p()
        check(lib.amldist_alloc(self._handle, max(1, count * SIZES[kind]), ctypes.byref(memory)))
        raw = memoryview((ctypes.c_char * (count * SIZES[kind])).from_address(memory.value or 0)).cast("B")
        return _shaped(raw, kind, extents)

    def free(self, array: Any) -> None:
        """Frees memory of allocate(). No rank may still be in a call that uses it. Errors: ValueError."""
        check(lib.amldist_free(self._handle, array_of(array, "free: the array", True).address))

    def reducer(self, counts: Sequence[int], dtype: Any = "float32", op: str = "avg", **options: int) -> Reducer:
        """A Reducer for tensors of these counts; see there."""
        return Reducer(self, counts, dtype, op, **options)

    def abort(self) -> None:
        """Every present and future call on every rank raises AbortedError. Any thread may call it."""
        self._abort_quietly()

    def finalize(self) -> None:
        """Ends the communicator; collective while it is healthy, local after a failure. Does nothing a second time.
        Finalize what split() made first."""
        handle = self._handle
        if handle is None:
            return
        self._handle = None
        status = lib.amldist_finalize(handle)
        self._pending.clear()
        if status < 0:
            _interrupt.check()
            raise_last(status)


def _shaped(raw: memoryview, kind: int, extents: Sequence[int]) -> Any:
    """Bytes as an array of NumPy, or without NumPy as a list of numbers."""
    name = next(name for name, number in TYPES.items() if number == kind)
    shown = "uint16" if name == "bfloat16" else name
    try:
        import numpy
    except ImportError:
        view: Any = raw
        return view.cast(_LETTERS[shown])
    return numpy.frombuffer(raw, dtype=numpy.dtype(shown)).reshape(extents)


_LETTERS = {
    "int8": "b", "uint8": "B", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I", "int64": "q", "uint64": "Q",
    "float16": "e", "float32": "f", "float64": "d", "bool": "?",
}  # fmt: skip
