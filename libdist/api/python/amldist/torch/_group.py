"""The two shapes in which PyTorch takes a back end.

A Backend is one device's part of a process group that PyTorch made: every call goes through its dispatcher, and what it
hands back to Python is a shell around our Work that knows only wait() and get_future(). A ProcessGroup of our own gets
the calls of torch.distributed's functions directly. It is used where the whole group is ours ("amldist",
"cpu:amldist,cuda:amldist"); under a dispatch mode or with tensors of another class it hands the call to
PyTorch's dispatcher, which comes back to the Backend.

Older releases, such as 2.6, let Python make no Backend. There every group is one of our own, on all devices.
"""

from __future__ import annotations

import sys
import weakref
from datetime import timedelta
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

import torch
import torch.distributed as dist
from amldist.torch import _forms
from amldist.torch._engine import Engine
from torch._C._distributed_c10d import Backend

NAME = "amldist"
DEVICES = ["cpu", "cuda"]
_PLAIN = (torch.Tensor, torch.nn.Parameter)


def _can_be_a_backend() -> bool:
    """Whether this PyTorch lets a class of Python be a Backend."""
    try:
        type("Probe", (Backend,), {})(0, 1)
    except TypeError:
        return False
    return True


PARTS = _can_be_a_backend()
_Base: Any = Backend if PARTS else object

#: Python's halves of the back ends that live: C++ holds only the other half.
_living: Set["AmldistBackend"] = set()


class _Options(Backend.Options):
    """Options of a group; split_group() and get_group_options() hand them round."""

    def __init__(self, timeout: timedelta) -> None:
        super().__init__(NAME, timeout)


class AmldistBackend(_Base):  # type: ignore[misc]
    """libdist as one device's part of a process group."""

    def __init__(self, engine: Engine, options: Optional[Any] = None) -> None:
        if PARTS:
            super().__init__(engine.rank, engine.size)
        self.engine = engine
        self._options = options if options is not None else _Options(engine._timeout)
        _living.add(self)

    def getBackendName(self) -> str:
        return NAME

    def name(self) -> str:
        return NAME

    @property
    def options(self) -> Any:
        return self._options

    @property
    def supports_splitting(self) -> bool:
        return True

    @property
    def supports_coalescing(self) -> bool:
        return False

    def monitored_barrier(self, opts: Any = None, wait_all_ranks: bool = False, timeout: Any = None) -> None:
        """``opts``: options, as PyTorch's C++ has them, or the timeout itself."""
        self.engine.monitored_barrier(timeout or getattr(opts, "timeout", opts))

    def split(self, store: Any, ranks: List[int], opts: Any) -> Optional["AmldistBackend"]:
        if self.engine.rank not in ranks:
            return None
        timeout = getattr(opts, "_timeout", None) or self.engine._unset
        members = list(ranks)
        engine = Engine(store, members.index(self.engine.rank), len(members), timeout, "")
        return AmldistBackend(engine, opts)

    def perform_nocolor_split(self, device: Any) -> None:
        """Nothing to do: only the members of a new group take part in making it."""

    def eager_connect_single_device(self, device: Any) -> None:
        """The group is connected when it exists; this is about its GPUs."""
        if torch.device(device).type == "cuda":
            self.engine.open_gpu(torch.device(device))

    def set_timeout(self, timeout: timedelta) -> None:
        self.engine.set_timeout(timeout)
        self._options._timeout = timeout

    def _set_default_timeout(self, timeout: timedelta) -> None:
        self.set_timeout(timeout)

    def _set_sequence_number_for_group(self) -> None:
        self.engine.calls = 0

    def _get_sequence_number_for_group(self) -> int:
        return self.engine.calls

    def _wait_for_pending_works(self) -> None:
        for work in list(self.engine._pending):
            work.finish()
        self.engine._drain()

    def abort(self) -> None:
        self.engine.abort()

    def shutdown(self) -> None:
        _living.discard(self)
        self.engine.shutdown()


