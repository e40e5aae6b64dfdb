"""The exceptions of this package, and how a status of the library becomes one."""

from __future__ import annotations

import builtins
import ctypes
from typing import NoReturn, Optional

from amldist import _library


class Error(RuntimeError):
    """A call failed. Its text is the library's one sentence: what was asked, what was found, what to do.

    ``rank``, ``host``, ``operation`` and ``number`` say which rank was missing or wrong, and in which call; each is
    None where the library could not tell. ``number`` counts the calls of a communicator from 1.
    """

    def __init__(
        self,
        message: str,
        rank: Optional[int] = None,
        host: Optional[str] = None,
        operation: Optional[str] = None,
        number: Optional[int] = None,
    ) -> None:
        super().__init__(message)
        self.rank = rank
        self.host = host
        self.operation = operation
        self.number = number


class PeerError(Error):
    """A rank has died, has left, or has made another call than the others.

    ``flags`` is what agree() came to, where that was the call.
    """

    flags: Optional[int] = None


class TimeoutError(Error, builtins.TimeoutError):  # the name that people look for
    """The deadline passed; ``rank`` is the missing one."""


class AbortedError(Error):
    """The communicator was aborted, or had failed before. Its text repeats why."""


class MismatchError(Error):
    """Two facts contradict each other, such as two sources of this process's rank."""


#: Status codes of the C interface.
EINVAL, EMISMATCH, ENOTFOUND, EUNAVAILABLE, ELIMIT, EINTERNAL, ETIMEOUT, EPEER, EABORTED = range(-1, -10, -1)
_CLASSES: dict[int, type[Error]] = {
    EMISMATCH: MismatchError,
    ETIMEOUT: TimeoutError,
    EPEER: PeerError,
    EABORTED: AbortedError,
}


def last_error(status: int) -> Exception:
    """The exception for the error of this thread's last call of the library."""
    told = _library.ErrorStruct(ctypes.sizeof(_library.ErrorStruct))
    _library.lib.amldist_get_error(ctypes.byref(told))
    message = _library.text(told.message) or f"the library returned {status}"
    if status == EINVAL:
        return ValueError(message)
    if status == ELIMIT:
        return MemoryError(message)
    rank = None if told.rank < 0 else int(told.rank)
    host = _library.text(told.host) or None
    return _CLASSES.get(status, Error)(message, rank, host, _library.text(told.operation) or None, told.number or None)


def raise_last(status: int) -> NoReturn:
    """Raises the error of this thread's last call of the library."""
    raise last_error(status)


def check(status: int) -> int:
    """Raises for a negative status; returns any other."""
    if status < 0:
        raise_last(status)
    return status
