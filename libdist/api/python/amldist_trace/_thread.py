"""The package's own thread in a traced program: it shows that the process lives, sees calls end, and writes stacks."""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from types import FrameType
from typing import Callable, Optional

from amldist_trace._recorder import Recorder

_PAUSE = 0.1  # seconds
_TICK = 1.0
_HERE = os.path.dirname(__file__)  # our wrappers are of no interest


def _function(frame: FrameType) -> str:
    return str(getattr(frame.f_code, "co_qualname", frame.f_code.co_name))  # co_qualname: Python 3.11


def _stack_of(frame: Optional[FrameType]) -> list[str]:
    """Innermost call first. Reads no source file: that may be where the program hangs."""
    lines = []
    for each, line in traceback.walk_stack(frame):
        if os.path.dirname(each.f_code.co_filename) == _HERE:
            continue
        lines.append(f"    {_function(each)} at {each.f_code.co_filename}:{line}")
    return lines


def stacks() -> str:
    """The Python stacks of all threads but this one, the main thread first."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    frames = sys._current_frames()
    frames.pop(threading.get_ident(), None)
    main = threading.main_thread().ident
    text = [f"Python stacks of process {os.getpid()}"]
    for identity in sorted(frames, key=lambda each: each != main):
        text.append(f"  thread {names.get(identity, identity)}")
        text += _stack_of(frames[identity])
    return "\n".join(text) + "\n"


class OwnThread:
    """Runs until stop(). `poll` sees which calls have ended."""

    def __init__(self, recorder: Recorder, poll: Callable[[], None]) -> None:
        self._recorder, self._poll = recorder, poll
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="amldist-trace", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(1.0)

    def _run(self) -> None:
        answered = 0
        ticked = 0.0
        while not self._stop.wait(_PAUSE):
            try:
                self._poll()
                wanted = self._recorder.stacks_wanted()
                if wanted != answered:
                    answered = wanted
                    self._recorder.give_stacks(wanted, stacks())
                if time.monotonic() - ticked >= _TICK:
                    ticked = time.monotonic()
                    self._recorder.tick()
            except Exception:  # a full disk, or the interpreter is ending
                continue
