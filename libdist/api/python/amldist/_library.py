"""Finds and loads libamldist, and declares the functions of its C interface."""

from __future__ import annotations

import ctypes
import os
from ctypes import c_char_p, c_int, c_int32, c_size_t, c_void_p
from pathlib import Path
from typing import Any, Optional

#: A program may set it to use another library than the one in the package.
VARIABLE = "AMLDIST_LIBRARY"
#: The library's name for the loader.
SONAME = "libamldist.so.0"

StoreSet = ctypes.CFUNCTYPE(c_int, c_void_p, c_char_p, c_void_p, c_size_t)
StoreGet = ctypes.CFUNCTYPE(c_int, c_void_p, c_char_p, c_void_p, c_size_t, ctypes.POINTER(c_size_t), c_int)


InterruptFunction = ctypes.CFUNCTYPE(c_int, c_void_p)


class ErrorStruct(ctypes.Structure):
    """amldist_error."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("code", c_int32),
        ("rank", c_int32),
        ("number", ctypes.c_uint64),
        ("operation", c_char_p),
        ("host", c_char_p),
        ("message", c_char_p),
    ]


class StoreStruct(ctypes.Structure):
    """amldist_store."""

    _fields_ = [("struct_size", c_size_t), ("context", c_void_p), ("set", StoreSet), ("get", StoreGet)]


class ConfigStruct(ctypes.Structure):
    """amldist_config."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("rank", c_int32),
        ("size", c_int32),
        ("address", c_char_p),
        ("port", c_int32),
        ("secret", c_char_p),
        ("store", ctypes.POINTER(StoreStruct)),
        ("name", c_char_p),
        ("label", c_char_p),
    ]


