"""Messages between two ranks, and barriers."""

from __future__ import annotations

import ctypes
from datetime import timedelta
from typing import Any, List, Optional

from amldist import _errors
from amldist.torch._base import NO_TIMEOUT, Group, Tensor
from amldist.torch._tensors import OnHost, refuse, resolved
from amldist.torch._work import BackendError, backend_error

_ANY_SOURCE = -1


class Messages(Group):
    """Send, receive and the barriers."""

    def send(self, tensors: List[Tensor], peer: int, tag: int) -> Any:
        if len(tensors) != 1:
            raise refuse("send", f"{len(tensors)} tensors were given: one is sent")
        self._check_whole(tensors[0], "send")
        given = resolved(tensors[0].detach()).cpu()
        count, kind = self._moved(given)
        with self._lock:
            self._use_deadline(None)
            request = self._begin("send_tagged", (given.data_ptr(), count, kind, peer, tag), given)
            return self._work([request], tensors, None)

    def recv(self, tensors: List[Tensor], peer: int, tag: int) -> Any:
        tensor = self._in_place(tensors, "recv")
        device = OnHost(tensor.device if tensor.is_cuda else None)
        host = device.write(tensor)
        count, kind = self._moved(host)
        source = ctypes.c_int(peer)
        with self._lock:
            self._use_deadline(None)
            arguments = (host.data_ptr(), count, kind, peer, tag, ctypes.byref(source))
            request = self._begin("recv_tagged", arguments, (host, source))
            return self._work([request], tensors, device.finish(), source)

    def recv_anysource(self, tensors: List[Tensor], tag: int) -> Any:
        return self.recv(tensors, _ANY_SOURCE, tag)

    def barrier(self, opts: Any) -> Any:
        self._drain()
        return self._call("barrier", (), opts, [], None, OnHost())

    def monitored_barrier(self, timeout: Optional[timedelta]) -> None:
        """A barrier whose errors begin with Gloo's words, which programs look for, and go on with libdist's."""
        self._drain()
        with self._lock:
            if timeout is not None and timeout == NO_TIMEOUT and self.rank == 0:
                raise BackendError("Rank 0 timed out in monitoredBarrier after 0 ms")
            self._use_deadline(timeout)
            try:
                self.comm.barrier()
            except _errors.Error as error:
                limit = self._deadline.total_seconds()
                told = (
                    f"Rank {error.rank} failed to pass monitoredBarrier in {limit * 1000:.0f} ms"
                    if self.rank == 0
                    else f"Rank {self.rank} successfully reached monitoredBarrier, but received errors while waiting "
                    "for send/recv from rank 0. Please check rank 0 logs for faulty rank"
                )
                raise backend_error(error, limit, f"[Rank {self.rank}]: {told}: ") from error
