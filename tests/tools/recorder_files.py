"""Flight recorder files as libdist/trace/record/record_format.hpp describes them, written without its help."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path

MAGIC = int.from_bytes(b"AMLDFR01", "little")
HEADER = struct.Struct("<QIIIIIIIIiIQQQQQQ128s256sI512s16sI")
COMMUNICATOR = struct.Struct("<QIIQQIIIIiI72s")
ENTRY = struct.Struct("<QQQQQQIihBBBBH")
SLOTS, POOL, CAPACITY = 256, 8192, 64
SLOTS_AT = 4096
MEMBERS_AT = SLOTS_AT + SLOTS * 128
ENTRIES_AT = MEMBERS_AT + POOL * 4
ROW = 1  # members are first, first + stride, ...
OPERATIONS = {"allreduce": 1, "reduce": 2, "broadcast": 3, "allgather": 4, "send": 11, "recv": 12, "barrier": 13}
STATES = {"enqueued": 1, "started": 2, "completed": 3, "failed": 4}
FLOAT32 = 7


@dataclass
class Call:
    operation: str = "allreduce"
    sequence: int = 0
    bytes: int = 4 << 20
    state: str = "completed"
    start: int = 0  # nanoseconds since the recorder was made
    end: int = 0
    peer: int = -1


@dataclass
class Recorder:
    rank: int
    size: int
    host: str = "node1"
    job: str = "42.0"
    note: str = ""
    pid: int = 4711
    ending: int = 0
    calls: list[Call] = field(default_factory=list)
    created: int = 1_760_000_000 * 10**9
    latest: int = 10 * 10**9  # nanoseconds since it was made

    def collectives(self):
        return [call for call in self.calls if call.operation not in ("send", "recv")]

    def bytes(self) -> bytes:
        entered = max((call.sequence for call in self.collectives()), default=0)
        completed = max((call.sequence for call in self.collectives() if call.state == "completed"), default=0)
        base = 1000  # ticks of one nanosecond each, from an odd origin
        header = HEADER.pack(MAGIC, 2, SLOTS_AT, ENTRIES_AT, 64, CAPACITY, self.rank, self.size, 0, self.pid, self.ending, 0, base,
                             self.created, base + self.latest, self.created + self.latest, len(self.calls),
                             self.job.encode(), self.host.encode(), len(self.note), self.note.encode(),
                             b"amldist", MEMBERS_AT)
        world = COMMUNICATOR.pack(1, self.rank, self.size, entered, completed, 0, 0, ROW, 0, 1, 0, b"")
        ring = b"".join(
            ENTRY.pack(ticket, call.sequence, call.bytes, base + call.start, base + call.start,
                       base + call.end if call.end else 0, 0, call.peer, -7 if call.state == "failed" else 0,
                       STATES[call.state], OPERATIONS[call.operation], FLOAT32, 0, 0)
            for ticket, call in enumerate(self.calls, 1))
        return (header.ljust(SLOTS_AT, b"\0") + world.ljust(ENTRIES_AT - SLOTS_AT, b"\0")) + ring.ljust(CAPACITY * 64, b"\0")

    def write(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.rank}.trace"
        path.write_bytes(self.bytes())
        return path


def working(rank: int, size: int, calls: int, host: str | None = None, late: int = 0) -> Recorder:
    """A rank that has ended `calls` allreduces, each of 400 microseconds, 1 millisecond apart."""
    recorder = Recorder(rank, size, host or f"node{1 + rank // 2}")
    for sequence in range(1, calls + 1):
        start = sequence * 1_000_000 + late
        recorder.calls.append(Call("allreduce", sequence, start=start, end=start + 400_000 - late))
    return recorder


def waiting(recorder: Recorder, operation: str = "allreduce", size: int = 4 << 20, state: str = "started") -> Recorder:
    """Lets it begin another call that does not end."""
    sequence = len(recorder.collectives()) + 1
    recorder.calls.append(Call(operation, sequence, size, state, sequence * 1_000_000,
                               recorder.latest if state == "failed" else 0))
    return recorder
