"""How c10d's methods may be called: PyTorch's C++ gives tensors and options; people may leave the options out, give one of
their fields instead, or give arguments by name (the methods of torch._C._distributed_c10d.Backend)."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import torch
import torch._C._distributed_c10d as c10d


class Form(NamedTuple):
    """Of one method: the names of each argument before the options, and how deep it is in lists; what its options are,
    and which of their fields may be given in their place."""

    names: Tuple[Tuple[str, ...], ...]
    depths: Tuple[int, ...]
    options: Any
    fields: Tuple[str, ...] = ()


#: The short names of fields of options.
_FIELDS = {"op": "reduceOp", "root": "rootRank", "timeout": "timeout"}
_OUTPUTS = ("output_tensors", "output_tensor", "output", "outputs", "output_lists", "outputTensor")
_INPUTS = ("input_tensors", "input_tensor", "input", "inputs", "input_list", "inputTensor")
_PAIR = (_OUTPUTS, _INPUTS)
_TENSORS = (("tensors", "tensor"),)
_SPLITS = (("output_split_sizes",), ("input_split_sizes",))

_ALLGATHER = Form(_PAIR, (0, 0), c10d.AllgatherOptions)
_REDUCE_SCATTER = Form(_PAIR, (0, 0), c10d.ReduceScatterOptions, ("op",))
_ALLTOALL = Form(_PAIR + _SPLITS, (0, 0, 0, 0), c10d.AllToAllOptions)
FORMS: Dict[str, Form] = {
    "allreduce": Form(_TENSORS, (1,), c10d.AllreduceOptions, ("op",)),
    "allreduce_sparse": Form(_TENSORS, (1,), c10d.AllreduceOptions, ("op",)),
    "allreduce_coalesced": Form(_TENSORS, (1,), c10d.AllreduceCoalescedOptions, ("op",)),
    "reduce": Form(_TENSORS, (1,), c10d.ReduceOptions, ("root", "op")),
    "broadcast": Form(_TENSORS, (1,), c10d.BroadcastOptions, ("root",)),
    "allgather": Form(_PAIR, (2, 1), c10d.AllgatherOptions),
    "allgather_coalesced": Form(_PAIR, (2, 1), c10d.AllgatherOptions),
    "all_gather_single": _ALLGATHER,
    "_allgather_base": _ALLGATHER,
    "all_gather_single_coalesced": Form(_PAIR, (1, 1), c10d.AllgatherOptions),
    "allgather_into_tensor_coalesced": Form(_PAIR, (1, 1), c10d.AllgatherOptions),
    "gather": Form(_PAIR, (2, 1), c10d.GatherOptions, ("root",)),
    "gather_single": Form(_PAIR, (0, 0), c10d.GatherOptions, ("root",)),
    "gather_into_tensor": Form(_PAIR, (0, 0), c10d.GatherOptions, ("root",)),
    "scatter": Form(_PAIR, (1, 2), c10d.ScatterOptions, ("root",)),
    "reduce_scatter": Form(_PAIR, (1, 2), c10d.ReduceScatterOptions, ("op",)),
    "reduce_scatter_single": _REDUCE_SCATTER,
    "_reduce_scatter_base": _REDUCE_SCATTER,
    "reduce_scatter_single_coalesced": Form(_PAIR, (1, 1), c10d.ReduceScatterOptions, ("op",)),
    "reduce_scatter_tensor_coalesced": Form(_PAIR, (1, 1), c10d.ReduceScatterOptions, ("op",)),
    "alltoall": Form(_PAIR, (1, 1), c10d.AllToAllOptions),
    "all_to_all_single": _ALLTOALL,
    "alltoall_base": _ALLTOALL,
    "send": Form(_TENSORS + (("dstRank", "dst"), ("tag",)), (1, 0, 0), None),
    "recv": Form(_TENSORS + (("srcRank", "src"), ("tag",)), (1, 0, 0), None),
    "recv_anysource": Form(_TENSORS + (("tag",),), (1, 0), None),
    "barrier": Form((), (), c10d.BarrierOptions),
}


def is_full(name: str, arguments: Tuple[Any, ...]) -> bool:
    """Whether the arguments are those that PyTorch's C++ gives: all of them, with the options."""
    form = FORMS.get(name)
    if form is None:
        return True
    before = len(form.names)
    if form.options is None:
        return len(arguments) == before and not isinstance(arguments[0], torch.Tensor)
    return len(arguments) == before + 1 and type(arguments[before]) is form.options


def completed(name: str, arguments: Tuple[Any, ...], named: Dict[str, Any]) -> Tuple[Any, ...]:
    """The arguments that PyTorch's C++ would give for these. TypeError: there is no such form of the method."""
    form, given, named = FORMS[name], list(arguments), dict(named)
    before = _in_lists(form, [_taken(name, names, given, named) for names in form.names])
    out = before if form.options is None else [*before, _options(form, given, named)]
    if given or named:
        raise TypeError(f"amldist: {name}() does not take {', '.join([*map(repr, given), *named])}")
    return tuple(out)


def _is_options(value: Any) -> bool:
    return hasattr(value, "timeout")  # all classes of options have one; operators, roots and lists do not


def _taken(method: str, names: Tuple[str, ...], given: List[Any], named: Dict[str, Any]) -> Any:
    """The next argument, or the one of these names."""
    if given:
        return given.pop(0)
    name: Optional[str] = next((name for name in names if name in named), None)
    if name is None:
        raise TypeError(f"amldist: {method}() lacks its argument {names[0]}")
    return named.pop(name)


def _options(form: Form, given: List[Any], named: Dict[str, Any]) -> Any:
    if given and _is_options(given[0]):
        return given.pop(0)
    if "opts" in named:
        return named.pop("opts")
    options = form.options()
    for field in (*form.fields, "timeout"):
        value = given.pop(0) if given else named.pop(field, None)
        if value is not None:
            setattr(options, _FIELDS[field], value)
    return options


def _in_lists(form: Form, before: List[Any]) -> List[Any]:
    """A tensor in the place of a list of one; then the other argument is one list short, too. A rank that gathers nothing
    gives an empty list in either case."""
    short = any(depth > 0 and isinstance(value, torch.Tensor) for depth, value in zip(form.depths, before))
    if not short:
        return before
    return [value if depth == 0 or value == [] else [value] for depth, value in zip(form.depths, before)]
