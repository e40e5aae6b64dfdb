"""What a call of torch.distributed returns: a Work, with a future where one is asked for."""

from __future__ import annotations

import atexit
import collections
import queue
import re
import sys
import threading
import time
import types
import weakref
from datetime import timedelta
from typing import Any, Callable, Deque, Dict, List, Optional, Set, Tuple

import torch
import torch.distributed as dist
from amldist import _errors
from amldist._request import Request
from amldist.torch._tensors import RefusedCall
from torch._C._distributed_c10d import Work


class BackendError(dist.DistBackendError):
    """A DistBackendError that also says which rank was missing or wrong, and in which call, where that is known."""

    rank: Optional[int] = None
    host: Optional[str] = None
    operation: Optional[str] = None
    number: Optional[int] = None


def backend_error(error: Exception, limit_s: float = 0, before: str = "") -> Exception:
    """The package's exception as PyTorch's; ``limit_s`` was the call's deadline. What the caller did wrong stays what it is."""
    if type(error) is ValueError:
        return RefusedCall(str(error))
    if not isinstance(error, _errors.Error):
        return error
    over = f"; the timeout of {limit_s:g} s is over" if isinstance(error, _errors.TimeoutError) and limit_s else ""
    told = BackendError(before + str(error) + over)
    told.rank, told.host, told.operation, told.number = error.rank, error.host, error.operation, error.number
    told.__cause__ = error
    return told


class _ProcessEnds(BaseException):
    """Ends the waiting of a thread that may touch no tensor any more."""


#: Works whose futures were asked for in a backward pass, until the callbacks of these have run; and their groups' waiters.
promised: Dict["PendingWork", "Waiter"] = {}


class _Here(threading.local):
    """What goes on in a thread."""

    calls_back = False  #: it runs the callbacks of a promised work's future


_here = _Here()


