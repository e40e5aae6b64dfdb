"""Ctrl-C while the main thread waits inside the library.

Python runs its signal handlers between bytecodes, and none is executed while a call waits for other ranks. The library
asks a function of ours about every 50 ms then. Entering it lets the handlers run; if one raises, as Python's own for
Ctrl-C does, the exception is kept, the communicator is aborted, and the call's caller raises what was kept. A collective
that one rank has left cannot be finished, so the other ranks learn of it as AbortedError.
"""

from __future__ import annotations

import threading
from typing import Callable, Generator, Optional

from amldist._library import InterruptFunction, lib

_kept: Optional[BaseException] = None


def _answers() -> Generator[int, object, None]:
    """1 when a handler has raised. A generator, because handlers run while it is entered: inside its try."""
    global _kept
    answer = 0
    while True:
        try:
            yield answer
            answer = 0
        except GeneratorExit:  # of this generator
            raise
        except BaseException as error:  # noqa: B036 - kept until the call has returned from C
            _kept, answer = error, 1


_answer = _answers()
next(_answer)
_ask = InterruptFunction(_answer.send)


def watch() -> None:
    """Lets the library ask for interrupts if the calling thread is the main one: no other thread handles signals in Python."""
    if threading.current_thread() is threading.main_thread():
        lib.amldist_set_interrupt(_ask, None)


def check() -> None:
    """Raises what a handler has raised while a call waited. It is the main thread's: the calls of others end by the abort."""
    global _kept
    if _kept is not None and threading.current_thread() is threading.main_thread():
        kept, _kept = _kept, None
        raise kept


def apart(function: Callable[[], int], leave: Callable[[], object]) -> int:
    """Runs a call in which the library does not ask for interrupts, in a thread of its own, and waits for it. If the wait
    is interrupted, the call is left alone; ``leave`` is then called, at once or when the call has ended."""
    if threading.current_thread() is not threading.main_thread():
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

