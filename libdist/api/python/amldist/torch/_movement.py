"""Collectives that move data: tensors become addresses, lists of tensors one buffer."""

from __future__ import annotations

from typing import Any, Callable, List, Optional

import torch
from amldist.torch._base import Group, Tensor
from amldist.torch._tensors import OnHost, check, check_alike, check_root_tensor, copied_to, lists, only_one, refuse, resolved, shown, spread


def _told(outputs: List[List[Tensor]]) -> Any:
    """What a future of gathered tensors holds: on CPUs, as Gloo's, one tensor for each rank; on GPUs, as NCCL's, something
    whose first element has the ranks as elements."""
    return outputs[0] if outputs[0][0].device.type == "cpu" else outputs


class Movement(Group):
    """Broadcast, gather, scatter and all-to-all, of any type."""

    def broadcast(self, tensors: List[Tensor], opts: Any) -> Any:
        check_root_tensor(tensors, opts, "broadcast")
        if len(tensors) > 1:
            return self._broadcast_to_all(tensors, opts)
        tensor = self._in_place(tensors, "broadcast")
        place = self._place(tensor, "broadcast")
        data = place.both(tensor)
        count, kind = self._moved(data)
        return self._call("broadcast", (data.data_ptr(), count, kind, opts.rootRank), opts, tensors, data, place)

    def _broadcast_to_all(self, tensors: List[Tensor], opts: Any) -> Any:
        """One of the root's tensors, to all tensors of all ranks."""
        check_alike(tensors, "broadcast")
        data = tensors[opts.rootTensor].detach().clone(memory_format=torch.contiguous_format)
        count, kind = self._moved(data)
        arguments = (data.data_ptr(), count, kind, opts.rootRank)
        return self._call("broadcast", arguments, opts, tensors, data, OnHost(), copied_to(data, tensors))

    def allgather_single(self, output: Tensor, source: Tensor, opts: Any) -> Any:
        name = "all_gather_into_tensor"
        if source.dtype != output.dtype:
            raise refuse(name, f"the input is {shown(source)}, the output {shown(output)}: the types must be equal")
        if output.numel() != source.numel() * self.size:
            raise refuse(name, f"the input is {shown(source)}, the output {shown(output)}: it must have {self.size} times as many elements")
        self._check_whole(output, name)
        check(source, name)
        place = self._place(source, name)
        given, result, after = self._in_rows(output, source, place)
        count, kind = self._moved(given)
        return self._call("allgather", (given.data_ptr(), result.data_ptr(), count, kind), opts, [output], (given, result), place, after)

    def allgather_single_coalesced(self, outputs: List[Tensor], inputs: List[Tensor], opts: Any) -> Any:
        return self._several([(self.allgather_single, (output, source)) for output, source in zip(outputs, inputs)], opts, outputs)

    def allgather(self, outputs: List[List[Tensor]], inputs: List[Tensor], opts: Any) -> Any:
        if len(inputs) > 1:
            return self._allgather_together(outputs, inputs, opts)
        if len(outputs) != 1 or len(inputs) != 1 or len(outputs[0]) != self.size:
            raise refuse("all_gather", f"one input and {self.size} outputs are taken, one for each rank")
        source, parts = inputs[0], outputs[0]
        for tensor in (source, *parts):
            check(tensor, "all_gather")
            if tensor.dtype != source.dtype:
                raise refuse("all_gather", f"the input is {shown(source)}, an output {shown(tensor)}: the types must be equal")
        if parts[self.rank].numel() != source.numel():
            raise refuse("all_gather", f"the input is {shown(source)}, the output for it {shown(parts[self.rank])}")
        place = self._place(source, "all_gather")
        given = place.read(resolved(source.detach()).contiguous())
        flat = place.empty(sum(part.numel() for part in parts), source.dtype)
        after = spread(flat, parts)
        if any(part.numel() != source.numel() for part in parts):
            return self._gather_uneven(parts, flat, given, opts, place, after)
        count, kind = self._moved(given)
        told = _told(outputs)
        return self._call("allgather", (given.data_ptr(), flat.data_ptr(), count, kind), opts, told, (given, flat), place, after)

    def _allgather_together(self, outputs: List[List[Tensor]], inputs: List[Tensor], opts: Any) -> Any:
        """Several tensors of each rank: each list of outputs gets all tensors of all ranks."""
        wanted = len(inputs) * self.size
        if len(outputs) != len(inputs) or any(len(parts) != wanted for parts in outputs):
            raise refuse("all_gather", f"{len(inputs)} inputs take as many lists of {wanted} outputs")
        check_alike([*inputs, *(part for parts in outputs for part in parts)], "all_gather")
        place = OnHost()
        given = place.join(inputs)
        flat = place.empty(given.numel() * self.size, given.dtype)
        count, kind = self._moved(given)
        copies = [spread(flat, parts) for parts in outputs]
        arguments = (given.data_ptr(), flat.data_ptr(), count, kind)
        return self._call("allgather", arguments, opts, outputs, (given, flat), place, lambda: [copy() for copy in copies])

    def _gather_uneven(
        self,
        parts: List[Tensor],
        flat: Tensor,
        given: Tensor,
        opts: Any,
        place: OnHost,
        after: Optional[Callable[[], object]] = None,
    ) -> Any:
        count, kind = self._moved(given)
        counts = [self._moved(part)[0] for part in parts]
        arguments = (given.data_ptr(), count, flat.data_ptr(), *lists(counts), kind)
        return self._call("allgatherv", arguments, opts, _told([parts]), (given, flat), place, after)

    def allgather_coalesced(self, outputs: List[List[Tensor]], inputs: List[Tensor], opts: Any) -> Any:
        calls = [
            (self.allgather, ([[of_rank[i] for of_rank in outputs]], [source])) for i, source in enumerate(inputs)
        ]
        return self._several(calls, opts, outputs)

    def gather(self, outputs: List[List[Tensor]], inputs: List[Tensor], opts: Any) -> Any:
        source = only_one(inputs, "gather", "input")
        place = self._place(source, "gather")
        given = place.read(resolved(source.detach()).contiguous())
        count, kind = self._moved(given)
        if self.rank != opts.rootRank:
            if outputs:
                raise refuse("gather", "outputs were given on a rank that is not the root")
            return self._call("gather", (given.data_ptr(), None, count, kind, opts.rootRank), opts, outputs, given, place)
        if len(outputs) != 1 or len(outputs[0]) != self.size:
            raise refuse("gather", f"{self.size} outputs are taken on the root, one for each rank")
        for part in outputs[0]:
            if part.numel() != source.numel() or part.dtype != source.dtype:
                raise refuse("gather", f"the input is {shown(source)}, an output {shown(part)}: they must be equal")
        flat = place.empty(source.numel() * self.size, source.dtype)
        arguments = (given.data_ptr(), flat.data_ptr(), count, kind, opts.rootRank)
        told = _told(outputs)
        return self._call("gather", arguments, opts, told, (given, flat), place, spread(flat, outputs[0]))

    def scatter(self, outputs: List[Tensor], inputs: List[List[Tensor]], opts: Any) -> Any:
        output = only_one(outputs, "scatter", "output")
        place = self._place(output, "scatter")
        result = place.empty(output.numel(), output.dtype)
        count, kind = self._moved(result)
        flat: Optional[Tensor] = None
        if self.rank == opts.rootRank:
            if len(inputs) != 1 or len(inputs[0]) != self.size:
                raise refuse("scatter", f"{self.size} inputs are taken on the root, one for each rank")
            for part in inputs[0]:
                if part.numel() != output.numel() or part.dtype != output.dtype:
                    raise refuse("scatter", f"the output is {shown(output)}, an input {shown(part)}: they must be equal")
            flat = place.join(inputs[0])
        elif inputs:
            raise refuse("scatter", "inputs were given on a rank that is not the root")
        arguments = (None if flat is None else flat.data_ptr(), result.data_ptr(), count, kind, opts.rootRank)
        return self._call("scatter", arguments, opts, outputs, (flat, result), place, spread(result, outputs))

    def alltoall_single(
        self, output: Tensor, source: Tensor, output_splits: List[int], input_splits: List[int], opts: Any
    ) -> Any:
        name = "all_to_all_single"
        self._check_whole(output, name)
        check(source, name)
        if output.dtype != source.dtype:
            raise refuse(name, f"the input is {shown(source)}, the output {shown(output)}: the types must be equal")
        place = self._place(source, name)
        given, result, after = self._in_rows(output, source, place)
        sides = []
        for tensor, splits, side in ((source, input_splits, "input"), (output, output_splits, "output")):
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
        return self._call("alltoallv", arguments, opts, [output], (given, result), place, after)

    def alltoall(self, outputs: List[Tensor], inputs: List[Tensor], opts: Any) -> Any:
        if len(outputs) != self.size or len(inputs) != self.size:
            raise refuse("all_to_all", f"{self.size} inputs and outputs are taken, one for each rank")
        for tensor in (*outputs, *inputs):
            check(tensor, "all_to_all")
            if tensor.dtype != inputs[0].dtype:
                raise refuse("all_to_all", f"an input is {shown(inputs[0])}, another tensor {shown(tensor)}: the types must be equal")
        place = self._place(inputs[0], "all_to_all")
        flat = place.join(inputs)
        result = place.empty(sum(tensor.numel() for tensor in outputs), flat.dtype)
        counts = [[self._moved(tensor)[0] for tensor in side] for side in (inputs, outputs)]
        arguments = (flat.data_ptr(), *lists(counts[0]), result.data_ptr(), *lists(counts[1]), self._moved(flat)[1])
        return self._call("alltoallv", arguments, opts, outputs, (flat, result), place, spread(result, outputs))
