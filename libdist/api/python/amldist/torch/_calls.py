"""Turns PyTorch's calls into libdist's: tensors into addresses, lists of tensors into one piece of memory, options into numbers."""

from __future__ import annotations

import ctypes
import functools
import inspect
import sys
import time
from datetime import timedelta
from operator import index
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch
import torch.distributed as dist
from amldist.torch._engine import Engine, OnHost, seconds
from amldist.torch._failures import BackendError, refuse
from amldist.torch._place import Place, Tensor, check, lists, overwriting, shown
from amldist.torch._work import DoneWork, GroupWork

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
_NUMBERS = {int(kind): number for kind, number in OPERATORS.items()}
#: libdist's operators applied to two tensors of one rank, by their numbers.
_LOCALLY: Dict[int, Callable[[Tensor, Tensor], Tensor]] = {
    0: torch.add, 1: torch.mul, 2: torch.maximum, 3: torch.minimum,
    5: torch.bitwise_and, 6: torch.bitwise_or, 7: torch.bitwise_xor,
}  # fmt: skip
_ANY_SOURCE = -1
_MOST_INT = 2**31 - 1
_BARRIER_TAG = 0x7FFFFFF0  #: of monitored_barrier()'s messages
_GRACE_S = 2.0  #: for rank 0 to tell the others which rank was missing


def _operator(op: Any, operation: str) -> Tuple[int, Any]:
    """The operator's number, and the factor of PREMUL_SUM."""
    kind = getattr(op, "op", op)
    number = _NUMBERS.get(int(kind))
    if number is None:
        if kind == _Op.PREMUL_SUM:
            return 0, op.__getstate__()[1]  # as pickle sees it: PyTorch up to 2.12 shows it nowhere else
        raise refuse(operation, f"the operator {kind} is not supported: use one of {', '.join(str(known) for known in OPERATORS)}")
    return number, None


def _type(tensor: Tensor, operation: str) -> int:
    """For a reduction. Moving data takes any type: _moved()."""
    kind = TYPES.get(tensor.dtype)
    if kind is None:
        hint = ": pass torch.view_as_real(tensor)" if tensor.is_complex() else ""
        raise refuse(operation, f"{shown(tensor)} cannot be reduced{hint}")
    return kind


def _numbers(tensor: Tensor, opts: Any, operation: str) -> Tuple[int, int]:
    """Type for a reduction, and how many numbers of it an element has. Complex numbers are added, and divided by the number
    of ranks, part by part; with another operator they are refused."""
    adds = getattr(opts.reduceOp, "op", opts.reduceOp) in (_Op.SUM, _Op.AVG)
    if tensor.is_complex() and adds:
        return TYPES[tensor.dtype.to_real()], 2
    return _type(tensor, operation), 1


def _moved(tensor: Tensor) -> Tuple[int, int]:
    """Count and type with which a tensor is moved: types that libdist lacks go as bytes."""
    kind = TYPES.get(tensor.dtype)
    return (tensor.nbytes, _UINT8) if kind is None else (tensor.numel(), kind)


def _only(tensors: Sequence[Tensor], operation: str, what: str = "tensor") -> Tensor:
    """The tensor of a list of one."""
    if len(tensors) != 1:
        raise refuse(operation, f"{len(tensors)} {what}s were given: one for each rank is taken")
    check(operation, tensors[0])
    return tensors[0]


def _check_alike(operation: str, *tensors: Tensor) -> None:
    """For a rank that passes several tensors."""
    check(operation, *tensors)
    for tensor in tensors:
        if (tensor.dtype, tensor.shape, tensor.device.type) != (tensors[0].dtype, tensors[0].shape, "cpu"):
            raise refuse(operation, "several tensors must lie on the cpu and have the same type and shape")


def _check_types(operation: str, source: Tensor, *outputs: Tensor) -> None:
    check(operation, source, *outputs)
    for output in outputs:
        if output.dtype != source.dtype:
            raise refuse(operation, f"the input is {shown(source)}, an output {shown(output)}: the types must be equal")


def _check_equal(operation: str, source: Tensor, *outputs: Tensor) -> None:
    check(operation, *outputs)
    for output in outputs:
        if output.numel() != source.numel() or output.dtype != source.dtype:
            raise refuse(operation, f"one tensor is {shown(source)}, another {shown(output)}: they must be equal")