class Waiter:
    """A thread that waits for works in the order in which they were begun, for those who asked for futures.

    It ends after a second without work, so that a program that uses none has no thread. Works that the program itself
    will wait for at the end of a backward pass are left to it for about a second.

    Before the interpreter ends, so does the thread, or it stays in a call of the library: one that frees a tensor then
    aborts the process.
    """

    _IDLE_S = 1.0
    _EXIT_S = 10.0  #: for results to be copied when the process ends
    _all: "weakref.WeakSet[Waiter]" = weakref.WeakSet()

    def __init__(self) -> None:
        self._works: "queue.Queue[Optional[PendingWork]]" = queue.Queue()
        self._left: Deque[PendingWork] = collections.deque()
        self._lock = threading.Lock()
        self._runs = False
        self._thread: Optional[threading.Thread] = None
        self._ends = self._is_away = False
        self._nested: Optional[Waiter] = None
        self._all.add(self)

    def stop(self) -> None:
        """At the end of the process: returns when the thread has ended, or is where it may stay."""
        with self._lock:
            self._ends, thread = True, self._thread if self._runs else None
        self._works.put(None)
        deadline = time.monotonic() + self._EXIT_S
        while thread is not None and thread.is_alive() and not self._is_away and time.monotonic() < deadline:
            thread.join(0.01)

    def wait_for(self, request: Request) -> None:
        """Waits for a request of a work."""
        if threading.current_thread() is not self._thread:
            request.wait()
            return
        self._is_away = True
        try:
            request.wait()
        finally:
            self._is_away = False
            if self._ends:
                raise _ProcessEnds

    def _beyond_callbacks(self) -> "Waiter":
        """Itself, or the first one whose thread is not in a future's callback with this thread: that may wait for what it
        begins."""
        level: Optional[Waiter] = self
        while level is not None:
            if threading.current_thread() is level._thread:
                level._nested = level._nested or Waiter()
                return level._nested
            level = level._nested
        return self

    def add(self, work: "PendingWork") -> None:
        free = self._beyond_callbacks()
        if free is not self:
            work.leave_to(free)
            return
        with self._lock:
            if not self._ends:
                self._works.put(work)
                self._start()
                return
        work.finish()  # in a handler of the process's end

    def keep_order(self) -> None:
        """Before a call: lets the callbacks of promised works run, which may begin calls. So all ranks begin the calls of a
        backward pass and those of its callbacks in one order, as with NCCL, whose futures are complete at once."""
        while promised and not _here.calls_back:
            work = next((work for work, waiter in list(promised.items()) if waiter is self), None)
            if work is None:
                return
            work.settle()

    def leave(self, work: "PendingWork") -> None:
        """Takes the work up only if nobody has waited for it before long. That wakes no thread."""
        with self._lock:
            while self._left and self._left[0].is_done:
                self._left.popleft()
            self._left.append(work)
            self._start()

    def _start(self) -> None:
        if not self._runs:
            self._runs = True
            self._thread = threading.Thread(target=self._run, name="amldist-waiter", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        try:
            self._work_off()
        except _ProcessEnds as held:  # its frames hold works, which may be the last to hold tensors
            self._is_away = True
            while held:
                time.sleep(3600)

    def _work_off(self) -> None:
        while True:
            try:
                work = self._works.get(timeout=self._IDLE_S)
            except queue.Empty:
                with self._lock:
                    left, self._left = self._left, collections.deque()
                    if self._works.empty() and not left:
                        self._runs = False
                        return
                for each in left:
                    each.finish()
                continue
            if work is None:
                return
            work.finish()
            del work  # not when the next one comes


def _stop_waiters() -> None:
    for waiter in list(Waiter._all):
        waiter.stop()


atexit.register(_stop_waiters)


def _raising(error: Exception) -> Callable[[Any], Any]:
    def raise_it(_future: Any) -> Any:
        raise error

    return raise_it


def tensors_in(things: Any) -> List[torch.Tensor]:
    """The tensors of lists of lists of such."""
    if isinstance(things, torch.Tensor):
        return [things]
    return [tensor for thing in things for tensor in tensors_in(thing)] if isinstance(things, (list, tuple)) else []


def future_of(outputs: Any) -> "torch.futures.Future[Any]":
    """PyTorch wants to know beforehand on which GPUs a future's tensors will lie."""
    devices = {tensor.device for tensor in tensors_in(outputs) if tensor.is_cuda}
    return torch.futures.Future(devices=list(devices)) if devices else torch.futures.Future()


def _release() -> Tuple[int, int]:
    found = re.match(r"(\d+)\.(\d+)", torch.__version__)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _caller() -> str:
    """The module from which this package was called."""
    frame: Optional[types.FrameType] = sys._getframe(1)
    while frame is not None and str(frame.f_globals.get("__name__")).startswith("amldist."):
        frame = frame.f_back
    return "" if frame is None else str(frame.f_globals.get("__name__"))


class KeptWork(Work):
    """A work that lives until somebody has waited for it.

    The functional collectives of PyTorch before 2.9 keep the half of a Work that is written in C++ alone, and wait by
    it: without the other half, that would last for ever. Works that nobody waits for are given up from the oldest on.
    """

    _NEEDED = _release() < (2, 9)
    _MOST = 4096
    _unwaited: Dict[int, "KeptWork"] = {}
    _waits = 1  #: how often somebody will wait

    def __init__(self) -> None:
        super().__init__()
        if not self._NEEDED:
            return
        self._unwaited[id(self)] = self
        if len(self._unwaited) > self._MOST:
            self._unwaited.pop(next(iter(self._unwaited)), None)

    def let_go(self) -> None:
        """Somebody has waited, who holds this work meanwhile."""
        if self._NEEDED:
            self._waits -= 1
            if self._waits <= 0:
                self._unwaited.pop(id(self), None)

    def expect_waits(self, tensors: int) -> None:
        """Of a call on several tensors the functional collectives wait once for each; torch.distributed's functions once."""
        if self._NEEDED and _caller() == "torch._ops":
            self._waits = tensors


class DoneWork(KeptWork):
    """A call that is complete."""

    def __init__(self, outputs: Any = None) -> None:
        super().__init__()
        self._outputs = outputs

    def wait(self, timeout: Any = None) -> bool:
        self.let_go()
        return True

    def is_completed(self) -> bool:
        return True

    def is_success(self) -> bool:
        return True

    def exception(self) -> Optional[Exception]:
        return None

    def synchronize(self) -> None:
        pass

    def result(self) -> List[torch.Tensor]:
        return list(self._outputs or [])

    def source_rank(self) -> int:
        raise RuntimeError("this work is not a receive: it has no source rank")

    _source_rank = source_rank

    def get_future(self) -> "torch.futures.Future[Any]":
        future = future_of(self._outputs)
        future.set_result(self._outputs)
        return future


#: What calls the engine of backward passes: the caller of what C++ calls in one.
_BACKWARD = getattr(getattr(torch.autograd.graph, "_engine_run_backward", None), "__code__", None)


class PendingWork(KeptWork):
    """A call in progress.

    Any thread may wait. The first that does finishes the work: it also copies results to where they belong. An error is
    kept, and raised by every wait.
    """

    def __init__(
        self,
        requests: List[Request],
        outputs: Any,
        after: Optional[Callable[[], object]],
        waiter: Waiter,
        source: Any = None,
        limit_s: float = 0,
        pending: Optional[Set["PendingWork"]] = None,
    ) -> None:
        """``pending``: what keeps the work, and its tensors, until it is done."""
        super().__init__()
        self._limit_s = limit_s
        self._pending = pending
        self._requests = requests
        self._outputs = outputs
        self._after = after
        self._waiter = waiter
        self._source = source
        self._lock = threading.Lock()
        self._done = False
        self._error: Optional[Exception] = None
        self._future: Optional["torch.futures.Future[Any]"] = None
        self._value: Any = outputs  #: of the future
        self._raises_in_backward = False
        self._have_run: threading.Event  #: of a promised work

    def finish(self) -> None:
        """Waits until the call is complete, whatever it comes to. KeyboardInterrupt goes through."""
        with self._lock:
            if self._done:
                return
            try:
                for request in self._requests:
                    self._waiter.wait_for(request)
                if self._after is not None:
                    self._after()
            except Exception as error:
                self._error = backend_error(error, self._limit_s)
            self._done = True
            self._requests, self._after = [], None
            pending, self._pending = self._pending, None
            if pending is not None:
                pending.discard(self)
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
        """Whether somebody has finished it. Unlike is_completed() this makes no progress."""
        return self._done

    def _complete(self, future: "torch.futures.Future[Any]", value: Any) -> None:
        outer, _here.calls_back = _here.calls_back, _here.calls_back or self in promised
        try:
            if self._error is None or self._raises_in_backward:
                future.set_result(value)  # a future that raises is derived of this one
            else:
                future.set_exception(self._error)
        finally:
            _here.calls_back = outer
            if promised.pop(self, None) is not None:
                self._have_run.set()

    def wait(self, timeout: Optional[timedelta] = None) -> bool:
        if not self._done:
            limit = timeout.total_seconds() if timeout else 0
            if limit > 0:
                self._wait_at_most(limit)
            self.finish()
        self.let_go()
        if self._error is not None:
            raise self._error
        return True

    def _wait_at_most(self, limit: float) -> None:
        deadline, pause = time.monotonic() + limit, 20e-6
        while not self.is_completed():
            if time.monotonic() > deadline:
                raise BackendError(f"the call is not complete after {limit:g} s of waiting; it goes on")
            time.sleep(pause)
            pause = min(2 * pause, 2e-3)

    def synchronize(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        if self._done:
            return True
        if not all(request.test() for request in list(self._requests)):
            return False
        self.finish()
        return True

    def is_success(self) -> bool:
        return self.is_completed() and self._error is None

    def exception(self) -> Optional[Exception]:
        return self._error

    def result(self) -> List[torch.Tensor]:
        self.wait()
        return list(self._outputs or [])

    def source_rank(self) -> int:
        if self._source is None:
            raise RuntimeError("this work is not a receive: it has no source rank")
        return int(self._source.value)

    _source_rank = source_rank

    def get_future(self) -> "torch.futures.Future[Any]":
        """A future of the output tensors. Asked for in a backward pass, as DistributedDataParallel does, an error also
        ends that pass with its own type: a future hands C++ a RuntimeError with the text alone."""
        if sys._getframe(1).f_code is _BACKWARD:
            return self.future_at_end_of_backward(self._outputs)
        in_backward = torch._C._current_graph_task_id() != -1
        with self._lock:
            future = future_of(self._outputs)
            done = self._done
            if not done and self._future is None:
                self._future, self._raises_in_backward = future, in_backward
                first = True
                if in_backward or _here.calls_back:
                    self._have_run, promised[self] = threading.Event(), self._waiter
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
        """A future of ``value``, some of the outputs, for whoever waits for it no sooner than at the end of a backward
        pass, as DistributedDataParallel does: there the program's thread waits for the call and completes the future. A
        thread that waited meanwhile would compete with the computation, for the processor and for Python's lock."""
        with self._lock:
            is_first = self._future is None and not self._done and torch._C._current_graph_task_id() != -1
            if is_first:
                self._future, self._value = future_of(self._outputs), value
        if not is_first:
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
        if self in promised and not _here.calls_back:
            self.settle()
        self.wait()


class JoinedWork(PendingWork):
    """Several works as one."""

    def __init__(self, works: List[Any], outputs: Any, waiter: Waiter) -> None:
        super().__init__([], outputs, self._wait_for_all, waiter)
        self._works = works

    def _wait_for_all(self) -> None:
        for work in self._works:
            work.wait()

    def is_completed(self) -> bool:
        if not self._done and not all(work.is_completed() for work in self._works):
            return False
        self.finish()
        return True