# What PyTorch's C++ calls, under the names that its releases have used, and what does it here.
_CALLS = {
    ("allreduce",): "allreduce",
    ("allreduce_sparse",): "allreduce_sparse",
    ("allreduce_coalesced",): "allreduce_coalesced",
    ("reduce",): "reduce",
    ("broadcast",): "broadcast",
    ("allgather",): "allgather",
    ("allgather_coalesced",): "allgather_coalesced",
    ("all_gather_single", "_allgather_base"): "allgather_single",
    ("all_gather_single_coalesced", "allgather_into_tensor_coalesced"): "allgather_single_coalesced",
    ("gather",): "gather",
    ("scatter",): "scatter",
    ("reduce_scatter",): "reduce_scatter",
    ("reduce_scatter_single", "_reduce_scatter_base"): "reduce_scatter_single",
    ("reduce_scatter_single_coalesced", "reduce_scatter_tensor_coalesced"): "reduce_scatter_single_coalesced",
    ("alltoall",): "alltoall",
    ("all_to_all_single", "alltoall_base"): "alltoall_single",
    ("send",): "send",
    ("recv",): "recv",
    ("recv_anysource",): "recv_anysource",
    ("barrier",): "barrier",
    ("start_coalescing",): "start_coalescing",
    ("end_coalescing",): "end_coalescing",
}


def _method(name: str, call: str) -> Callable[..., Any]:
    def method(self: AmldistBackend, *arguments: Any, **named: Any) -> Any:
        if named or not _forms.is_full(name, arguments):
            arguments = _forms.completed(name, arguments, named)
        return getattr(self.engine, call)(*arguments)

    return method


# Methods of the class: C++ looks for overrides there.
for _names, _call in _CALLS.items():
    for _name in _names:
        setattr(AmldistBackend, _name, _method(_name, _call))


def _is_plain(argument: Any) -> bool:
    if isinstance(argument, list):
        return all(_is_plain(each) for each in argument)
    return not isinstance(argument, torch.Tensor) or type(argument) in _PLAIN


def _is_intercepted() -> bool:
    """Somebody wants to see or to replace the calls: PyTorch's dispatcher shows them."""
    return bool(torch._C._len_torch_dispatch_stack() > 0)


_profiler_enabled: Callable[[], bool] = getattr(torch.autograd, "_profiler_enabled", lambda: False)


class AmldistGroup(dist.ProcessGroup):
    """A process group that is libdist's on all devices."""

    def __init__(self, store: Any, backend: AmldistBackend) -> None:
        engine = backend.engine
        try:
            super().__init__(store, engine.rank, engine.size)
        except TypeError:  # such as 2.11: with a store they make no group of a class of Python
            super().__init__(engine.rank, engine.size)
        self.engine = engine
        self._backend = backend

    def getBackendName(self) -> str:
        return NAME

    def monitored_barrier(self, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        self.engine.monitored_barrier(timeout)

    def set_timeout(self, timeout: timedelta) -> None:
        self._backend.set_timeout(timeout)

    def recv_anysource(self, tensors: Any, tag: int) -> Any:
        return self.engine.recv_anysource(tensors, tag)

    def _set_sequence_number_for_group(self) -> None:
        self._backend._set_sequence_number_for_group()

    def _get_sequence_number_for_group(self) -> int:
        return self._backend._get_sequence_number_for_group()

    def abort(self) -> None:
        self._backend.abort()

    def shutdown(self) -> None:
        self._backend.shutdown()

    if not PARTS:

        def _get_backend(self, device: Any) -> Any:
            return self._backend

        @property
        def _device_types(self) -> List[Any]:
            return [torch.device(device) for device in DEVICES]

        # A group without parts has nowhere to keep these.
        _name: Any = ""
        _description: Any = ""

        def _set_group_name(self, name: Any) -> None:
            self._name = name

        @property
        def group_name(self) -> Any:
            return self._name

        def _set_group_desc(self, description: Any) -> None:
            self._description = description

        @property
        def group_desc(self) -> Any:
            return self._description


def _leave_to_python(method: Any) -> None:
    """Keeps torch.compile out of a method and of what that calls. torch.compiler.disable() would load the compiler, which takes
    a second, and would stand in every call's way."""
    method._torchdynamo_disable = True  # where it is to be inlined
    frames = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)
    if hasattr(frames, "set_code_exec_strategy"):
        skip = frames._FrameAction.SKIP
        frames.set_code_exec_strategy(method.__code__, frames._FrameExecStrategy(skip, skip))
    elif hasattr(frames, "skip_code"):
        frames.skip_code(method.__code__)


