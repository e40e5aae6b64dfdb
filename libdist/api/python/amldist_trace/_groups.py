"""Hooks in torch.distributed that record its groups and each call on them."""

from __future__ import annotations

import atexit
import functools
import os
import sys
import threading
from typing import Any, Callable, NamedTuple, Optional

from amldist_trace._recorder import ANY_PEER, ENQUEUED, NO_SLOT, STARTED, Recorder, digest, make_folder
from amldist_trace._thread import OwnThread

#: Back ends whose calls are recorded elsewhere: by NCCL's profiler interface, and by libdist itself.
RECORDED_ELSEWHERE = ("nccl", "nccl-legacy", "nccl2", "amldist", "fake")
_HOOK = 0x616D6C  # our number among a group's hooks
_UNKNOWN_TYPE = 255
_MOST_PENDING = 1024
_INIT, _FINALIZE, _OTHER = 16, 15, 134
_SEND, _RECV = 11, 12

# Numbers of record_format.hpp by the names of PyTorch's hooks. An alltoall may have parts of any size.
_OPERATIONS = {
    "SEND": _SEND, "RECV": _RECV, "BROADCAST": 3, "ALLREDUCE": 1, "REDUCE": 2, "ALLGATHER": 4, "REDUCE_SCATTER": 6,
    "ALLTOALL": 8, "BARRIER": 13, "SCATTER": 10, "GATHER": 9, "SPLIT": 14, "NEW_WINDOW": 136, "ALLREDUCE_COALESCED": 1,
    "ALLGATHER_BASE": 4, "ALLGATHER_COALESCED": 4, "ALLGATHER_INTO_TENSOR_COALESCED": 4, "REDUCE_SCATTER_BASE": 6,
    "REDUCE_SCATTER_TENSOR_COALESCED": 6, "ALLTOALL_BASE": 8,
}  # fmt: skip
_TYPES = {
    "int8": 0, "uint8": 1, "int32": 2, "uint32": 3, "int64": 4, "uint64": 5, "float16": 6, "float32": 7, "float64": 8,
    "bfloat16": 9, "int16": 10, "uint16": 11, "bool": 12,
}  # fmt: skip


def _number(*variables: str) -> Optional[int]:
    for name in variables:
        value = os.environ.get(name, "")
        if value.isdigit():
            return int(value)
    return None


def _ranges(ranks: list[int]) -> str:
    """"0-2,5" of ascending numbers, at most 16 of them."""
    parts: list[list[int]] = []
    for rank in sorted(ranks)[:16]:
        if parts and parts[-1][1] == rank - 1:
            parts[-1][1] = rank
        else:
            parts.append([rank, rank])
    words = ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)
    return f"ranks {words}" + (",..." if len(ranks) > 16 else "")


class Pending(NamedTuple):
    ticket: int
    slot: int
    sequence: int
    work: Any


class Group:
    """One process group of which this rank is a member."""

    def __init__(self, slot: int, skips_cuda: bool) -> None:
        self.slot, self.skips_cuda = slot, skips_cuda
        self.sequence = 0
        self.called: dict[int, tuple[int, int]] = {}  # ticket and sequence by PyTorch's number of the call