class ReducerOptionsStruct(ctypes.Structure):
    """amldist_reducer_options."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("bucket_bytes", c_size_t),
        ("first_bucket_bytes", c_size_t),
        ("fuse_bytes", c_size_t),
        ("op", c_int),
    ]


class IdentityStruct(ctypes.Structure):
    """amldist_identity."""

    _fields_ = [("struct_size", c_size_t)] + [
        (name, c_int32)
        for name in ("rank", "size", "local_rank", "local_size", "node_rank", "nodes", "master_port")
    ]


# Arguments by function, without the communicator that comes first and the request that comes last.
_BUFFER, _COUNT, _NUMBER = c_void_p, c_size_t, c_int
_COLLECTIVES = {
    "allreduce": [_BUFFER, _BUFFER, _COUNT, _NUMBER, _NUMBER],
    "reduce": [_BUFFER, _BUFFER, _COUNT, _NUMBER, _NUMBER, _NUMBER],
    "broadcast": [_BUFFER, _COUNT, _NUMBER, _NUMBER],
    "allgather": [_BUFFER, _BUFFER, _COUNT, _NUMBER],
    "allgatherv": [_BUFFER, _COUNT, _BUFFER, c_void_p, c_void_p, _NUMBER],
    "reduce_scatter": [_BUFFER, _BUFFER, _COUNT, _NUMBER, _NUMBER],
    "reduce_scatterv": [_BUFFER, _BUFFER, c_void_p, c_void_p, _NUMBER, _NUMBER],
    "alltoall": [_BUFFER, _BUFFER, _COUNT, _NUMBER],
    "alltoallv": [_BUFFER, c_void_p, c_void_p, _BUFFER, c_void_p, c_void_p, _NUMBER],
    "gather": [_BUFFER, _BUFFER, _COUNT, _NUMBER, _NUMBER],
    "scatter": [_BUFFER, _BUFFER, _COUNT, _NUMBER, _NUMBER],
    "send": [_BUFFER, _COUNT, _NUMBER, _NUMBER],
    "recv": [_BUFFER, _COUNT, _NUMBER, _NUMBER],
    "barrier": [],
}
_OTHERS: dict[str, list[Any]] = {
    "get_identity": [c_void_p],
    "init": [c_void_p, c_int],
    "init_config": [c_void_p, c_void_p, c_int],
    "finalize": [c_void_p],
    "rank": [c_void_p],
    "size": [c_void_p],
    "local_rank": [c_void_p],
    "local_size": [c_void_p],
    "node_rank": [c_void_p],
    "nodes": [c_void_p],
    "split": [c_void_p, c_int, c_int, c_void_p],
    "shrink": [c_void_p, c_void_p],
    "agree": [c_void_p, c_void_p],
    "should_stop": [c_void_p, c_void_p],
    "stop_requested": [],
    "wait": [c_void_p],
    "test": [c_void_p, c_void_p],
    "send_tagged": [c_void_p, _BUFFER, _COUNT, _NUMBER, _NUMBER, _NUMBER],
    "recv_tagged": [c_void_p, _BUFFER, _COUNT, _NUMBER, _NUMBER, _NUMBER, c_void_p],
    "isend_tagged": [c_void_p, _BUFFER, _COUNT, _NUMBER, _NUMBER, _NUMBER, c_void_p],
    "irecv_tagged": [c_void_p, _BUFFER, _COUNT, _NUMBER, _NUMBER, _NUMBER, c_void_p, c_void_p],
    "wait_for": [c_void_p, c_int, c_void_p],
    "set_interrupt": [InterruptFunction, c_void_p],
    "get_error": [c_void_p],
    "group_begin": [c_void_p],
    "group_end": [c_void_p],
    "alloc": [c_void_p, c_size_t, c_void_p],
    "free": [c_void_p, c_void_p],
    "set_timeout": [c_void_p, c_int],
    "set_stream": [c_void_p, c_void_p],
    "abort": [c_void_p],
    "health": [c_void_p],
    "reducer_create": [c_void_p, c_void_p, c_size_t, c_int, c_void_p, c_void_p],
    "reducer_view": [c_void_p, c_size_t, c_void_p],
    "reducer_bind": [c_void_p, c_size_t, c_void_p],
    "reducer_ready": [c_void_p, c_size_t],
    "reducer_wait": [c_void_p],
    "reducer_calls": [c_void_p],
    "reducer_free": [c_void_p],
}
_TEXTS: dict[str, list[Any]] = {
    "version": [],
    "last_error": [],
    "host": [c_void_p, c_int],
    "task_map": [c_void_p],
    "provenance": [c_void_p],
}


def _candidates() -> list[str]:
    chosen = os.environ.get(VARIABLE)
    if chosen:
        return [chosen]
    here = sorted(str(path) for path in Path(__file__).parent.glob("libamldist.so*"))
    return [*here[:1], SONAME]


def _load() -> tuple[ctypes.CDLL, str]:
    reasons = []
    for candidate in _candidates():
        try:
            return ctypes.CDLL(candidate), candidate
        except OSError as error:
            reasons.append(str(error))
    raise ImportError(
        "amldist: libamldist cannot be loaded ("
        + "; ".join(reasons)
        + f"). Install the package's wheel, or set {VARIABLE} to the library's path."
    )


def _declare(library: ctypes.CDLL) -> None:
    for name, arguments in _COLLECTIVES.items():
        getattr(library, "amldist_" + name).argtypes = [c_void_p, *arguments]
        getattr(library, "amldist_i" + name).argtypes = [c_void_p, *arguments, c_void_p]
    for name, arguments in _OTHERS.items():
        getattr(library, "amldist_" + name).argtypes = arguments
    for name, arguments in _TEXTS.items():
        function = getattr(library, "amldist_" + name)
        function.argtypes, function.restype = arguments, c_char_p


def _prepared() -> tuple[ctypes.CDLL, str]:
    library, path = _load()
    try:
        _declare(library)
    except AttributeError as error:
        raise ImportError(
            f"amldist: {path} is older than this package ({error}). Install the same release of both."
        ) from None
    return library, path


#: The loaded library, and the path or name under which it was found. A call through it releases the GIL.
lib, path = _prepared()


def text(value: Optional[bytes]) -> str:
    """A text of the library; "" for NULL."""
    return value.decode("utf-8", "replace") if value else ""


def version() -> str:
    """Release of the library that was loaded."""
    return text(lib.amldist_version())
