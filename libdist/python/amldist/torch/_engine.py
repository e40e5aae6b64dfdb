"""torch.distributed's calls as libdist's: tensors become addresses, lists of tensors one buffer."""

from __future__ import annotations

import atexit
import ctypes
import threading
from datetime import timedelta
from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Tuple

import torch
import torch.distributed as dist
from amldist import _errors, _interrupt
from amldist._library import lib
from amldist._request import Request
from amldist._world import init
from amldist.torch._tensors import OnHost, check, is_whole, lists, refuse, shown, spread
from amldist.torch._work import BackendError, DoneWork, PendingWork, Waiter, backend_error

Tensor = torch.Tensor
_Op = dist.ReduceOp

_TYPES: Dict[torch.dtype, int] = {
    torch.int8: 0, torch.uint8: 1, torch.int32: 2, torch.int64: 4, torch.float16: 6, torch.float32: 7,
    torch.float64: 8, torch.bfloat16: 9, torch.int16: 10, torch.bool: 12,
}  # fmt: skip
for _name, _number in (("uint32", 3), ("uint64", 5), ("uint16", 11)):
    if hasattr(torch, _name):
        _TYPES[getattr(torch, _name)] = _number
_UINT8 = 1
_OPERATORS: Dict[Any, int] = {
    _Op.SUM: 0, _Op.PRODUCT: 1, _Op.MAX: 2, _Op.MIN: 3, _Op.AVG: 4, _Op.BAND: 5, _Op.BOR: 6, _Op.BXOR: 7,
}  # fmt: skip
_EXIT_S = 10.0
_NONE = timedelta(0)

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

    def set(self, key: str, value: bytes) -> None:
        self._store.set(key, value)

    def get(self, key: str, timeout: float) -> bytes:
        self._store.wait([key], timedelta(seconds=max(timeout, 0.001)))
        return bytes(self._store.get(key))


