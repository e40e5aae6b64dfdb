"""Errors of a process group: PyTorch's classes, and ranks as the program numbers them."""

from __future__ import annotations

import re
from typing import List, Match, Optional, Sequence

import torch.distributed as dist
from amldist import _errors


class BackendError(dist.DistBackendError):
    """A DistBackendError that also says which rank was missing or wrong, and in which call, if that is known."""

    rank: Optional[int] = None  #: the program's number
    group_rank: Optional[int] = None  #: in the group whose call it was
    host: Optional[str] = None
    operation: Optional[str] = None
    number: Optional[int] = None


class RefusedCall(ValueError, RuntimeError):
    """An invalid call. PyTorch's own functions raise ValueError for these, its back ends RuntimeError."""


def refuse(operation: str, what: str) -> RefusedCall:
    return RefusedCall(f"amldist: {operation}: {what}")


class Members:
    """The ranks of a group: ``ranks[r]`` is the program's number of the group's rank r. The group of all ranks has no name."""

    #: How the library writes ranks: "rank 1 (local 0) on node2", "rank 1 (node2)", "ranks 1, 3-5", "root 0".
    _WRITTEN = re.compile(
        r"\b(ranks?|root) (\d+(?:-\d+)?(?:(?:, | and )\d+(?:-\d+)?)*)(?:(?: \(local \d+\))? on ([\w.-]*\w)| \(([^()]+)\))?"
    )

    def __init__(self, ranks: Sequence[int], name: str) -> None:
        self._ranks, self._name = list(ranks), name

    def rank(self, rank: Optional[int]) -> Optional[int]:
        """The program's number of a rank of the group."""
        return rank if rank is None or rank >= len(self._ranks) else self._ranks[rank]

    def renumbered(self, sentence: str) -> str:
        """The library's sentence with the program's ranks: "rank 5 (rank 1 of group 'tp_2') on node3"."""
        if not self._name and self._ranks == list(range(len(self._ranks))):
            return sentence
        return self._WRITTEN.sub(self._renumbered, sentence)

    def _renumbered(self, found: Match[str]) -> str:
        word, written, host, started_on = found.groups()
        host = host or started_on
        numbers: List[int] = []
        for part in re.split(", | and ", written):
            first, _, last = part.partition("-")
            numbers.extend(range(int(first), int(last or first) + 1))
        if any(number >= len(self._ranks) for number in numbers):
            return found[0]
        ours = ", ".join(str(self._ranks[number]) for number in numbers)
        group = f"group '{self._name}'" if self._name else "its group"
        return f"{word} {ours} ({word} {written} of {group})" + (f" on {host}" if host else "")

    def error(self, error: Exception, limit_s: float = 0, before: str = "") -> Exception:
        """The package's exception as PyTorch's; ``limit_s`` was the call's deadline. Errors of the caller are returned unchanged."""
        if type(error) is ValueError:
            return RefusedCall(self.renumbered(str(error)))
        if not isinstance(error, _errors.Error):
            return error
        over = f"; the timeout of {limit_s:g} s has passed" if isinstance(error, _errors.TimeoutError) and limit_s else ""
        told = BackendError(before + self.renumbered(str(error)) + over)
        told.rank, told.group_rank = self.rank(error.rank), error.rank
        told.host, told.operation, told.number = error.host, error.operation, error.number
        told.__cause__ = error
        return told
