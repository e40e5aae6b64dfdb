"""The two shapes in which PyTorch takes a back end.

A Backend is one device's part of a process group that PyTorch made: every call goes through its dispatcher, and what it
hands back to Python is a shell around our Work that knows only wait() and get_future(). A ProcessGroup of our own gets
the calls of torch.distributed's functions directly. It is used where the whole group is ours ("amldist",
"cpu:amldist,cuda:amldist"). Where something wants to see the calls (a hook, a profiler, a dispatch mode, tensors of another
class) it hands them to PyTorch's dispatcher, which comes back to the Backend, and returns our Work all the same.

Older releases, such as 2.6, let Python make no Backend. There every group is one of our own, on all devices.
"""

from __future__ import annotations

import os
import sys
import threading
import types
import weakref
from datetime import timedelta
from typing import Any, Callable, Dict, List, NoReturn, Optional, Sequence, Set, Tuple

import torch
import torch.distributed as dist
from amldist.torch import _forms
from amldist.torch._calls import Calls
from amldist.torch._engine import Engine
from amldist.torch._work import GroupWork, tensors_in
from torch._C._distributed_c10d import Backend, DebugLevel, PrefixStore, get_debug_level

NAME = "amldist"
DEVICES = ["cpu", "cuda"]
_CUSTOM = dist.ProcessGroup.BackendType.CUSTOM


def _can_be_a_backend() -> bool:
    """Whether this PyTorch lets a class of Python be a Backend."""
    try:
        type("Probe", (Backend,), {})(0, 1)
    except TypeError:
        return False
    return True


PARTS = _can_be_a_backend()
_Base: Any = Backend if PARTS else object

#: The Python halves of the living back ends: C++ holds only the other half.
_living: Set[AmldistBackend] = set()


class _Here(threading.local):
    """The result of this thread's call that went through PyTorch's dispatcher."""

    work: Optional[GroupWork] = None


_here = _Here()
_profiler_enabled: Callable[[], bool] = getattr(torch.autograd, "_profiler_enabled", lambda: False)
_dispatch_modes: Callable[[], int] = torch._C._len_torch_dispatch_stack

# The methods that PyTorch's C++ calls, under the names that its releases have used, and their implementation here.
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
    ("gather_single", "gather_into_tensor"): "gather_single",
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
#: Names in profilers, if they differ.
_SHOWN = {
    "allreduce": "all_reduce", "allgather": "all_gather", "allgather_single": "_all_gather_base",
    "reduce_scatter_single": "_reduce_scatter_base", "alltoall": "all_to_all", "alltoall_single": "all_to_all",
}  # fmt: skip
#: Rows of PyTorch's dispatcher in profilers, if they are not c10d:: with the call's name and _.
_ROWS = {
    "allgather_single": "_allgather_base_", "allgather_single_coalesced": "allgather_into_tensor_coalesced_",
    "reduce_scatter_single": "_reduce_scatter_base_", "reduce_scatter_single_coalesced": "reduce_scatter_tensor_coalesced_",
    "alltoall_single": "alltoall_base_", "send": "send", "recv_anysource": "recv_any_source_", "barrier": "barrier",
}  # fmt: skip
#: Functions of a c10d back end that this one lacks, and the remedy.
_REFUSED = {
    ("merge", "merge_remote_group"): "groups cannot be merged: make a new one with torch.distributed.new_group()",
    ("reconfigure", "get_reconfigure_handle"): "the members of a group cannot be exchanged: destroy it and make a new one",
    ("new_window",): "there are no one-sided calls: use send and recv",
    ("_start_time_estimate", "_end_time_estimate"): "the time of calls cannot be estimated: measure them",
    ("register_abort_hook", "unregister_abort_hook"): "there are no abort hooks: catch torch.distributed.DistBackendError",
    ("_register_on_completion_hook",): "there are no completion hooks: use the future of a work",
    ("suspend", "resume", "memory_stats"): "the group owns no device memory",
    ("allocate_tensor", "mem_allocator"): "tensors are allocated by PyTorch: see amldist.torch.use_library_memory()",
}
_UNSUPPORTED = (
    "supports_coalescing", "supports_reconfigure", "supports_window", "supports_abort_hooks", "supports_completion_hooks",
    "_supports_time_estimate", "supports_time_estimate",
)  # fmt: skip


def _refusal(name: str, sentence: str) -> Callable[..., NoReturn]:
    def method(self: Any, *_arguments: Any, **_named: Any) -> NoReturn:
        raise NotImplementedError(f"amldist: {name}: {sentence}")

    method.__name__ = name
    return method


