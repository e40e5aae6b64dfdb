"""A call in progress."""

from __future__ import annotations

import ctypes
import threading
import time
from typing import Any, Callable, Optional

from amldist import _errors, _interrupt
from amldist._library import lib


_SLICE_S = 0.05  #: Python's signal handlers run between two slices


class Request:
    """A collective or message that was begun without waiting for it.

    Pass every request to wait(), or to test() until that says True. It holds the arrays of its call until then. Any
    thread may use it; of several that wait for one request, one works and the others wait for that one.
    """

    def __init__(self, handle: int, result: Any, keep: object, forget: Callable[[Request], object]) -> None:
        self._handle = ctypes.c_void_p(handle)
        self._result = result
        self._keep = keep
        self._forget = forget
        self._lock = threading.Lock()
        self._error: Optional[Exception] = None
        self._done = False

    def _finish(self, status: int) -> None:
        if status < 0:
            self._error = _errors.last_error(status)
        self._done = True
        self._keep = None
        self._forget(self)

    def _outcome(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._result

    def wait(self, timeout: Optional[float] = None) -> Any:
        """Waits for the call and returns the array that holds its result.

        ``timeout``, in seconds, limits the waiting and not the call: after it, builtins.TimeoutError is raised and the
        call goes on. Without it the communicator's deadline holds. Raises what the blocking call would raise.
        """
        if self._done:
            return self._outcome()
        if timeout is not None:
            return self._wait_at_most(timeout)
        with self._lock:
            if not self._done:
                self._finish(lib.amldist_wait(ctypes.byref(self._handle)))
        _interrupt.check()
        return self._outcome()

    def _wait_at_most(self, timeout: float) -> Any:
        deadline = time.monotonic() + timeout
        while not self._look(max(0.0, min(deadline - time.monotonic(), _SLICE_S))):
            if time.monotonic() >= deadline:
                raise _errors.TimeoutError(f"the call is not complete after {timeout:g} s; it goes on")
        return self._outcome()

    def test(self) -> bool:
        """Whether the call is complete. Never waits; wait() then returns at once."""
        return self._look(0)

    def _look(self, seconds: float) -> bool:
        """Whether the call is complete, after waiting at most this long."""
        if self._done or not self._lock.acquire(timeout=seconds):
            return self._done
        try:
            if not self._done:
                done = ctypes.c_int(0)
                handle = ctypes.byref(self._handle)
                if seconds > 0:
                    status = lib.amldist_wait_for(handle, max(1, int(seconds * 1000)), ctypes.byref(done))
                else:
                    status = lib.amldist_test(handle, ctypes.byref(done))
                if done.value or status < 0:
                    self._finish(status)
            return self._done
        finally:
            self._lock.release()
