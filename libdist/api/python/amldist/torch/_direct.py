"""The compiled way of the most frequent calls, where it is there: see extension/torch_calls.c."""

from __future__ import annotations

import ctypes
import os
import sys
import types as python_types
from datetime import timedelta
from typing import Any, Dict, NoReturn, Tuple

import torch
import torch.distributed as dist
from amldist._library import lib
from amldist.torch import _group
from amldist.torch._base import OPERATORS, TYPES
from amldist.torch._engine import Engine
from amldist.torch._work import promised

#: "0": every call takes the way through Python.
VARIABLE = "AMLDIST_TORCH_COMPILED"
#: Numbers of the extension's calls.
_ALLREDUCE, _BROADCAST, _BARRIER, _ALLGATHER, _REDUCE_SCATTER = range(5)
_METHODS = {
    "allreduce": _ALLREDUCE, "broadcast": _BROADCAST, "barrier": _BARRIER, "_allgather_base": _ALLGATHER,
    "all_gather_single": _ALLGATHER, "_reduce_scatter_base": _REDUCE_SCATTER, "reduce_scatter_single": _REDUCE_SCATTER,
}  # fmt: skip
_FUNCTIONS = ("allreduce", "broadcast", "barrier", "allgather", "reduce_scatter")


def _fail(engine: Engine, status: int) -> NoReturn:
    raise engine._error(status)


def _is_watched() -> bool:
    """A profiler, or a mode that wants to see or to replace the calls; or callbacks that come before the next call."""
    return _group._is_intercepted() or _group._profiler_enabled() or bool(promised)


def _facts() -> Dict[str, Any]:
    types: Dict[torch.dtype, Tuple[int, int]] = {kind: (number, kind.itemsize) for kind, number in TYPES.items()}
    return {
        "tensor": torch.Tensor, "parameter": torch.nn.Parameter, "strided": torch.strided,
        "unset": timedelta(milliseconds=-1), "is_contiguous": torch.Tensor.is_contiguous, "numel": torch.Tensor.numel,
        "is_neg": torch.Tensor.is_neg, "data_ptr": torch.Tensor.data_ptr, "fail": _fail, "is_watched": _is_watched, "bound": python_types.MethodType,
        "types": types, "operators": {int(kind): number for kind, number in OPERATORS.items()},
    }  # fmt: skip


def why_not() -> str:
    """Why there are no compiled methods here, in a few words; empty: there are."""
    if os.environ.get(VARIABLE) == "0":
        return f"{VARIABLE}=0 asks for that"
    if not hasattr(dist.AllreduceOptions(), "asyncOp"):
        return f"PyTorch {torch.__version__} does not tell a back end whether the program waits"
    if sys.version_info < (3, 10):
        return "Python is older than 3.10"
    try:
        from amldist.torch import _calls  # type: ignore[attr-defined]  # noqa: F401
    except ImportError:
        return "the package was built without Python's headers"
    return ""


def install() -> bool:
    """Puts compiled methods before those of the class of process groups. False: there are none here (``why_not``)."""
    if why_not():
        return False
    from amldist.torch import _calls  # type: ignore[attr-defined]

    addresses = {name: ctypes.cast(getattr(lib, f"amldist_{name}"), ctypes.c_void_p).value for name in _FUNCTIONS}
    names = {name: call for name, call in _METHODS.items() if name in vars(_group.AmldistGroup)}
    _calls.install(_group.AmldistGroup, names, addresses, _facts())
    return True