def _check_root_tensor(tensors: Sequence[Tensor], opts: Any, operation: str) -> None:
    """Options name one of the root's tensors: 0, unless it passes several."""
    if opts.rootTensor not in range(len(tensors)):
        raise refuse(operation, f"the options name tensor {opts.rootTensor}, but {len(tensors)} were given")


def future_value(outputs: List[List[Tensor]]) -> Any:
    """Of gathered tensors: on CPUs, as Gloo's, one tensor for each rank; on GPUs, as NCCL's, something whose first element
    has the ranks as elements."""
    return outputs[0] if outputs[0][0].device.type == "cpu" else outputs


def _of_each(work: Any, tensors: Sequence[Any]) -> Any:
    """The work of a call on several tensors."""
    if isinstance(work, GroupWork):
        work.expect_waits(len(tensors))
    return work


#: The functions of torch.distributed that wait for their message at once.
_AWAITING = [inspect.unwrap(function).__code__ for function in (dist.send, dist.recv)]


def _is_awaited() -> bool:
    """Whether such a function makes this call, by isend() or irecv(), which may be wrapped once."""
    frame: Any = sys._getframe(3)
    for _level in range(3):
        frame = frame.f_back
        if frame is None:
            return False
        if any(frame.f_code is each for each in _AWAITING):
            return True
    return False


