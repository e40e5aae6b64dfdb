"""The thread that waits for works whose futures were asked for."""

from __future__ import annotations

import _thread
import atexit
import collections
import queue
import threading
import time
import weakref
from typing import Deque, Dict, Optional, Protocol, Set

from amldist._request import Request


class Unfinished(Protocol):
    """A work, as its waiter sees it."""

    @property
    def is_done(self) -> bool: ...

    def finish(self) -> None: ...

    def settle(self) -> None: ...

    def leave_to(self, waiter: Waiter) -> None: ...


class _ProcessEnds(BaseException):
    """Ends the wait of a thread that must not touch tensors any more."""


#: Works whose futures were asked for in a backward pass, until the callbacks of these have run; and their groups' waiters.
works_with_futures: Dict["Unfinished", "Waiter"] = {}


class _Here(threading.local):
    """The state of a thread."""

    calls_back = False  #: it runs the callbacks of such a work's future


here = _Here()
#: The package's own threads. They begin no calls, but for those of a future's callbacks.
helpers: Set[threading.Thread] = set()


def is_threaded() -> bool:
    """Whether the program has threads beside this one."""
    return _thread._count() > len(helpers)


class Waiter:
    """A thread that waits for works in the order in which they were begun, for those who asked for futures.

    It ends after a second without work, so that a program without such calls has no thread. Works that the program itself
    will wait for at the end of a backward pass are left to it for about a second.

    Before the interpreter ends, so does the thread, or it stays in a call of the library: one that frees a tensor then
    aborts the process.
    """

    _IDLE_S = 1.0
    _EXIT_S = 10.0  #: for results to be copied when the process ends
    _all: "weakref.WeakSet[Waiter]" = weakref.WeakSet()

    def __init__(self) -> None:
        self._works: "queue.Queue[Optional[Unfinished]]" = queue.Queue()
        self._left: Deque[Unfinished] = collections.deque()
        self._lock = threading.Lock()
        self._runs = False
        self._thread: Optional[threading.Thread] = None
        self._ends = self._is_away = False
        self._nested: Optional[Waiter] = None
        self._all.add(self)

    def stop(self) -> None:
        """At the end of the process: returns when the thread has ended, or is in a place where it may stay."""
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

    def _beyond_callbacks(self) -> Waiter:
        """Itself, or the first one whose thread is not in a future's callback with this thread: that may wait for what it
        begins."""
        level: Optional[Waiter] = self
        while level is not None:
            if threading.current_thread() is level._thread:
                level._nested = level._nested or Waiter()
                return level._nested
            level = level._nested
        return self

    def add(self, work: Unfinished) -> None:
        free = self._beyond_callbacks()
        if free is not self:
            work.leave_to(free)
            return
        with self._lock:
            if not self._ends:
                self._works.put(work)
                self._start()
                return
        work.finish()  # in an exit handler of the process

    def keep_order(self) -> None:
        """Before a call: lets the callbacks of works with futures run, which may begin calls. So all ranks begin the calls of a
        backward pass and those of its callbacks in one order, as with NCCL, whose futures are complete at once."""
        while works_with_futures and not here.calls_back:
            work = next((work for work, waiter in list(works_with_futures.items()) if waiter is self), None)
            if work is None:
                return
            work.settle()

    def leave(self, work: Unfinished) -> None:
        """Starts the work only if no thread has waited for it for a while. That wakes no thread."""
        with self._lock:
            while self._left and self._left[0].is_done:
                self._left.popleft()
            self._left.append(work)
            self._start()

    def _start(self) -> None:
        if not self._runs:
            self._runs = True
            self._thread = threading.Thread(target=self._run, name="amldist-waiter", daemon=True)
            helpers.add(self._thread)
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
                        helpers.discard(threading.current_thread())
                        return
                for each in left:
                    each.finish()
                continue
            if work is None:
                return
            work.finish()
            del work  # not only when the next one comes


def _stop_waiters() -> None:
    for waiter in list(Waiter._all):
        waiter.stop()


atexit.register(_stop_waiters)