def _refuses_the_rest_of(base: Any) -> Callable[[Any], Any]:
    """A decorator: methods of a c10d class that this back end lacks raise an error. PyTorch's own would recurse for ever."""

    def refuse(ours: Any) -> Any:
        for names, sentence in _REFUSED.items():
            for name in names:
                if hasattr(base, name):
                    refusal = _refusal(name, sentence)
                    setattr(ours, name, property(refusal) if isinstance(getattr(base, name), property) else refusal)
        for name in _UNSUPPORTED:
            if hasattr(base, name):
                setattr(ours, name, property(lambda self: False))
        return ours

    return refuse


class _Options(Backend.Options):
    """Options of a group; split_group() and get_group_options() pass them around."""

    def __init__(self, timeout: timedelta) -> None:
        super().__init__(NAME, timeout)


@_refuses_the_rest_of(Backend)
class AmldistBackend(_Base):  # type: ignore[misc]
    """libdist as one device's part of a process group."""

    def __init__(self, engine: Engine, options: Optional[Any] = None) -> None:
        if PARTS:
            super().__init__(engine.rank, engine.size)
        self.engine, self.calls = engine, Calls(engine)
        self.is_whole_group = False
        self._options = options if options is not None else _Options(engine.timeout)
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
        """For a part of a group PyTorch's C++ would make a back end for ranks that are in no part, too."""
        return self.is_whole_group

    @property
    def supports_shrinking(self) -> bool:
        return True

    def supports_tensor_alloc(self, _device: Any) -> bool:
        return False

    def monitored_barrier(self, opts: Any = None, wait_all_ranks: bool = False, timeout: Any = None) -> None:
        """``opts``: options, as PyTorch's C++ passes them, or the timeout itself."""
        self.calls.monitored_barrier(timeout or getattr(opts, "timeout", opts), wait_all_ranks)

    def part(self, store: Any, ranks: Sequence[int], timeout: Optional[timedelta], name: str = "", label: str = "") -> AmldistBackend:
        """The back end of a group of some of this one's ranks, in this order; this rank is one of them."""
        mine, limit = self.engine, timeout or self.engine.timeout
        members = [mine.ranks[rank] for rank in ranks]
        return AmldistBackend(Engine(store, list(ranks).index(mine.rank), len(members), limit, name, label, members))

    def split(self, store: Any, ranks: List[int], opts: Any) -> AmldistBackend:
        if self.engine.rank not in ranks:
            raise RuntimeError(f"amldist: split: rank {self.engine.rank} is in no new group: make them with new_group()")
        return self.part(store, ranks, getattr(opts, "_timeout", None))

    def shrink(self, ranks_to_exclude: Sequence[int], _flags: int = 0, _opts: Any = None) -> AmldistBackend:
        """Only the ranks that stay call it."""
        left = [rank for rank in range(self.engine.size) if rank not in ranks_to_exclude]
        store = PrefixStore("shrunk without " + ",".join(map(str, sorted(ranks_to_exclude))), self.engine.store)
        return self.part(store, left, None)

    def perform_nocolor_split(self, device: Any) -> None:
        """Nothing to do: only the members of a new group take part in making it."""

    def eager_connect_single_device(self, device: Any) -> None:
        """The group is connected when it exists; this concerns its GPUs."""
        if torch.device(device).type == "cuda":
            self.engine.open_gpu(torch.device(device))

    def get_error(self) -> Any:
        codes = torch._C._distributed_c10d.ErrorType
        return codes.SUCCESS if self.engine.comm.healthy else codes.COMM_ERROR

    def set_timeout(self, timeout: timedelta) -> None:
        self.engine.timeout = self._options._timeout = timeout

    def _set_default_timeout(self, timeout: timedelta) -> None:
        self.set_timeout(timeout)

    def _set_sequence_number_for_group(self) -> None:
        self.engine.calls = 0

    def _get_sequence_number_for_group(self) -> int:
        return self.engine.calls

    def _wait_for_pending_works(self) -> None:
        self.engine.wait_for_all()

    def _enable_collectives_timing(self) -> None:
        """Accepted as by Gloo: no events of a device could time anything here."""

    def abort(self) -> None:
        self.engine.abort()

    def shutdown(self) -> None:
        _living.discard(self)
        self.engine.shutdown()


def _row(name: str, arguments: Sequence[Any]) -> Any:
    """A context that is a row in profilers, with the shapes of the tensors."""
    with_shapes = getattr(torch._C._profiler, "_RecordFunctionFast", None)
    return torch.profiler.record_function(name) if with_shapes is None else with_shapes(name, tensors_in(list(arguments)))


