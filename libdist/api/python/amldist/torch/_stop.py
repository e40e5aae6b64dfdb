"""Whether the ranks of a process group should save and end."""

from __future__ import annotations

from typing import Any, Optional

import torch
import torch.distributed as dist
from amldist._world import stop_requested


def _engine_of(group: Any) -> Any:
    engine = getattr(group, "engine", None)
    if engine is None and "amldist" in dist.get_backend(group):
        engine = getattr(group._get_backend(torch.device("cpu")), "engine", None)
    return engine


def _device_of(group: Any) -> torch.device:
    """One for which the group has a back end."""
    if dist.get_backend(group) == "nccl":
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def should_stop(group: Optional[Any] = None) -> bool:
    """Whether the ranks should save and end: the same on all ranks of the group at the same call. Every rank calls it equally
    often, such as once after each step.

    With the back end amldist it sends nothing (Communicator.should_stop). With another one it is an all-reduce of four bytes:
    call it every few steps if that is too much. Without a process group it is this process's own answer."""
    if not dist.is_initialized():
        return stop_requested()
    group = dist.group.WORLD if group is None else group
    engine = _engine_of(group)
    if engine is not None:
        return bool(engine.comm.should_stop())
    flag = torch.tensor([stop_requested()], dtype=torch.int32, device=_device_of(group))
    dist.all_reduce(flag, op=dist.ReduceOp.MAX, group=group)
    return bool(flag.item())
