"""The result of a call of torch.distributed: a Work, with a future if one is asked for."""

from __future__ import annotations

import functools
import re
import sys
import threading
import time
import types
from datetime import timedelta
from typing import Any, Callable, Dict, List, Optional, Protocol, Set, Tuple

import torch
from amldist._request import Request
from amldist.torch._failures import BackendError, Members
from amldist.torch._waiter import Waiter, here, works_with_futures
from torch._C._distributed_c10d import Work


def tensors_in(things: Any) -> List[torch.Tensor]:
    """The tensors of nested lists."""
    if isinstance(things, torch.Tensor):
        return [things]
    return [tensor for thing in things for tensor in tensors_in(thing)] if isinstance(things, (list, tuple)) else []


def future_of(outputs: Any) -> "torch.futures.Future[Any]":
    """PyTorch needs to know beforehand on which GPUs a future's tensors will be."""
    devices = {tensor.device for tensor in tensors_in(outputs) if tensor.is_cuda}
    return torch.futures.Future(devices=list(devices)) if devices else torch.futures.Future()


@functools.lru_cache(maxsize=1)
def _pass_on() -> Any:
    """A function of TorchScript: its futures hold a list of tensors, as C++ knows them; Python's hold an object of Python."""
    return torch.jit.CompilationUnit("def pass_on(tensors: List[Tensor]) -> List[Tensor]:\n    return tensors\n").pass_on


def _release() -> Tuple[int, int]:
    found = re.match(r"(\d+)\.(\d+)", torch.__version__)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _caller() -> str:
    """The module from which this package was called."""
    frame: Optional[types.FrameType] = sys._getframe(1)
    while frame is not None and str(frame.f_globals.get("__name__")).startswith("amldist."):
        frame = frame.f_back
    return "" if frame is None else str(frame.f_globals.get("__name__"))