class Engine:
    """One process group: its world in libdist, and PyTorch's calls on it."""

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta, name: str) -> None:
        self._timeout = timeout
        try:
            self.comm = init(
                timeout.total_seconds(), rank=rank, size=size, store=_TorchStore(store), name=name[-120:] or None
            )
        except _errors.Error as error:
            raise backend_error(error) from error
        self.rank, self.size = rank, size
        self._handle = self.comm._handle
        self._deadline = self._unset = timeout
        self._lock = threading.RLock()
        self._waiter = Waiter()
        self._pending: Set[PendingWork] = set()
        self._coalesced: Optional[List[PendingWork]] = None
        self._done = DoneWork()
        self.calls = 0

    # ---- how a call goes ----

    def set_timeout(self, timeout: timedelta) -> None:
        self._unset = timeout

    def _use_deadline(self, timeout: Optional[timedelta]) -> None:
        wanted = self._unset if timeout is None or timeout <= _NONE else timeout  # -1 ms stands for the group's
        if wanted != self._deadline:
            self.comm.set_timeout(wanted.total_seconds())
            self._deadline = wanted

    def _deadline_of(self, opts: Any) -> None:
        self._use_deadline(opts.timeout)

    def _call(
        self,
        name: str,
        arguments: Tuple[Any, ...],
        opts: Any,
        outputs: Any,
        keep: Any,
        after: Optional[Callable[[], object]] = None,
    ) -> Any:
        """One collective. A caller that waits anyway has it run in its own thread."""
        with self._lock:
            self.calls += 1
            self._deadline_of(opts)
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
        work = PendingWork(requests, outputs, after, self._waiter, source, self._deadline.total_seconds())
        self._reap()
        self._pending.add(work)  # nobody has to wait for it
        if self._coalesced is not None:
            self._coalesced.append(work)
        return work

    def _reap(self) -> None:
        if len(self._pending) >= 32:
            self._pending = {work for work in self._pending if not work.is_completed()}

    def _operator(self, op: Any, operation: str) -> Tuple[int, Any]:
        """The operator's number, and the factor of PREMUL_SUM."""
        kind = getattr(op, "op", op)
        if kind == _Op.PREMUL_SUM:
            return 0, op.factor
        number = _OPERATORS.get(kind)
        if number is None:
            raise refuse(operation, f"the operator {kind} is none of libdist's")
        return number, None

    def _type(self, tensor: Tensor, operation: str) -> int:
        """For a reduction. Moving data takes any type: _bytes()."""
        kind = _TYPES.get(tensor.dtype)
        if kind is None:
            hint = ": pass torch.view_as_real(tensor)" if tensor.is_complex() else ""
            raise refuse(operation, f"{shown(tensor)} cannot be reduced{hint}")
        return kind

    @staticmethod
    def _moved(tensor: Tensor) -> Tuple[int, int]:
        """Count and type with which a tensor is moved: types that libdist has not go as bytes."""
        kind = _TYPES.get(tensor.dtype)
        if kind is None:
            return tensor.numel() * tensor.element_size(), _UINT8
        return tensor.numel(), kind

    def _in_place(self, tensors: Sequence[Tensor], operation: str) -> Tensor:
        if len(tensors) != 1:
            raise refuse(operation, f"{len(tensors)} tensors were given: one for each rank is taken")
        tensor = tensors[0]
        check(tensor, operation)
        if not is_whole(tensor):
            raise refuse(operation, f"{shown(tensor)} is not contiguous: pass tensor.contiguous()")
        return tensor

    # ---- reductions ----

    def allreduce(self, tensors: List[Tensor], opts: Any) -> Any:
        tensor = tensors[0]
        if tensor.layout is not torch.strided:
            return self._sparse(tensors, opts)
        if len(tensors) > 1:
            return self.allreduce_coalesced(tensors, opts)
        if tensor.device.type != "cpu" or not tensor.is_contiguous():
            self._in_place(tensors, "all_reduce")
        operator, factor = self._operator(opts.reduceOp, "all_reduce")
        kind = self._type(tensor, "all_reduce")
        device = OnHost()
        host = device.both(tensor)
        if factor is not None:
            host.mul_(factor)
        address = host.data_ptr()
        return self._call(
            "allreduce", (address, address, host.numel(), kind, operator), opts, tensors, host, device.finish(None)
        )

    def allreduce_coalesced(self, tensors: List[Tensor], opts: Any) -> Any:
        for tensor in tensors:
            check(tensor, "all_reduce_coalesced")
        if len({tensor.dtype for tensor in tensors}) != 1:
            raise refuse("all_reduce_coalesced", "the tensors have different types: reduce those of each type together")
        flat = torch.cat([tensor.detach().reshape(-1).cpu() for tensor in tensors])
        operator, factor = self._operator(opts.reduceOp, "all_reduce_coalesced")
        if factor is not None:
            flat.mul_(factor)
        address, kind = flat.data_ptr(), self._type(flat, "all_reduce_coalesced")
        return self._call(
            "allreduce", (address, address, flat.numel(), kind, operator), opts, tensors, flat, spread(flat, tensors)
        )

    def _sparse(self, tensors: List[Tensor], opts: Any) -> Any:
        """The sum of sparse tensors: everybody gets all indices and values, and adds them up."""
        tensor = tensors[0]
        operator, _factor = self._operator(opts.reduceOp, "all_reduce")
        if tensor.layout is not torch.sparse_coo or operator != 0 or len(tensors) != 1:
            raise refuse("all_reduce", f"of sparse tensors only one of layout sparse_coo is taken, with SUM ({tensor.layout})")
        given = tensor.coalesce().cpu()
        counts = torch.empty(self.size, dtype=torch.int64)
        self.allgather_single(counts, torch.tensor([given._nnz()]), opts).wait()
        parts = []
        for part in (given.indices().t().contiguous(), given.values().contiguous()):
            everything = torch.empty((int(counts.sum()), *part.shape[1:]), dtype=part.dtype)
            self._gather_uneven(list(torch.split(everything, counts.tolist())), everything, part, opts, None).wait()
            parts.append(everything)
        total = torch.sparse_coo_tensor(parts[0].t(), parts[1], tensor.shape).coalesce()
        tensor.copy_(total)
        return DoneWork(tensors)

    def allreduce_sparse(self, tensors: List[Tensor], opts: Any) -> Any:
        return self._sparse(tensors, opts)

    def reduce(self, tensors: List[Tensor], opts: Any) -> Any:
        tensor = self._in_place(tensors, "reduce")
        operator, factor = self._operator(opts.reduceOp, "reduce")
        kind = self._type(tensor, "reduce")
        device = OnHost()
        host = device.both(tensor) if self.rank == opts.rootRank else device.read(tensor)
        if factor is not None:
            host = host.mul_(factor) if self.rank == opts.rootRank else host * factor
        address = host.data_ptr()
        arguments = (address, address if self.rank == opts.rootRank else None, host.numel(), kind, operator, opts.rootRank)
        return self._call("reduce", arguments, opts, tensors, host, device.finish(None))

    def reduce_scatter_single(self, output: Tensor, source: Tensor, opts: Any) -> Any:
        name = "reduce_scatter_tensor"
        if source.dtype != output.dtype:
            raise refuse(name, f"the input is {shown(source)}, the output {shown(output)}: the types must be equal")
        if source.numel() != output.numel() * self.size:
            raise refuse(name, f"the input is {shown(source)}, the output {shown(output)}: it must have {self.size} times as many elements")
        device = OnHost()
        self._in_place([source], name)
        result, given = device.write(self._in_place([output], name)), device.read(source)
        operator, factor = self._operator(opts.reduceOp, name)
        if factor is not None:
            given = given * factor
        arguments = (given.data_ptr(), result.data_ptr(), result.numel(), self._type(result, name), operator)
        return self._call("reduce_scatter", arguments, opts, [output], (given, result), device.finish(None))

    def reduce_scatter(self, outputs: List[Tensor], inputs: List[List[Tensor]], opts: Any) -> Any:
        if len(outputs) != 1 or len(inputs) != 1 or len(inputs[0]) != self.size:
            raise refuse("reduce_scatter", f"one output and {self.size} inputs are taken, one for each rank")
        output, parts = outputs[0], inputs[0]
        if parts[self.rank].numel() != output.numel() or any(part.dtype != output.dtype for part in parts):
            raise refuse("reduce_scatter", f"the output is {shown(output)}, the input for this rank {shown(parts[self.rank])}")
        for tensor in (output, *parts):
            check(tensor, "reduce_scatter")
        flat = torch.cat([part.reshape(-1).cpu() for part in parts])
        if all(part.numel() == output.numel() for part in parts):
            result = torch.empty(output.numel(), dtype=output.dtype)
            operator, factor = self._operator(opts.reduceOp, "reduce_scatter")
            if factor is not None:
                flat.mul_(factor)
            arguments = (flat.data_ptr(), result.data_ptr(), result.numel(), self._type(result, "reduce_scatter"), operator)
            return self._call("reduce_scatter", arguments, opts, outputs, (flat, result), spread(result, outputs))
        return self._reduce_scatter_uneven(flat, [part.numel() for part in parts], outputs, opts)

    def _reduce_scatter_uneven(self, flat: Tensor, counts: List[int], outputs: List[Tensor], opts: Any) -> Any:
        operator, factor = self._operator(opts.reduceOp, "reduce_scatter")
        if factor is not None:
            flat.mul_(factor)
        result = torch.empty(counts[self.rank], dtype=flat.dtype)
        arguments = (flat.data_ptr(), result.data_ptr(), *lists(counts), self._type(flat, "reduce_scatter"), operator)
        return self._call("reduce_scatterv", arguments, opts, outputs, (flat, result), spread(result, outputs))

    def reduce_scatter_single_coalesced(self, outputs: List[Tensor], inputs: List[Tensor], opts: Any) -> Any:
        return self._several([(self.reduce_scatter_single, (output, source)) for output, source in zip(outputs, inputs)], opts, outputs)

    # ---- movement ----

    def broadcast(self, tensors: List[Tensor], opts: Any) -> Any:
        tensor = self._in_place(tensors, "broadcast")
        device = OnHost()
        host = device.both(tensor)
        count, kind = self._moved(host)
        return self._call("broadcast", (host.data_ptr(), count, kind, opts.rootRank), opts, tensors, host, device.finish(None))

    def allgather_single(self, output: Tensor, source: Tensor, opts: Any) -> Any:
        name = "all_gather_into_tensor"
        if source.dtype != output.dtype:
            raise refuse(name, f"the input is {shown(source)}, the output {shown(output)}: the types must be equal")
        if output.numel() != source.numel() * self.size:
            raise refuse(name, f"the input is {shown(source)}, the output {shown(output)}: it must have {self.size} times as many elements")
        device = OnHost()
        self._in_place([output], name)
        given = device.read(self._in_place([source], name))
        result = device.write(output)
        count, kind = self._moved(given)
        return self._call(
            "allgather", (given.data_ptr(), result.data_ptr(), count, kind), opts, [output], (given, result), device.finish(None)
        )

    def allgather_single_coalesced(self, outputs: List[Tensor], inputs: List[Tensor], opts: Any) -> Any:
        return self._several([(self.allgather_single, (output, source)) for output, source in zip(outputs, inputs)], opts, outputs)

    def allgather(self, outputs: List[List[Tensor]], inputs: List[Tensor], opts: Any) -> Any:
        if len(outputs) != 1 or len(inputs) != 1 or len(outputs[0]) != self.size:
            raise refuse("all_gather", f"one input and {self.size} outputs are taken, one for each rank")
        source, parts = inputs[0], outputs[0]
        for tensor in (source, *parts):
            check(tensor, "all_gather")
            if tensor.dtype != source.dtype:
                raise refuse("all_gather", f"the input is {shown(source)}, an output {shown(tensor)}: the types must be equal")
        if parts[self.rank].numel() != source.numel():
            raise refuse("all_gather", f"the input is {shown(source)}, the output for it {shown(parts[self.rank])}")
        given = source.detach().contiguous().cpu()
        flat = torch.empty(sum(part.numel() for part in parts), dtype=source.dtype)
        after = spread(flat, parts)
        if any(part.numel() != source.numel() for part in parts):
            return self._gather_uneven(parts, flat, given, opts, after)
        count, kind = self._moved(given)
        return self._call("allgather", (given.data_ptr(), flat.data_ptr(), count, kind), opts, outputs, (given, flat), after)

    def _gather_uneven(
        self, parts: List[Tensor], flat: Tensor, given: Tensor, opts: Any, after: Optional[Callable[[], object]]
    ) -> Any:
        count, kind = self._moved(given)
        counts = [self._moved(part)[0] for part in parts]
        arguments = (given.data_ptr(), count, flat.data_ptr(), *lists(counts), kind)
        return self._call("allgatherv", arguments, opts, [parts], (given, flat), after)

    def allgather_coalesced(self, outputs: List[List[Tensor]], inputs: List[Tensor], opts: Any) -> Any:
        calls = [
            (self.allgather, ([[of_rank[i] for of_rank in outputs]], [source])) for i, source in enumerate(inputs)
        ]
        return self._several(calls, opts, outputs)

    def gather(self, outputs: List[List[Tensor]], inputs: List[Tensor], opts: Any) -> Any:
        source = inputs[0]
        check(source, "gather")
        given = source.detach().contiguous().cpu()
        count, kind = self._moved(given)
        if self.rank != opts.rootRank:
            return self._call("gather", (given.data_ptr(), None, count, kind, opts.rootRank), opts, outputs, given)
        if len(outputs) != 1 or len(outputs[0]) != self.size:
            raise refuse("gather", f"{self.size} outputs are taken on the root, one for each rank")
        for part in outputs[0]:
            if part.numel() != source.numel() or part.dtype != source.dtype:
                raise refuse("gather", f"the input is {shown(source)}, an output {shown(part)}: they must be equal")
        flat = torch.empty(source.numel() * self.size, dtype=source.dtype)
        arguments = (given.data_ptr(), flat.data_ptr(), count, kind, opts.rootRank)
        return self._call("gather", arguments, opts, outputs, (given, flat), spread(flat, outputs[0]))

    def scatter(self, outputs: List[Tensor], inputs: List[List[Tensor]], opts: Any) -> Any:
        output = outputs[0]
        check(output, "scatter")
        result = torch.empty(output.numel(), dtype=output.dtype)
        count, kind = self._moved(result)
        flat: Optional[Tensor] = None
        if self.rank == opts.rootRank:
            if len(inputs) != 1 or len(inputs[0]) != self.size:
                raise refuse("scatter", f"{self.size} inputs are taken on the root, one for each rank")
            for part in inputs[0]:
                if part.numel() != output.numel() or part.dtype != output.dtype:
                    raise refuse("scatter", f"the output is {shown(output)}, an input {shown(part)}: they must be equal")
            flat = torch.cat([part.detach().reshape(-1).cpu() for part in inputs[0]])
        arguments = (None if flat is None else flat.data_ptr(), result.data_ptr(), count, kind, opts.rootRank)
        return self._call("scatter", arguments, opts, outputs, (flat, result), spread(result, outputs))

    def alltoall_single(
        self, output: Tensor, source: Tensor, output_splits: List[int], input_splits: List[int], opts: Any
    ) -> Any:
        name = "all_to_all_single"
        self._in_place([output], name)
        self._in_place([source], name)
        if output.dtype != source.dtype:
            raise refuse(name, f"the input is {shown(source)}, the output {shown(output)}: the types must be equal")
        device = OnHost()
        given, result = device.read(source), device.write(output)
        sides = []
        for tensor, splits, side in ((given, input_splits, "input"), (result, output_splits, "output")):
            rows = tensor.size(0) if tensor.dim() else 0
            lengths = list(splits) or [rows // self.size] * self.size
            if not splits and rows % self.size:
                raise refuse(name, f"the {side} has {rows} rows: {self.size} ranks need a multiple, or split sizes")
            if len(lengths) != self.size or sum(lengths) != rows or min(lengths) < 0:
                raise refuse(name, f"the {side} has {rows} rows, its split sizes are {lengths}: one for each of {self.size} ranks, and their sum, must fit")
            row = self._moved(tensor)[0] // rows if rows else 0
            sides.append(lists([length * row for length in lengths]))
        kind = self._moved(given)[1]
        arguments = (given.data_ptr(), *sides[0], result.data_ptr(), *sides[1], kind)
        return self._call("alltoallv", arguments, opts, [output], (given, result), device.finish(None))

    def alltoall(self, outputs: List[Tensor], inputs: List[Tensor], opts: Any) -> Any:
        if len(outputs) != self.size or len(inputs) != self.size:
            raise refuse("all_to_all", f"{self.size} inputs and outputs are taken, one for each rank")
        for tensor in (*outputs, *inputs):
            check(tensor, "all_to_all")
            if tensor.dtype != inputs[0].dtype:
                raise refuse("all_to_all", f"an input is {shown(inputs[0])}, another tensor {shown(tensor)}: the types must be equal")
        flat = torch.cat([tensor.detach().reshape(-1).cpu() for tensor in inputs])
        result = torch.empty(sum(tensor.numel() for tensor in outputs), dtype=flat.dtype)
        counts = [[self._moved(tensor)[0] for tensor in side] for side in (inputs, outputs)]
        arguments = (flat.data_ptr(), *lists(counts[0]), result.data_ptr(), *lists(counts[1]), self._moved(flat)[1])
        return self._call("alltoallv", arguments, opts, outputs, (flat, result), spread(result, outputs))

    # ---- messages and barriers ----

    def send(self, tensors: List[Tensor], peer: int, tag: int) -> Any:
        tensor = self._in_place(tensors, "send")
        given = tensor.detach().cpu()
        count, kind = self._moved(given)
        with self._lock:
            self._use_deadline(None)
            request = self._begin("send_tagged", (given.data_ptr(), count, kind, peer, tag), given)
            return self._work([request], tensors, None)

    def recv(self, tensors: List[Tensor], peer: int, tag: int) -> Any:
        tensor = self._in_place(tensors, "recv")
        device = OnHost()
        host = device.write(tensor)
        count, kind = self._moved(host)
        source = ctypes.c_int(peer)
        with self._lock:
            self._use_deadline(None)
            arguments = (host.data_ptr(), count, kind, peer, tag, ctypes.byref(source))
            request = self._begin("recv_tagged", arguments, (host, source))
            return self._work([request], tensors, device.finish(None), source)

    def recv_anysource(self, tensors: List[Tensor], tag: int) -> Any:
        return self.recv(tensors, _ANY_SOURCE, tag)

    def barrier(self, opts: Any) -> Any:
        return self._call("barrier", (), opts, None, None)

    def monitored_barrier(self, timeout: Optional[timedelta]) -> None:
        """A barrier whose errors begin with Gloo's words, which programs look for, and go on with libdist's."""
        with self._lock:
            if timeout is not None and timeout == _NONE and self.rank == 0:
                raise BackendError("Rank 0 timed out in monitoredBarrier after 0 ms")
            self._use_deadline(timeout)
            try:
                self.comm.barrier()
            except _errors.Error as error:
                limit = self._deadline.total_seconds()
                told = (
                    f"Rank {error.rank} failed to pass monitoredBarrier in {limit * 1000:.0f} ms"
                    if self.rank == 0
                    else f"Rank {self.rank} successfully reached monitoredBarrier, but received errors while waiting "
                    "for send/recv from rank 0"
                )
                raise backend_error(error, limit, f"[Rank {self.rank}]: {told}: ") from error

    # ---- several calls as one ----

    def _several(self, calls: List[Tuple[Callable[..., Any], Tuple[Any, ...]]], opts: Any, outputs: Any) -> Any:
        works = [function(*arguments, opts) for function, arguments in calls]
        if all(work is self._done for work in works):
            return self._done
        return self._joined(works, outputs)

    def _joined(self, works: List[Any], outputs: Any) -> PendingWork:
        def finish() -> None:
            for work in works:
                work.wait()

        return PendingWork([], outputs, finish, self._waiter)

    def start_coalescing(self) -> None:
        self._coalesced = []

    def end_coalescing(self) -> Any:
        works, self._coalesced = self._coalesced or [], None
        return self._joined(list(works), [])

    # ---- life ----

    def abort(self) -> None:
        self.comm.abort()

    def shutdown(self) -> None:
        """Ends the world without waiting for the ranks that still use it: in which order groups are destroyed is each
        rank's own business. The end of the process waits for them, at most ten seconds."""
        comm, self._handle = self.comm, None
        if comm._handle is None:
            return
        pending, self._pending = list(self._pending), set()

        def finalize() -> None:
            for work in pending:
                work.finish()
            handle, comm._handle = comm._handle, None
            if handle is not None:
                lib.amldist_finalize(handle)
            _finalizers.discard(thread)

        thread = threading.Thread(target=finalize, name="amldist-finalize", daemon=True)
        _finalizers.add(thread)
        thread.start()


_NAMES = (
    "allreduce reduce broadcast allgather allgatherv reduce_scatter reduce_scatterv alltoall alltoallv gather scatter send recv barrier"
).split()
_BLOCKING = {name: getattr(lib, "amldist_" + name) for name in _NAMES}
_STARTING = {name: getattr(lib, "amldist_i" + name) for name in _NAMES}
_STARTING.update({name: getattr(lib, "amldist_i" + name) for name in ("send_tagged", "recv_tagged")})
_ANY_SOURCE = -1
