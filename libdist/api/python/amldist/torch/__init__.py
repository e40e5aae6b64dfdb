"""libdist as a back end of torch.distributed: ``init_process_group("amldist")``.

PyTorch finds it by its entry point where it looks for such; older releases need ``import amldist.torch`` before. Either
way the group's own store leads the ranks to each other, and MASTER_PORT stays PyTorch's.

Errors are torch.distributed.DistBackendError with one sentence that names the missing or wrong rank, its host, the
operation and its number; also as ``rank``, ``host``, ``operation``, ``number`` of the exception.
"""

from __future__ import annotations

from typing import NoReturn


def _cannot(sentence: str) -> NoReturn:
    raise ImportError(f"amldist: {sentence}")


try:
    import torch.distributed as dist
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    _cannot("this Python has no PyTorch (pip install torch)")

if not dist.is_available():
    _cannot("this PyTorch was built without torch.distributed")
if not hasattr(dist, "DistBackendError"):
    _cannot("this PyTorch is too old; 2.6 or a later one is needed")

from amldist.torch._backend import DEVICES, NAME, AmldistBackend, AmldistGroup, create
from amldist.torch._buckets import use_library_memory
from amldist.torch._failures import BackendError
from amldist.torch._stop import should_stop

BackendError.__module__ = __name__  # the name that users see and can import

__all__ = ["NAME", "AmldistBackend", "AmldistGroup", "BackendError", "register", "should_stop", "use_library_memory"]


def register() -> None:
    """Registers the back end with PyTorch. Calling it again does nothing."""
    if NAME.upper() not in dist.Backend._plugins:
        dist.Backend.register_backend(NAME, create, extended_api=True, devices=DEVICES)


register()