class Calls:
    """The calls of one group, by the names and with the arguments of c10d's C++ interface."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._rank, self._size = engine.rank, engine.size

    # ---- reductions ----

    def allreduce(self, tensors: List[Tensor], opts: Any) -> Any:
        name = "all_reduce"
        if len(tensors) != 1:
            return self._allreduce_together(tensors, opts)
        tensor = tensors[0]
        if tensor.layout is not torch.strided:
            return self.allreduce_sparse(tensors, opts)
        check(name, tensor)
        operator, factor = _operator(opts.reduceOp, name)
        kind = _type(tensor, name)
        place = self._engine.place(name, tensor, (kind, operator))
        data = place.change(tensor)
        if factor is not None:
            with overwriting(data):
                data.mul_(factor)
        address = data.data_ptr()
        return self._engine.run("allreduce", (address, address, data.numel(), kind, operator), opts, tensors, data, place)

    def _allreduce_together(self, tensors: List[Tensor], opts: Any) -> Any:
        """Several tensors of a rank count as if several ranks had given one each, and all get the result."""
        name = "all_reduce"
        if not tensors:
            raise refuse(name, "no tensor was given")
        if tensors[0].layout is not torch.strided:
            return self.allreduce_sparse(tensors, opts)
        operator, factor = _operator(opts.reduceOp, name)
        if operator not in _LOCALLY or factor is not None:
            raise refuse(name, f"{len(tensors)} tensors were given: with this operator one for each rank is taken")
        _check_alike(name, *tensors)
        data = functools.reduce(_LOCALLY[operator], [tensor.detach() for tensor in tensors]).contiguous()
        place = self._engine.place(name, data)
        place.copy_to(data, tensors)
        arguments = (data.data_ptr(), data.data_ptr(), data.numel(), _type(data, name), operator)
        return self._engine.run("allreduce", arguments, opts, tensors, data, place)

    def allreduce_coalesced(self, tensors: List[Tensor], opts: Any) -> Any:
        name = "all_reduce_coalesced"
        check(name, *tensors)
        if len({tensor.dtype for tensor in tensors}) != 1:
            raise refuse(name, "the tensors have different types: reduce those of each type together")
        operator, factor = _operator(opts.reduceOp, name)
        kind = _type(tensors[0], name)
        place = self._engine.place(name, tensors[0], (kind, operator))
        flat = place.join(tensors, changes=True)
        if factor is not None:
            with overwriting(flat):
                flat.mul_(factor)
        arguments = (flat.data_ptr(), flat.data_ptr(), flat.numel(), kind, operator)
        return _of_each(self._engine.run("allreduce", arguments, opts, tensors, flat, place), tensors)

    def allreduce_sparse(self, tensors: List[Tensor], opts: Any) -> Any:
        """The sum of sparse tensors: every rank gets all indices and values, and adds them up."""
        tensor = tensors[0]
        operator, _factor = _operator(opts.reduceOp, "all_reduce")
        if operator != 0 or any(each.layout is not torch.sparse_coo or each.shape != tensor.shape for each in tensors):
            raise refuse("all_reduce", f"sparse tensors are taken in layout sparse_coo, of one shape, with SUM ({tensor.layout})")
        given = functools.reduce(torch.add, tensors).coalesce().cpu()
        counts = torch.empty(self._size, dtype=torch.int64)
        self.allgather_single(counts, torch.tensor([given._nnz()]), opts).wait()
        parts = []
        for part in (given.indices().t().contiguous(), given.values().contiguous()):
            everything = torch.empty((int(counts.sum()), *part.shape[1:]), dtype=part.dtype)
            self.allgather([list(torch.split(everything, counts.tolist()))], [part], opts).wait()
            parts.append(everything)
        total = torch.sparse_coo_tensor(parts[0].t(), parts[1], tensor.shape).coalesce()
        for each in tensors:
            each.copy_(total.to(each.device))
        return DoneWork(tensors)

    def reduce(self, tensors: List[Tensor], opts: Any) -> Any:
        name, is_root = "reduce", self._rank == opts.rootRank
        _check_root_tensor(tensors, opts, name)
        tensor = _only(tensors, name)
        operator, factor = _operator(opts.reduceOp, name)
        kind, numbers = _numbers(tensor, opts, name)
        place = self._engine.place(name, tensor, (kind, operator))
        data = place.change(tensor, in_order=True) if is_root else place.read(tensor)
        if factor is not None:
            with overwriting(data):
                data = data.mul_(factor) if is_root else data * factor
        address = data.data_ptr()
        arguments = (address, address if is_root else None, numbers * data.numel(), kind, operator, opts.rootRank)
        return self._engine.run("reduce", arguments, opts, tensors, data, place)

    def reduce_scatter_single(self, output: Tensor, source: Tensor, opts: Any) -> Any:
        name, outputs = "reduce_scatter_tensor", [output]
        _check_types(name, source, output)
        if source.numel() != output.numel() * self._size:
            raise refuse(name, f"the input is {shown(source)}, the output {shown(output)}: it must have {self._size} times as many elements")
        operator, factor = _operator(opts.reduceOp, name)
        kind, numbers = _numbers(output, opts, name)
        place = self._engine.place(name, source, (kind, operator))
        given, result = place.read(source), place.write(output)
        if factor is not None:
            given = given * factor
        arguments = (given.data_ptr(), result.data_ptr(), numbers * result.numel(), kind, operator)
        return self._engine.run("reduce_scatter", arguments, opts, outputs, (given, result), place)

    def reduce_scatter(self, outputs: List[Tensor], inputs: List[List[Tensor]], opts: Any) -> Any:
        name = "reduce_scatter"
        if len(outputs) != 1 or len(inputs) != 1 or len(inputs[0]) != self._size:
            raise refuse(name, f"one output and {self._size} inputs are taken, one for each rank")
        _check_types(name, outputs[0], *inputs[0])
        if inputs[0][self._rank].numel() != outputs[0].numel():
            raise refuse(name, f"the output is {shown(outputs[0])}, the input for this rank {shown(inputs[0][self._rank])}")
        operator, factor = _operator(opts.reduceOp, name)
        kind, numbers = _numbers(outputs[0], opts, name)
        place = self._engine.place(name, outputs[0], (kind, operator))
        flat, result = place.join(inputs[0]), place.write(outputs[0])
        if factor is not None:
            flat = flat * factor
        buffers, keep = (flat.data_ptr(), result.data_ptr()), (flat, result)
        counts = [numbers * part.numel() for part in inputs[0]]
        if len(set(counts)) == 1:
            return self._engine.run("reduce_scatter", (*buffers, counts[0], kind, operator), opts, outputs, keep, place)
        return self._engine.run("reduce_scatterv", (*buffers, *lists(counts), kind, operator), opts, outputs, keep, place)

    # ---- moving data, of any type ----

    def broadcast(self, tensors: List[Tensor], opts: Any) -> Any:
        name = "broadcast"
        _check_root_tensor(tensors, opts, name)
        if len(tensors) > 1:  # one of the root's tensors, to all tensors of all ranks
            _check_alike(name, *tensors)
            tensor = tensors[opts.rootTensor].detach().clone(memory_format=torch.contiguous_format)
        else:
            tensor = _only(tensors, name)
        place = self._engine.place(name, tensor)
        data = place.change(tensor)
        if len(tensors) > 1:
            place.copy_to(data, tensors)
        count, kind = _moved(data)
        return self._engine.run("broadcast", (data.data_ptr(), count, kind, opts.rootRank), opts, tensors, data, place)

    def allgather_single(self, output: Tensor, source: Tensor, opts: Any) -> Any:
        name = "all_gather_into_tensor"
        _check_types(name, source, output)
        if output.numel() != source.numel() * self._size:
            raise refuse(name, f"the input is {shown(source)}, the output {shown(output)}: it must have {self._size} times as many elements")
        place = self._engine.place(name, source)
        given, result = place.read(source), place.write(output)
        count, kind = _moved(given)
        return self._engine.run("allgather", (given.data_ptr(), result.data_ptr(), count, kind), opts, [output], (given, result), place)

    def allgather(self, outputs: List[List[Tensor]], inputs: List[Tensor], opts: Any) -> Any:
        """Outputs may have different sizes, one for each rank's input."""
        name = "all_gather"
        if len(inputs) > 1:
            return self._allgather_together(outputs, inputs, opts)
        if len(outputs) != 1 or len(inputs) != 1 or len(outputs[0]) != self._size:
            raise refuse(name, f"one input and {self._size} outputs are taken, one for each rank")
        source, parts = inputs[0], outputs[0]
        _check_types(name, source, *parts)
        if parts[self._rank].numel() != source.numel():
            raise refuse(name, f"the input is {shown(source)}, the output for it {shown(parts[self._rank])}")
        place = self._engine.place(name, source)
        given, flat = place.read(source), place.split(parts)
        count, kind = _moved(given)
        counts = [_moved(part)[0] for part in parts]
        even = len(set(counts)) == 1
        arguments = (given.data_ptr(), flat.data_ptr(), count, kind) if even else (given.data_ptr(), count, flat.data_ptr(), *lists(counts), kind)
        return self._engine.run("allgather" if even else "allgatherv", arguments, opts, future_value(outputs), (given, flat), place)

    def _allgather_together(self, outputs: List[List[Tensor]], inputs: List[Tensor], opts: Any) -> Any:
        """Several tensors of each rank: each list of outputs gets all tensors of all ranks."""
        name, wanted = "all_gather", len(inputs) * self._size
        if len(outputs) != len(inputs) or any(len(parts) != wanted for parts in outputs):
            raise refuse(name, f"{len(inputs)} inputs take as many lists of {wanted} outputs")
        _check_alike(name, *inputs, *(part for parts in outputs for part in parts))
        place = self._engine.place(name, inputs[0])
        given = place.join(inputs)
        flat = place.empty(given.numel() * self._size, given.dtype)
        for rank, part in enumerate(flat.chunk(wanted)):
            place.copy_to(part, [parts[rank] for parts in outputs])
        count, kind = _moved(given)
        return self._engine.run("allgather", (given.data_ptr(), flat.data_ptr(), count, kind), opts, outputs, (given, flat), place)

    def gather(self, outputs: List[List[Tensor]], inputs: List[Tensor], opts: Any) -> Any:
        name, source = "gather", _only(inputs, "gather", "input")
        place = self._engine.place(name, source)
        given = place.read(source)
        count, kind = _moved(given)
        if self._rank != opts.rootRank:
            if outputs:
                raise refuse(name, "outputs were given on a rank that is not the root")
            return self._engine.run(name, (given.data_ptr(), None, count, kind, opts.rootRank), opts, outputs, given, place)
        if len(outputs) != 1 or len(outputs[0]) != self._size:
            raise refuse(name, f"{self._size} outputs are taken on the root, one for each rank")
        _check_equal(name, source, *outputs[0])
        flat = place.split(outputs[0])
        arguments = (given.data_ptr(), flat.data_ptr(), count, kind, opts.rootRank)
        return self._engine.run(name, arguments, opts, future_value(outputs), (given, flat), place)

    def gather_single(self, output: Optional[Tensor], source: Tensor, opts: Any) -> Any:
        name = "gather_single"
        check(name, source)
        place = self._engine.place(name, source)
        given = place.read(source)
        count, kind = _moved(given)
        if self._rank != opts.rootRank:
            return self._engine.run("gather", (given.data_ptr(), None, count, kind, opts.rootRank), opts, [], given, place)
        if output is None:
            raise refuse(name, "the root has no output")
        _check_types(name, source, output)
        if output.numel() != source.numel() * self._size:
            raise refuse(name, f"the input is {shown(source)}, the output {shown(output)}: it must have {self._size} times as many elements")
        result = place.write(output)
        arguments = (given.data_ptr(), result.data_ptr(), count, kind, opts.rootRank)
        return self._engine.run("gather", arguments, opts, [output], (given, result), place)

    def scatter(self, outputs: List[Tensor], inputs: List[List[Tensor]], opts: Any) -> Any:
        name, output = "scatter", _only(outputs, "scatter", "output")
        place = self._engine.place(name, output)
        result = place.write(output)
        count, kind = _moved(result)
        flat: Optional[Tensor] = None
        if self._rank == opts.rootRank:
            if len(inputs) != 1 or len(inputs[0]) != self._size:
                raise refuse(name, f"{self._size} inputs are taken on the root, one for each rank")
            _check_equal(name, output, *inputs[0])
            flat = place.join(inputs[0])
        elif inputs:
            raise refuse(name, "inputs were given on a rank that is not the root")
        arguments = (None if flat is None else flat.data_ptr(), result.data_ptr(), count, kind, opts.rootRank)
        return self._engine.run(name, arguments, opts, outputs, (flat, result), place)

    def alltoall_single(
        self, output: Tensor, source: Tensor, output_splits: List[int], input_splits: List[int], opts: Any
    ) -> Any:
        name = "all_to_all_single"
        _check_types(name, source, output)
        sides = []
        for tensor, splits, side in ((source, input_splits, "input"), (output, output_splits, "output")):
            if not tensor.dim():
                raise refuse(name, f"the {side} is {shown(tensor)}: it has no rows to be divided")
            rows = tensor.size(0)
            lengths = list(splits) or [rows // self._size] * self._size
            if not splits and rows % self._size:
                raise refuse(name, f"the {side} has {rows} rows: {self._size} ranks need a multiple, or split sizes")
            if len(lengths) != self._size or sum(lengths) != rows or min(lengths) < 0:
                raise refuse(name, f"the {side} has {rows} rows, its split sizes are {lengths}: one for each of {self._size} ranks, and their sum, must fit")
            row = _moved(tensor)[0] // rows if rows else 0
            sides.append(lists([length * row for length in lengths]))
        place = self._engine.place(name, source)
        given, result = place.read(source), place.write(output)
        arguments = (given.data_ptr(), *sides[0], result.data_ptr(), *sides[1], _moved(given)[1])
        return self._engine.run("alltoallv", arguments, opts, [output], (given, result), place)

    def alltoall(self, outputs: List[Tensor], inputs: List[Tensor], opts: Any) -> Any:
        name = "all_to_all"
        if len(outputs) != self._size or len(inputs) != self._size:
            raise refuse(name, f"{self._size} inputs and outputs are taken, one for each rank")
        _check_types(name, *inputs, *outputs)
        place = self._engine.place(name, inputs[0])
        given, result = place.join(inputs), place.split(outputs)
        counts = [lists([_moved(tensor)[0] for tensor in side]) for side in (inputs, outputs)]
        arguments = (given.data_ptr(), *counts[0], result.data_ptr(), *counts[1], _moved(given)[1])
        return self._engine.run("alltoallv", arguments, opts, outputs, (given, result), place)

    # ---- several tensors, each in a call of its own ----

    def _several(self, function: Callable[..., Any], calls: List[Tuple[Any, Any]], opts: Any, outputs: Any) -> Any:
        return _of_each(self._engine.joined([function(output, source, opts) for output, source in calls], outputs), outputs)

    def allgather_coalesced(self, outputs: List[List[Tensor]], inputs: List[Tensor], opts: Any) -> Any:
        calls = [([[of_rank[i] for of_rank in outputs]], [source]) for i, source in enumerate(inputs)]
        return self._several(self.allgather, calls, opts, outputs)

    def allgather_single_coalesced(self, outputs: List[Tensor], inputs: List[Tensor], opts: Any) -> Any:
        return self._several(self.allgather_single, list(zip(outputs, inputs)), opts, outputs)

    def reduce_scatter_single_coalesced(self, outputs: List[Tensor], inputs: List[Tensor], opts: Any) -> Any:
        return self._several(self.reduce_scatter_single, list(zip(outputs, inputs)), opts, outputs)

    def start_coalescing(self) -> None:
        self._engine.start_coalescing()

    def end_coalescing(self) -> Any:
        return self._engine.end_coalescing()

    # ---- messages and barriers ----

    @staticmethod
    def _check_message(operation: str, peer: int, tag: int) -> None:
        """The library refuses what is out of range, but a longer number would be cut to another one."""
        for what, number in (("peer", peer), ("tag", tag)):
            if not -_MOST_INT <= index(number) <= _MOST_INT:
                raise refuse(operation, f"the {what} {number} is out of range: the largest is {_MOST_INT}")

    def send(self, tensors: List[Tensor], peer: int, tag: int) -> Any:
        tensor = _only(tensors, "send")
        self._check_message("send", peer, tag)
        place = OnHost(self._engine, "send")
        given = place.read(tensor)
        arguments = (given.data_ptr(), *_moved(given), peer, tag)
        return self._engine.message("send_tagged", arguments, tensors, (given, place), waits=_is_awaited())

    def recv(self, tensors: List[Tensor], peer: int, tag: int) -> Any:
        tensor = _only(tensors, "recv")
        self._check_message("recv", peer, tag)
        place = OnHost(self._engine, "recv", tensor.device if tensor.is_cuda else None)
        result, source = place.write(tensor), ctypes.c_int(peer)
        arguments = (result.data_ptr(), *_moved(result), peer, tag, ctypes.byref(source))
        waits = peer != _ANY_SOURCE and _is_awaited()  # else the caller asks the work for the source
        return self._engine.message("recv_tagged", arguments, tensors, (result, place), place.after, source, waits)

    def recv_anysource(self, tensors: List[Tensor], tag: int) -> Any:
        return self.recv(tensors, _ANY_SOURCE, tag)

    def barrier(self, opts: Any) -> Any:
        self._engine.drain()
        return self._engine.run("barrier", (), opts, [], None, OnHost(self._engine, "barrier"))

    def monitored_barrier(self, timeout: Optional[timedelta], wait_all_ranks: bool) -> None:
        """All ranks report to rank 0, which answers when all have. Errors begin with Gloo's words, which programs look for;
        ``wait_all_ranks``, on rank 0: they name all ranks that have not come, not only the first."""
        self._engine.drain()
        limit = seconds(self._engine.timeout if timeout is None else timeout)
        if limit <= 0 and self._rank == 0:
            raise BackendError("Rank 0 timed out in monitoredBarrier after 0 ms")
        with self._engine.deadline(limit + _GRACE_S):  # the end of the limit is noticed here
            if self._rank == 0:
                self._collect_reports(limit, wait_all_ranks)
            else:
                self._report(limit)

    def _report(self, limit: float) -> None:
        token = torch.zeros(1, dtype=torch.uint8)
        try:
            self.send([token], 0, _BARRIER_TAG)
            self.recv([token.clone()], 0, _BARRIER_TAG).wait()
        except BackendError as error:
            me = self._engine.ranks[self._rank]
            error.args = (
                f"[Rank {me}]: Rank {me} successfully reached monitoredBarrier, but received errors while waiting for send/recv "
                f"from rank 0. Please check rank 0 logs for faulty rank: {error}",
            )
            raise

    def _collect_reports(self, limit: float, wait_all_ranks: bool) -> None:
        deadline, missing = time.monotonic() + limit, []
        reports = {rank: self.recv([torch.zeros(1, dtype=torch.uint8)], rank, _BARRIER_TAG) for rank in range(1, self._size)}
        for rank, report in reports.items():
            while not report.is_completed() and time.monotonic() < deadline:
                time.sleep(100e-6)
            if not report.is_success():
                missing.append(rank)
                if not wait_all_ranks:
                    break
        if not missing:
            for work in [self.send([torch.zeros(1, dtype=torch.uint8)], rank, _BARRIER_TAG) for rank in reports]:
                work.wait()
            return
        self._engine.abort()  # the ranks that wait for the answer need not wait for their timeouts
        hosts = [f"rank {rank} ({self._engine.comm.host(rank)})" for rank in missing]
        numbers = ", ".join(str(self._engine.ranks[rank]) for rank in missing)
        told = BackendError(
            f"[Rank {self._engine.ranks[0]}]: Rank{'s' if wait_all_ranks else ''} {numbers} failed to pass monitoredBarrier in "
            f"{limit * 1000:.0f} ms: {self._engine.members.renumbered(', '.join(hosts))}"
        )
        told.rank, told.group_rank = self._engine.ranks[missing[0]], missing[0]
        told.host, told.operation = self._engine.comm.host(missing[0]), "monitored_barrier"
        raise told