class Tracer:
    """The recorder of this process. It must never raise into PyTorch."""

    def __init__(self) -> None:
        import torch
        import torch.distributed.distributed_c10d as c10d

        self._c10d: Any = c10d
        self._real_wait: Callable[..., Any] = c10d.Work.wait
        self._types = {getattr(torch, name): kind for name, kind in _TYPES.items() if hasattr(torch, name)}
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._recorder: Optional[Recorder] = None
        self._thread: Optional[OwnThread] = None
        self._worlds = 0  # how many default groups there were
        self._groups: dict[Any, Group] = {}
        self._pending: list[Pending] = []
        self._failed = False
        self._said = False

    # ---- the process's life ----

    def _open(self, rank: int, size: int) -> Optional[Recorder]:
        if self._recorder is None and 0 <= rank < size and size > 1:
            folder = make_folder(os.environ["AMLDIST_TRACE"])
            if folder is not None:
                self._recorder = Recorder(folder, rank, size)
                self._thread = OwnThread(self._recorder, self.poll)
                atexit.register(self.close)
        return self._recorder

    def close(self) -> None:
        """At the end of the interpreter."""
        recorder, self._recorder = self._recorder, None
        if recorder is None or self._pid != os.getpid():
            return
        if self._thread is not None:
            self._thread.stop()
        self._collect(recorder, _MOST_PENDING)
        waits = any(call.sequence for call in self._pending)
        raised = hasattr(sys, "last_value") or hasattr(sys, "last_exc")
        recorder.close(well=not (raised or self._failed or waits))

    @property
    def on(self) -> bool:
        return self._recorder is not None and self._pid == os.getpid()

    def complain(self, error: Exception) -> None:
        if not self._said:
            self._said = True
            print(f"aml-dist: some of PyTorch's calls are not traced: {error}", file=sys.stderr)

    # ---- groups ----

    def initializing(self, rank: int, size: int) -> Optional[Callable[[bool], None]]:
        """Called when a rank enters init_process_group(). The result is called when the rank leaves it."""
        recorder = self._open(rank, size)
        if recorder is None:
            return None
        with self._lock:
            self._worlds += 1
            slot = recorder.add_communicator(digest("world", self._worlds, size), rank, range(size), "world")
            self._world_slot = slot
            ticket = recorder.begin(_INIT, _UNKNOWN_TYPE, slot, 1, 0, -1, STARTED)

        def left(well: bool) -> None:
            with self._lock:
                recorder.end(ticket, well, slot, 1)
                if not well:
                    self._failed = True

        return left

    def find_groups(self) -> None:
        """Adds the groups that are new, and closes those that no longer exist."""
        recorder, world = self._recorder, self._c10d._world
        if recorder is None:
            return
        with self._lock:
            for pg in list(world.pg_map):
                if pg not in self._groups:
                    self._add(recorder, pg)
            for pg in [each for each in self._groups if each not in world.pg_map]:
                recorder.close_communicator(self._groups.pop(pg).slot)

    def _add(self, recorder: Recorder, pg: Any) -> None:
        world = self._c10d._world
        ranks = world.pg_group_ranks.get(pg)
        if not ranks:
            return
        members = [each for each, _ in sorted(ranks.items(), key=lambda item: item[1])]
        is_world = pg is world.default_pg
        backends = {word.rpartition(":")[2] for word in str(world.pg_map[pg][0]).lower().split(",")}
        if backends <= set(RECORDED_ELSEWHERE) or len(members) < 2:
            self._groups[pg] = Group(NO_SLOT, False)
            if is_world:
                recorder.close_communicator(self._world_slot)
            return
        if is_world:
            group = Group(self._world_slot, "nccl" in backends)
            group.sequence = 1  # init_process_group
        else:
            name = getattr(pg, "group_desc", "")
            shown = _ranges(members) if name in ("", "undefined", "default_pg") else name
            identity = digest(world.pg_names.get(pg, ""), self._worlds, members)
            slot = recorder.add_communicator(identity, members.index(recorder.rank), members, shown)
            group = Group(slot, "nccl" in backends)
        self._groups[pg] = group
        pg.register_pre_hook(_HOOK, functools.partial(self._guarded, self._before, group))
        pg.register_post_hook(_HOOK, functools.partial(self._guarded, self._after, group))

    def _guarded(self, call: Callable[[Recorder, Group, Any], None], group: Group, arguments: Any) -> None:
        recorder = self._recorder
        if recorder is None or self._pid != os.getpid():
            return
        try:
            call(recorder, group, arguments)
        except Exception as error:  # tracing must not end the program
            self.complain(error)

    # ---- calls ----

    def _before(self, recorder: Recorder, group: Group, call: Any) -> None:
        tensors = call.input_tensors or call.output_tensors
        if group.skips_cuda and (not tensors or tensors[0].is_cuda):
            return
        operation = _OPERATIONS.get(call.name.name, _OTHER)
        is_message = operation in (_SEND, _RECV)
        size = sum(each.nbytes for each in tensors)
        kind = self._types.get(tensors[0].dtype, _UNKNOWN_TYPE) if tensors else _UNKNOWN_TYPE
        peer = ANY_PEER if operation == _RECV and call.root < 0 else int(call.root)
        self._collect(recorder, 4)
        with self._lock:
            if not is_message:
                group.sequence += 1
            sequence = 0 if is_message else group.sequence
            state = ENQUEUED if is_message else STARTED
            group.called[call.op_id] = (recorder.begin(operation, kind, group.slot, sequence, size, peer, state), sequence)

    def _after(self, recorder: Recorder, group: Group, call: Any) -> None:
        with self._lock:
            ticket, sequence = group.called.pop(call.op_id, (0, 0))
            if ticket == 0:
                return
            if call.work is None:
                recorder.end(ticket, True, group.slot, sequence)
                return
            self._pending.append(Pending(ticket, group.slot, sequence, call.work))
            if len(self._pending) > _MOST_PENDING:  # messages that no caller waits for: they stay open in the file
                del self._pending[0]

    def _has_failed(self, call: Pending) -> bool:
        """A message's Work must not be waited for twice; it only ends when Python waits, and Python sees its result."""
        if call.sequence == 0:
            return False
        try:
            self._real_wait(call.work)  # it has ended: this only raises its error
        except Exception:  # the call has failed
            return True
        return False

    def _collect(self, recorder: Recorder, most: int) -> None:
        """Records the ends of calls that have ended meanwhile."""
        if not self._pending:
            return
        with self._lock:
            some = self._pending[:most]
        ended = {call.ticket: self._has_failed(call) for call in some if call.work.is_completed()}
        if not ended:
            return
        with self._lock:
            for call in self._pending:
                if call.ticket in ended:
                    self._failed |= ended[call.ticket]
                    recorder.end(call.ticket, not ended[call.ticket], call.slot, call.sequence)
            self._pending = [call for call in self._pending if call.ticket not in ended]

    def poll(self) -> None:
        if self._recorder is not None:
            self._collect(self._recorder, _MOST_PENDING)

    def waiting(self, work: Any) -> Optional[Pending]:
        """Called when Python starts to wait in this Work; pass the result to waited()."""
        recorder = self._recorder
        if recorder is None or not self._pending or self._pid != os.getpid():
            return None
        with self._lock:
            found = next((each for each in reversed(self._pending) if each.work is work), None)
            if found is not None and found.sequence == 0:
                recorder.start(found.ticket)
        return found

    def waited(self, call: Pending, well: bool) -> None:
        """Called when that wait, and with it the call, has ended."""
        recorder = self._recorder
        if recorder is None:
            return
        with self._lock:
            if call in self._pending:
                self._pending.remove(call)
                self._failed |= not well
                recorder.end(call.ticket, well, call.slot, call.sequence)


