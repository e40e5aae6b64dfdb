"""Collectives that reduce, of dense and of sparse tensors."""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict, List

import torch
from amldist.torch._base import Tensor
from amldist.torch._movement import Movement
from amldist.torch._tensors import OnHost, as_real, check, check_alike, check_root_tensor, copied_to, is_lazy, lists, refuse, resolved, shown, spread
from amldist.torch._work import DoneWork

#: What libdist's operators do with two tensors of one rank, by their numbers.
_LOCALLY: Dict[int, Callable[[Tensor, Tensor], Tensor]] = {
    0: torch.add, 1: torch.mul, 2: torch.maximum, 3: torch.minimum,
    5: torch.bitwise_and, 6: torch.bitwise_or, 7: torch.bitwise_xor,
}  # fmt: skip


class Reductions(Movement):
    """Sums and their like. Sparse tensors are gathered and added up, hence the base."""

    def allreduce(self, tensors: List[Tensor], opts: Any) -> Any:
        if not tensors:
            raise refuse("all_reduce", "no tensor was given")
        tensor = tensors[0]
        if tensor.layout is not torch.strided:
            return self._sparse(tensors, opts)
        if len(tensors) > 1:
            return self._allreduce_together(tensors, opts)
        if tensor.device.type != "cpu" or not tensor.is_contiguous() or is_lazy(tensor):
            self._in_place(tensors, "all_reduce")
        operator, factor = self._operator(opts.reduceOp, "all_reduce")
        kind = self._type(tensor, "all_reduce")
        place = self._place(tensor, "all_reduce", (kind, operator))
        data = place.both(tensor)
        if factor is not None:
            with torch.no_grad():
                data.mul_(factor)
        address = data.data_ptr()
        return self._call("allreduce", (address, address, data.numel(), kind, operator), opts, tensors, data, place)

    def _allreduce_together(self, tensors: List[Tensor], opts: Any) -> Any:
        """Several tensors of a rank count as if several ranks had given one each, and all get the result."""
        name = "all_reduce"
        operator, factor = self._operator(opts.reduceOp, name)
        if operator not in _LOCALLY or factor is not None:
            raise refuse(name, f"{len(tensors)} tensors were given: with this operator one for each rank is taken")
        check_alike(tensors, name)
        data = functools.reduce(_LOCALLY[operator], [tensor.detach() for tensor in tensors]).contiguous()
        arguments = (data.data_ptr(), data.data_ptr(), data.numel(), self._type(data, name), operator)
        return self._call("allreduce", arguments, opts, tensors, data, OnHost(), copied_to(data, tensors))

    def allreduce_coalesced(self, tensors: List[Tensor], opts: Any) -> Any:
        for tensor in tensors:
            check(tensor, "all_reduce_coalesced")
        if len({tensor.dtype for tensor in tensors}) != 1:
            raise refuse("all_reduce_coalesced", "the tensors have different types: reduce those of each type together")
        operator, factor = self._operator(opts.reduceOp, "all_reduce_coalesced")
        kind = self._type(tensors[0], "all_reduce_coalesced")
        place = self._place(tensors[0], "all_reduce_coalesced", (kind, operator))
        flat = place.join(tensors)
        if factor is not None:
            flat.mul_(factor)
        arguments = (flat.data_ptr(), flat.data_ptr(), flat.numel(), kind, operator)
        return self._of_each(self._call("allreduce", arguments, opts, tensors, flat, place, spread(flat, tensors)), tensors)

    def _sparse(self, tensors: List[Tensor], opts: Any) -> Any:
        """The sum of sparse tensors: everybody gets all indices and values, and adds them up."""
        tensor = tensors[0]
        operator, _factor = self._operator(opts.reduceOp, "all_reduce")
        if operator != 0 or any(each.layout is not torch.sparse_coo or each.shape != tensor.shape for each in tensors):
            raise refuse("all_reduce", f"sparse tensors are taken in layout sparse_coo, of one shape, with SUM ({tensor.layout})")
        given = functools.reduce(torch.add, tensors).coalesce().cpu()
        counts = torch.empty(self.size, dtype=torch.int64)
        self.allgather_single(counts, torch.tensor([given._nnz()]), opts).wait()
        parts = []
        for part in (given.indices().t().contiguous(), given.values().contiguous()):
            everything = torch.empty((int(counts.sum()), *part.shape[1:]), dtype=part.dtype)
            self._gather_uneven(list(torch.split(everything, counts.tolist())), everything, part, opts, OnHost()).wait()
            parts.append(everything)
        total = torch.sparse_coo_tensor(parts[0].t(), parts[1], tensor.shape).coalesce()
        for each in tensors:
            each.copy_(total.to(each.device))
        return DoneWork(tensors)

    def allreduce_sparse(self, tensors: List[Tensor], opts: Any) -> Any:
        return self._sparse(tensors, opts)

    def reduce(self, tensors: List[Tensor], opts: Any) -> Any:
        check_root_tensor(tensors, opts, "reduce")
        tensor = as_real(self._in_place(tensors, "reduce"), opts)
        operator, factor = self._operator(opts.reduceOp, "reduce")
        kind = self._type(tensor, "reduce")
        place = self._place(tensor, "reduce", (kind, operator))
        data = place.both(tensor) if self.rank == opts.rootRank else place.read(tensor)
        if factor is not None:
            with torch.no_grad():
                data = data.mul_(factor) if self.rank == opts.rootRank else data * factor
        address = data.data_ptr()
        arguments = (address, address if self.rank == opts.rootRank else None, data.numel(), kind, operator, opts.rootRank)
        return self._call("reduce", arguments, opts, tensors, data, place)

    def reduce_scatter_single(self, output: Tensor, source: Tensor, opts: Any) -> Any:
        name = "reduce_scatter_tensor"
        if source.dtype != output.dtype:
            raise refuse(name, f"the input is {shown(source)}, the output {shown(output)}: the types must be equal")
        if source.numel() != output.numel() * self.size:
            raise refuse(name, f"the input is {shown(source)}, the output {shown(output)}: it must have {self.size} times as many elements")
        check(source, name)
        self._check_whole(output, name)
        told, output, source = [output], as_real(output, opts), as_real(resolved(source), opts)
        operator, factor = self._operator(opts.reduceOp, name)
        kind = self._type(output, name)
        place = self._place(source, name, (kind, operator))
        given, result, after = self._in_rows(output, source, place)
        if factor is not None:
            given = given * factor
        arguments = (given.data_ptr(), result.data_ptr(), result.numel(), kind, operator)
        return self._call("reduce_scatter", arguments, opts, told, (given, result), place, after)

    def reduce_scatter(self, outputs: List[Tensor], inputs: List[List[Tensor]], opts: Any) -> Any:
        if len(outputs) != 1 or len(inputs) != 1 or len(inputs[0]) != self.size:
            raise refuse("reduce_scatter", f"one output and {self.size} inputs are taken, one for each rank")
        output, parts = outputs[0], inputs[0]
        if parts[self.rank].numel() != output.numel() or any(part.dtype != output.dtype for part in parts):
            raise refuse("reduce_scatter", f"the output is {shown(output)}, the input for this rank {shown(parts[self.rank])}")
        for tensor in (output, *parts):
            check(tensor, "reduce_scatter")
        output, parts = as_real(output, opts), [as_real(resolved(part), opts) for part in parts]
        operator, factor = self._operator(opts.reduceOp, "reduce_scatter")
        kind = self._type(output, "reduce_scatter")
        place = self._place(output, "reduce_scatter", (kind, operator))
        flat, result = place.join(parts), place.empty(output.numel(), output.dtype)
        if factor is not None:
            flat.mul_(factor)
        buffers, keep, after = (flat.data_ptr(), result.data_ptr()), (flat, result), spread(result, [output])
        if all(part.numel() == output.numel() for part in parts):
            return self._call("reduce_scatter", (*buffers, output.numel(), kind, operator), opts, outputs, keep, place, after)
        counts = lists([part.numel() for part in parts])
        return self._call("reduce_scatterv", (*buffers, *counts, kind, operator), opts, outputs, keep, place, after)

    def reduce_scatter_single_coalesced(self, outputs: List[Tensor], inputs: List[Tensor], opts: Any) -> Any:
        return self._several([(self.reduce_scatter_single, (output, source)) for output, source in zip(outputs, inputs)], opts, outputs)