def _direct(name: str, call: str) -> Callable[..., Any]:
    """A call of torch.distributed's functions; what is not quite one of them goes PyTorch's way."""
    shown = _SHOWN.get(call, call)

    def method(self: AmldistGroup, *arguments: Any, **named: Any) -> Any:
        ordinary = not PARTS or (
            not named
            and _forms.is_full(name, arguments)
            and all(_is_plain(argument) for argument in arguments)
            and not _is_intercepted()
        )
        if not PARTS and (named or not _forms.is_full(name, arguments)):
            arguments = _forms.completed(name, arguments, named)
        if ordinary and not _profiler_enabled():
            return getattr(self.engine, call)(*arguments)
        if ordinary:
            with torch.profiler.record_function(f"{NAME}:{shown}"):
                return getattr(self.engine, call)(*arguments)
        return getattr(dist.ProcessGroup, name)(self, *arguments, **named)

    # PyTorch does not call an override from within itself: it goes by the name of the code that calls.
    method.__name__ = name
    method.__code__ = method.__code__.replace(co_name=name)
    _leave_to_python(method)
    return method


_SHOWN = {
    "allreduce": "all_reduce", "allgather": "all_gather", "allgather_single": "_all_gather_base",
    "reduce_scatter_single": "_reduce_scatter_base", "alltoall": "all_to_all", "alltoall_single": "all_to_all",
}  # fmt: skip
_INDIRECT = ("allreduce_sparse", "recv_anysource")  # no method of a group; above
for _names, _call in _CALLS.items():
    for _name in _names:
        if _name in _forms.FORMS and _name not in _INDIRECT and hasattr(dist.ProcessGroup, _name):
            setattr(AmldistGroup, _name, _direct(_name, _call))


def _known_to_torch() -> Tuple[bool, str]:
    """Whether all devices of the group that is being made are ours, and the user's description of it. PyTorch hands a
    back end neither, so this looks at what its caller knows; without that, ours is a part."""
    frame = sys._getframe(1)
    for _level in range(4):
        config = frame.f_locals.get("backend_config")
        if config is not None and hasattr(config, "get_device_backend_map"):
            devices: Dict[str, str] = config.get_device_backend_map()
            described = frame.f_locals.get("group_desc")
            return set(devices.values()) == {NAME}, described if isinstance(described, str) else ""
        if frame.f_back is None:
            break
        frame = frame.f_back
    return False, ""


def _label(described: str, name: str) -> str:
    """What `aml-dist trace` calls a group."""
    return {"default_pg": "", "undefined": f"torch {name}", "": f"torch {name}" if name else ""}.get(described, described)


def _shut_down_with(group: AmldistGroup, backend: AmldistBackend) -> None:
    """PyTorch shuts down a back end that is a part of a group; one that is the whole group it only forgets."""
    _living.discard(backend)
    weakref.finalize(group, backend.shutdown).atexit = False


def create(opts: Any, options: Any = None) -> Any:
    """Makes the back end of a process group; PyTorch calls it in every member."""
    if opts.timeout.total_seconds() <= 0:
        raise ValueError(f"amldist: the group's timeout is {opts.timeout}: it must be more than 0")
    name = str(opts.group_id or "")
    is_whole, described = _known_to_torch()
    engine = Engine(opts.store, opts.group_rank, opts.group_size, opts.timeout, name, _label(described, name))
    backend = AmldistBackend(engine, options if isinstance(options, Backend.Options) else None)
    if not is_whole:
        if PARTS:
            return backend
        backend.shutdown()
        raise ValueError(
            f"amldist: PyTorch {torch.__version__} takes no back end in Python for one device of a group: use "
            'init_process_group("amldist"), or a newer PyTorch'
        )
    group = AmldistGroup(opts.store, backend)
    if not PARTS:
        _shut_down_with(group, backend)
        return group
    for device in DEVICES:
        group._register_backend(torch.device(device), dist.ProcessGroup.BackendType.CUSTOM, backend)
    group._set_default_backend(dist.ProcessGroup.BackendType.CUSTOM)
    return group