class GroupWork(Work):
    """A call on a group, with what all kinds of it share; it lives until it has been waited for.

    The functional collectives of PyTorch before 2.9 keep the half of a Work that is written in C++ alone, and wait by
    it: without the other half, that would last for ever. Works that are never waited for are dropped from the oldest on.
    """

    _NEEDED = _release() < (2, 9)
    _MOST = 4096
    _unwaited: Dict[int, GroupWork] = {}
    _waits = 1  #: how often the work will be waited for

    def __init__(self, outputs: Any = None) -> None:
        super().__init__()
        self._outputs = outputs
        if not self._NEEDED:
            return
        self._unwaited[id(self)] = self
        if len(self._unwaited) > self._MOST:
            self._unwaited.pop(next(iter(self._unwaited)), None)

    def let_go(self) -> None:
        """A caller, which holds this work, has waited for it."""
        if self._NEEDED:
            self._waits -= 1
            if self._waits <= 0:
                self._unwaited.pop(id(self), None)

    def expect_waits(self, tensors: int) -> None:
        """For a call on several tensors the functional collectives wait once for each, torch.distributed's functions once."""
        if self._NEEDED and _caller() == "torch._ops":
            self._waits = tensors

    def wait(self, timeout: Any = None) -> bool:
        self.let_go()
        return True

    def _wait_at_most(self, timeout: Optional[timedelta]) -> None:
        """Waits until the call is complete, if there is a time limit. Errors: BackendError, after it."""
        limit = timeout.total_seconds() if timeout else 0
        deadline, pause = time.monotonic() + limit, 20e-6
        while limit > 0 and not self.is_completed():
            if time.monotonic() > deadline:
                raise BackendError(f"the call is not complete after {limit:g} s of waiting; it goes on")
            time.sleep(pause)
            pause = min(2 * pause, 2e-3)

    def synchronize(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        return True

    def is_success(self) -> bool:
        return self.is_completed() and self.exception() is None

    def exception(self) -> Optional[Exception]:
        return None

    def result(self) -> List[torch.Tensor]:
        self.wait()
        return tensors_in(self._outputs)

    def source_rank(self) -> int:
        raise RuntimeError("this work is not a receive: it has no source rank")

    _source_rank = property(lambda self: self.source_rank)  # the older name


class DoneWork(GroupWork):
    """A call that is complete."""

    def get_future(self) -> "torch.futures.Future[Any]":
        future = future_of(self._outputs)
        future.set_result(self._outputs)
        return future


#: Calls the engine of backward passes: the caller of the code that C++ calls in one.
_BACKWARD = getattr(getattr(torch.autograd.graph, "_engine_run_backward", None), "__code__", None)


class Owner(Protocol):
    """The group whose call a work is."""

    waiter: Waiter
    members: Members
    pending: Set[PendingWork]  #: works, and their tensors, until they are done

    @property
    def limit_s(self) -> float: ...


class PendingWork(GroupWork):
    """A call in progress.

    Any thread may wait. The first that does finishes the work: it also copies results to where they belong. An error is
    kept, and raised by every wait.
    """

    def __init__(
        self,
        owner: Owner,
        request: Optional[Request],
        outputs: Any,
        after: Optional[Callable[[], object]],
        source: Any = None,
    ) -> None:
        super().__init__(outputs)
        self._owner = owner
        self._limit_s = owner.limit_s
        self._request = request
        self._after = after
        self._waiter = owner.waiter
        self._source = source
        self._lock = threading.Lock()
        self._done = False
        self._error: Optional[Exception] = None
        self._future: Optional["torch.futures.Future[Any]"] = None
        self._value: Any = outputs  #: of the future
        self._raises_in_backward = False
        self._have_run: threading.Event  #: once it is in works_with_futures

    def finish(self) -> None:
        """Waits until the call is complete, whatever its result. KeyboardInterrupt goes through."""
        with self._lock:
            if self._done:
                return
            try:
                if self._request is not None:
                    self._waiter.wait_for(self._request)
                if self._after is not None:
                    self._after()
            except Exception as error:  # kept for whoever waits
                self._error = self._owner.members.error(error, self._limit_s)
            self._done = True
            self._request = self._after = None
            self._owner.pending.discard(self)
            future = self._future
        if future is not None:
            self._complete(future, self._value)

    def settle(self) -> None:
        """Returns when the call is complete and the callbacks of its future have run. An error is raised by wait()."""
        self.finish()
        self._have_run.wait()

    def leave_to(self, waiter: Waiter) -> None:
        self._waiter = waiter
        waiter.add(self)

    @property
    def is_done(self) -> bool:
        """Whether a thread has finished it. Unlike is_completed() this makes no progress."""
        return self._done

    def _complete(self, future: "torch.futures.Future[Any]", value: Any) -> None:
        outer, here.calls_back = here.calls_back, here.calls_back or self in works_with_futures
        try:
            if self._error is None or self._raises_in_backward:
                future.set_result(value)  # a future that raises is derived from this one
            else:
                future.set_exception(self._error)
        finally:
            here.calls_back = outer
            if works_with_futures.pop(self, None) is not None:
                self._have_run.set()

    def wait(self, timeout: Optional[timedelta] = None) -> bool:
        if not self._done:
            self._wait_at_most(timeout)
            self.finish()
        self.let_go()
        if self._error is not None:
            raise self._error
        return True

    def is_completed(self) -> bool:
        if self._done:
            return True
        request = self._request
        if request is not None and not request.test():
            return False
        self.finish()
        return True

    def exception(self) -> Optional[Exception]:
        return self._error

    def source_rank(self) -> int:
        if self._source is None:
            raise RuntimeError("this work is not a receive: it has no source rank")
        return int(self._source.value)

    def get_future(self) -> "torch.futures.Future[Any]":
        """A future of the output tensors. Asked for in a backward pass, as DistributedDataParallel does, an error also
        ends that pass with its own type: a future hands C++ a RuntimeError with the text alone."""
        if sys._getframe(1).f_code is _BACKWARD:
            if tensors_in(self._outputs)[0].dtype is torch.float16:  # the built-in hook FP16_COMPRESS accepts no other future
                self.wait()
                typed: Any = torch._C.fork(_pass_on(), self._outputs)
                return typed  # type: ignore[no-any-return]
            return self.future_at_end_of_backward(self._outputs)
        in_backward = torch._C._current_graph_task_id() != -1
        with self._lock:
            future = future_of(self._outputs)
            done = self._done
            if not done and self._future is None:
                self._future, self._raises_in_backward = future, in_backward
                first = True
                if in_backward or here.calls_back:
                    self._have_run, works_with_futures[self] = threading.Event(), self._waiter
            else:
                first = False
        if done:
            self._complete(future, self._outputs)
            return self._guarded(future, in_backward)
        if not first:
            assert self._future is not None
            return self._future.then(self._value_of)
        self._waiter.add(self)
        return self._guarded(future, in_backward)

    def future_at_end_of_backward(self, value: Any) -> "torch.futures.Future[Any]":
        """A future of ``value``, some of the outputs, for a caller that waits for it only at the end of a backward
        pass, as DistributedDataParallel does: there the program's thread waits for the call and completes the future. A
        thread that waited meanwhile would compete with the computation, for the processor and for Python's lock."""
        with self._lock:
            is_first = self._future is None and not self._done and torch._C._current_graph_task_id() != -1
            if is_first:
                self._future, self._value = future_of(self._outputs), value
        if not is_first or self._future is None:
            return self.get_future().then(lambda _future: value)
        self._waiter.leave(self)
        torch.autograd.Variable._execution_engine.queue_callback(self._wait_in_backward)
        return self._future

    def _value_of(self, _future: Any) -> Any:
        if self._error is not None:
            raise self._error
        return self._outputs

    def _guarded(self, future: "torch.futures.Future[Any]", in_backward: bool) -> "torch.futures.Future[Any]":
        if not in_backward:
            return future
        # Callbacks of a pass run in the order in which they were queued, this one before that of the reducer.
        torch.autograd.Variable._execution_engine.queue_callback(self._wait_in_backward)
        return future.then(self._value_of)

    def _wait_in_backward(self) -> None:
        if self in works_with_futures and not here.calls_back:
            self.settle()
        self.wait()


class JoinedWork(PendingWork):
    """Several works as one."""

    def __init__(self, owner: Owner, works: List[Any], outputs: Any) -> None:
        super().__init__(owner, None, outputs, self._wait_for_all)
        self._works = works

    def _wait_for_all(self) -> None:
        for work in self._works:
            work.wait()

    def is_completed(self) -> bool:
        if not self._done and not all(work.is_completed() for work in self._works):
            return False
        self.finish()
        return True