def _method(name: str, call: str) -> Callable[..., Any]:
    """A call that comes through PyTorch's dispatcher."""
    shown = f"{NAME}:{_SHOWN.get(call, call)}"

    def method(self: AmldistBackend, *arguments: Any, **named: Any) -> Any:
        if named or not _forms.is_full(name, arguments):
            arguments = _forms.completed(name, arguments, named)
        if _profiler_enabled():
            with _row(shown, arguments):
                _here.work = getattr(self.calls, call)(*arguments)
        else:
            _here.work = getattr(self.calls, call)(*arguments)
        return _here.work

    return method


# Methods of the class: C++ looks for overrides there.
for _names, _call in _CALLS.items():
    for _name in _names:
        setattr(AmldistBackend, _name, _method(_name, _call))


#: Whether the dispatcher need not see a value of this class.
_plain_classes: Dict[type, bool] = {torch.Tensor: True, torch.nn.Parameter: True}


def _is_plain(argument: Any) -> bool:
    kind = type(argument)
    if kind is list:
        return all(map(_is_plain, argument))
    is_plain = _plain_classes.get(kind)
    if is_plain is None:
        is_plain = _plain_classes[kind] = not issubclass(kind, torch.Tensor)
    return is_plain


def _is_watched_by_environment() -> bool:
    """PyTorch attaches hooks of its own to each group: a check for NaN, and a flight recorder. It has the latter by default, and
    every call through its dispatcher takes longer than libdist takes for it: so only who asks for the recorder has it."""
    recorder = os.environ.get("TORCH_FR_BUFFER_SIZE") or os.environ.get("TORCH_NCCL_TRACE_BUFFER_SIZE") or "0"
    return os.environ.get("TORCH_DIST_NAN_CHECK") == "1" or (recorder.isdigit() and int(recorder) > 0)


@_refuses_the_rest_of(dist.ProcessGroup)
class AmldistGroup(dist.ProcessGroup):
    """A process group that is libdist's on all devices."""

    def __init__(self, store: Any, backend: AmldistBackend, devices: Sequence[str] = DEVICES) -> None:
        engine = backend.engine
        try:
            super().__init__(store, engine.rank, engine.size)
        except TypeError:  # such as 2.11: with a store they make no group of a class of Python
            super().__init__(engine.rank, engine.size)
        self.engine, self.calls = engine, backend.calls
        self._backend, self._store = backend, store
        self._hooks: Set[Tuple[str, int]] = set()
        self._is_watched = PARTS and _is_watched_by_environment()
        backend.is_whole_group = True
        if not PARTS:
            _shut_down_with(self, backend)
            return
        for device in devices:
            self._register_backend(torch.device(device), _CUSTOM, backend)
        self._set_default_backend(_CUSTOM)

    def getBackendName(self) -> str:
        return NAME

    def monitored_barrier(self, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        self.calls.monitored_barrier(timeout, wait_all_ranks)

    def set_timeout(self, timeout: timedelta) -> None:
        self._backend.set_timeout(timeout)

    def split_group(
        self,
        ranks: Sequence[int],
        timeout: Optional[timedelta] = None,
        opts: Any = None,
        group_name: Optional[str] = None,
        group_desc: Optional[str] = None,
        device_types: Optional[Sequence[torch.device]] = None,
    ) -> Optional[AmldistGroup]:
        """Only the members take part; the others get None."""
        if self.engine.rank not in ranks:
            return None
        name, described = group_name or f"split {list(ranks)} of {self.group_name}", group_desc or "undefined"
        store = PrefixStore(f"{name}/", self._store)
        limit = timeout or getattr(opts, "_timeout", None)
        backend = self._backend.part(store, ranks, limit, name, _label(described, name))
        devices = DEVICES if device_types is None else [device.type for device in device_types]
        group = AmldistGroup(store, backend, devices)
        group._set_group_name(name)
        group._set_group_desc(described)
        return group

    # ---- hooks: PyTorch's dispatcher calls them ----

    def register_pre_hook(self, hook_id: int, hook: Any) -> None:
        super().register_pre_hook(hook_id, hook)
        self._watch(("pre", hook_id), True)

    def register_post_hook(self, hook_id: int, hook: Any) -> None:
        super().register_post_hook(hook_id, hook)
        self._watch(("post", hook_id), True)

    def unregister_pre_hook(self, hook_id: int) -> None:
        super().unregister_pre_hook(hook_id)
        self._watch(("pre", hook_id), False)

    def unregister_post_hook(self, hook_id: int) -> None:
        super().unregister_post_hook(hook_id)
        self._watch(("post", hook_id), False)

    def _watch(self, hook: Tuple[str, int], is_there: bool) -> None:
        (self._hooks.add if is_there else self._hooks.discard)(hook)
        self._is_watched = bool(self._hooks) or _is_watched_by_environment()

    # ---- as the back end ----

    def _set_sequence_number_for_group(self) -> None:
        self._backend._set_sequence_number_for_group()

    def _get_sequence_number_for_group(self) -> int:
        return self._backend._get_sequence_number_for_group()

    def _wait_for_pending_works(self) -> None:
        self.engine.wait_for_all()

    def _enable_collectives_timing(self) -> None:
        pass

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

        # A group without parts has no place to keep these.
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
    method._torchdynamo_disable = True  # if it is to be inlined
    frames: Any = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)
    if hasattr(frames, "set_code_exec_strategy"):
        skip = frames._FrameAction.SKIP
        frames.set_code_exec_strategy(method.__code__, frames._FrameExecStrategy(skip, skip))
    elif hasattr(frames, "skip_code"):
        frames.skip_code(method.__code__)