def _wrap_init(tracer: Tracer, real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    def init_process_group(*arguments: Any, **named: Any) -> Any:
        left = None
        try:
            rank, size = named.get("rank", -1), named.get("world_size", -1)
            rank = rank if rank >= 0 else _number("RANK", "SLURM_PROCID")
            size = size if size > 0 else _number("WORLD_SIZE", "SLURM_STEP_NUM_TASKS")
            if rank is not None and size is not None:
                left = tracer.initializing(rank, size)
        except Exception as error:  # tracing must not end the program
            tracer.complain(error)
        well = False
        try:
            result = real(*arguments, **named)
            well = True
        finally:
            if left is not None:
                left(well)
        _find_groups(tracer)
        return result

    return init_process_group


def _find_groups(tracer: Tracer) -> None:
    try:
        tracer.find_groups()
    except Exception as error:  # tracing must not end the program
        tracer.complain(error)


def _wrap_maker(tracer: Tracer, real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    def call(*arguments: Any, **named: Any) -> Any:
        result = real(*arguments, **named)
        _find_groups(tracer)
        return result

    return call


def _wrap_wait(tracer: Tracer, real: Callable[..., Any]) -> Callable[..., Any]:
    # pybind11 knows by the name and the first argument that this is not an override of a Python class derived from Work.
    @functools.wraps(real)
    def wait(self: Any, *arguments: Any, **named: Any) -> Any:
        call = tracer.waiting(self)
        if call is None:
            return real(self, *arguments, **named)
        well = False
        try:
            result = real(self, *arguments, **named)
            well = True
        finally:
            tracer.waited(call, well)
        return result

    return wait


#: Functions that make or end groups, wherever PyTorch keeps the name.
_MAKERS = ("_new_group_with_tag", "split_group", "shrink_group", "destroy_process_group")


def install() -> None:
    """Called once, while torch is being imported, under AMLDIST_TRACE."""
    import torch.distributed as dist

    if not dist.is_available():
        return
    import torch.distributed.distributed_c10d as c10d

    if not hasattr(dist.ProcessGroup, "register_pre_hook"):
        import torch

        if _number("SLURM_PROCID", "RANK") in (0, None):
            print(f"aml-dist: calls of PyTorch's process groups are not traced: PyTorch {torch.__version__} offers no hooks "
                  "(2.15 does)", file=sys.stderr)  # fmt: skip
        return
    tracer = Tracer()

    def replace(name: str, made: Callable[..., Any]) -> None:
        before = getattr(c10d, name)
        for module in (c10d, dist):
            if getattr(module, name, None) is before:
                setattr(module, name, made)

    replace("init_process_group", _wrap_init(tracer, c10d.init_process_group))
    for name in _MAKERS:
        if hasattr(c10d, name):
            replace(name, _wrap_maker(tracer, getattr(c10d, name)))
    work: Any = c10d.Work
    work.wait = _wrap_wait(tracer, work.wait)
