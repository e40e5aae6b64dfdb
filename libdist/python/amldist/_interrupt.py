"""Ctrl-C while the main thread waits inside the library.

Python runs its signal handlers between bytecodes, so a call that waits for other ranks would hold Ctrl-C back. Python
writes each signal's number to a descriptor at once, though. A thread of ours reads it, and aborts the communicator
whose call is still waiting 20 ms later: the call returns, and KeyboardInterrupt is raised. A collective that one rank
has left cannot be finished, so the other ranks learn the reason as AbortedError.

The thread acts only while SIGINT has Python's own handler. It passes the signals on to whoever had the descriptor
before.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Callable, Optional

_PATIENCE_S = 0.02

#: How to wake the call in which the main thread waits, and how many there were.
_wake: Optional[Callable[[], object]] = None
_calls = 0
_watching = False
_main = threading.main_thread().ident


def begin(wake: Callable[[], object]) -> bool:
    """The calling thread is about to wait. True in the main thread, which then has to call end()."""
    global _wake, _calls
    if threading.get_ident() != _main:
        return False
    _calls += 1
    _wake = wake
    return True


def end() -> None:
    """The main thread waits no longer."""
    global _wake
    _wake = None


def apart(function: Callable[[], int], leave: Callable[[], object]) -> int:
    """Runs a call that an abort does not end in a thread of its own, and waits for it. Whoever is interrupted
    meanwhile leaves it to itself; ``leave`` is then called, at once or when the call has ended."""
    if threading.get_ident() != _main or not _watching:
        return function()
    lock, done, left, results = threading.Lock(), threading.Event(), False, [0]

    def work() -> None:
        results[0] = function()
        with lock:
            done.set()
            if left:
                leave()

    thread = threading.Thread(target=work, name="amldist-call", daemon=True)
    thread.start()
    try:
        done.wait()
    except BaseException:
        with lock:
            left = True
            if done.is_set():
                leave()
        raise
    thread.join()
    return results[0]


def _interrupted() -> None:
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return
    call = _calls
    if _wake is None:
        return
    time.sleep(_PATIENCE_S)
    wake = _wake
    if wake is not None and call == _calls:
        wake()


def _read(descriptor: int, before: int) -> None:
    while True:
        numbers = os.read(descriptor, 64)
        if not numbers:
            return
        if before >= 0:
            try:
                os.write(before, numbers)
            except OSError:
                before = -1
        if signal.SIGINT in numbers:
            _interrupted()


def watch() -> None:
    """Starts the thread, once. Does nothing outside the main thread, where no descriptor may be set."""
    global _watching
    if _watching or threading.get_ident() != _main:
        return
    reading, writing = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(writing, False)
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    threading.Thread(target=_read, args=(reading, before), name="amldist-signals", daemon=True).start()
    _watching = True


def _in_child() -> None:
    """A child has the descriptor, but not the thread: its signals are not its parent's."""
    global _watching, _wake, _main
    _wake = None
    _main = threading.get_ident()
    if _watching:
        signal.set_wakeup_fd(-1)
        _watching = False


os.register_at_fork(after_in_child=_in_child)