def _direct(name: str, call: str) -> Callable[..., Any]:
    """A call of torch.distributed's functions, in any form."""
    shown, row = f"{NAME}:{_SHOWN.get(call, call)}", f"c10d::{_ROWS.get(call, call + '_')}"
    inherited = getattr(dist.ProcessGroup, name)

    def method(self: AmldistGroup, *arguments: Any, **named: Any) -> Any:
        if named or not _forms.is_full(name, arguments):
            arguments = _forms.completed(name, arguments, named)
        is_profiled = _profiler_enabled()
        if PARTS and (is_profiled or self._is_watched or _dispatch_modes() > 0 or not all(map(_is_plain, arguments))):
            _here.work = None
            work = inherited(self, *arguments)
            ours, _here.work = _here.work, None
            return work if ours is None else ours
        if is_profiled:
            with _row(row, ()), _row(shown, arguments):  # the dispatcher's row, too, which has no shapes
                return getattr(self.calls, call)(*arguments)
        return getattr(self.calls, call)(*arguments)

    # PyTorch does not call an override from within itself: it goes by the name of the calling code.
    method.__name__ = name
    method.__code__ = method.__code__.replace(co_name=name)
    _leave_to_python(method)
    return method


class _OlderName:
    """A method's older name. PyTorch's C++ takes a method of Python's for an override: from within the newer one it would call this
    one, which is the same, and so on for ever. So there it gets its own."""

    def __init__(self, name: str, newer: Callable[..., Any]) -> None:
        self._newer, self._inherited = newer, getattr(dist.ProcessGroup, name)

    def __get__(self, group: Optional[AmldistGroup], kind: Any = None) -> Any:
        if group is None:
            return self._newer
        is_within = sys._getframe(1).f_code is self._newer.__code__
        return types.MethodType(self._inherited if is_within else self._newer, group)


for _names, _call in _CALLS.items():
    _own = [name for name in _names if name in _forms.FORMS and name != "allreduce_sparse" and hasattr(dist.ProcessGroup, name)]
    for _name in _own:
        _is_older = PARTS and _name != _own[0]
        setattr(AmldistGroup, _name, _OlderName(_name, getattr(AmldistGroup, _own[0])) if _is_older else _direct(_name, _call))


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
    """The name of a group in `aml-dist trace` and in errors."""
    return {"default_pg": "", "undefined": f"torch {name}", "": f"torch {name}" if name else ""}.get(described, described)


def _shut_down_with(group: AmldistGroup, backend: AmldistBackend) -> None:
    """PyTorch shuts down a back end that is part of a group; one that is the whole group it only drops."""
    _living.discard(backend)
    weakref.finalize(group, backend.shutdown).atexit = False


def _wraps_calls() -> bool:
    """TORCH_DISTRIBUTED_DEBUG=DETAIL: PyTorch wraps its own checks around back ends, but not around whole groups."""
    return PARTS and get_debug_level() == DebugLevel.DETAIL


def create(opts: Any, options: Any = None) -> Any:
    """Makes the back end of a process group; PyTorch calls it in every member."""
    if opts.timeout.total_seconds() <= 0:
        raise ValueError(f"amldist: the group's timeout is {opts.timeout}: it must be more than 0")
    name, ranks = str(opts.group_id or ""), getattr(opts, "global_ranks_in_group", None) or ()
    is_whole, described = _known_to_torch()
    if not is_whole and not PARTS:
        raise ValueError(
            f"amldist: PyTorch {torch.__version__} accepts no back end in Python for one device of a group: use "
            'init_process_group("amldist"), or a newer PyTorch'
        )
    engine = Engine(opts.store, opts.group_rank, opts.group_size, opts.timeout, name, _label(described, name), ranks)
    backend = AmldistBackend(engine, options if isinstance(options, Backend.Options) else None)
    return AmldistGroup(opts.store, backend) if is_whole and not _wraps_calls() else backend
