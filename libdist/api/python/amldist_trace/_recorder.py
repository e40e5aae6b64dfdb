"""Writes flight recorders of source "torch", in the format of libdist/trace/record/record_format.hpp.

In Python, because the calls that it records take a hundred times longer than the record.
"""

from __future__ import annotations

import fcntl
import hashlib
import mmap
import os
import stat
import struct
import time
from pathlib import Path
from typing import Optional, Sequence

MAGIC = int.from_bytes(b"AMLDFR01", "little")
VERSION = 2
SLOTS, POOL, CAPACITY = 256, 8192, 4096
SLOTS_AT, SLOT_BYTES = 4096, 128
MEMBERS_AT = SLOTS_AT + SLOTS * SLOT_BYTES
ENTRIES_AT = MEMBERS_AT + POOL * 4
ENTRY_BYTES = 64
NO_SLOT = 0xFFFFFFFF

_HEADER = struct.Struct("<QIIIIIIIIiIQQQQQQ128s256sI512s16sI")
_ENDING_AT, _LATEST_AT, _RECORDED_AT = 44, 72, 88
#: How often this process's stacks were requested, and up to which request they were written.
STACKS_WANTED_AT = _HEADER.size
_STACKS_GIVEN_AT = STACKS_WANTED_AT + 4
_SLOT = struct.Struct("<QIIQQIIIIiI72s")
_BODY = struct.Struct("<QQQQQIihBBBBH")  # an entry behind its ticket
_U64 = struct.Struct("<Q")
_U32 = struct.Struct("<I")
_CLOCK = struct.Struct("<QQ")

ENQUEUED, STARTED, COMPLETED, FAILED = 1, 2, 3, 4
ENDED_BADLY, ENDED_WELL = 1, 2
ANY_TAG, ANY_PEER = 0xFFFF, -2
KEPT_STEPS = 16

_STATE_AT = 8 + 8 * 5 + 4 + 4 + 2  # of an entry, as are the next ones
_STARTED_AT, _ENDED_AT, _STATUS_AT = 32, 40, 56

# struct flock of 64-bit Linux.
_FLOCK = struct.Struct("hhxxxxqqixxxx")


def digest(*words: object) -> int:
    """A number that is the same on all ranks that pass the same words."""
    return int.from_bytes(hashlib.blake2b(repr(words).encode(), digest_size=8).digest(), "little")


def is_written(path: Path) -> bool:
    """Whether another living process writes this recorder: it holds a lock on it."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:  # gone
        return False
    try:
        answer = fcntl.fcntl(file, fcntl.F_GETLK, _FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0))
        return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)
    except OSError:
        return False
    finally:
        os.close(file)


def _remove_old_steps(root: Path, own: str) -> None:
    steps = sorted((each for each in root.iterdir() if each.name != own), key=lambda each: -each.lstat().st_mtime)
    for step in steps[KEPT_STEPS - 1 :]:
        files = list(step.iterdir())
        if any(is_written(each) for each in files if each.suffix == ".trace"):
            continue
        for each in files:
            if each.suffix in (".trace", ".stack"):
                each.unlink(missing_ok=True)
        step.rmdir()


def _own_folder(path: Path, given: bool) -> None:
    path.mkdir(mode=0o700, exist_ok=True)
    status = path.stat() if given else path.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise OSError(f"{path} is not a folder")
    if not given and (status.st_uid != os.geteuid() or status.st_mode & 0o077):
        raise OSError(f"{path} belongs to another user, or is open to others")


def make_folder(step: str) -> Optional[Path]:
    """The step's folder of recorders, as record_folder.hpp describes it; None: recording is switched off."""
    given = os.environ.get("AMLDIST_TRACE_DIR", "")
    if given in ("off", "none"):
        return None
    roots = [given] if given else [f"{parent}/aml-dist-{os.geteuid()}" for parent in ("/dev/shm", "/tmp")]
    problem: Optional[OSError] = None
    for root in map(Path, roots):
        try:
            _own_folder(root, bool(given))
            _own_folder(root / step, False)
        except OSError as error:
            problem = problem or error
            continue
        if not given:
            try:
                _remove_old_steps(root, step)
            except OSError:  # another rank removes them too
                pass
        return root / step
    raise problem or OSError("no folder for recorders")


class Recorder:
    """One mapped file. Its methods may be called by one thread at a time; only tick() may run beside them."""

    def __init__(self, folder: Path, rank: int, size: int) -> None:
        self.folder, self.rank, self.size = folder, rank, size
        self.path = folder / f"{rank}.torch.trace"
        self.stack_path = folder / f"{rank}.torch.stack"
        if is_written(self.path):
            raise OSError(f"another process of this rank records into {self.path}")
        self.path.unlink(missing_ok=True)
        self._pid = os.getpid()
        self._recorded = 0
        self._pool_used = 0
        self._slots: list[bool] = []  # by slot: whether it is closed
        length = ENTRIES_AT + CAPACITY * ENTRY_BYTES
        self._file = os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.posix_fallocate(self._file, 0, length)
            try:
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:  # some NFS: readers learn less
                pass
            self._map = mmap.mmap(self._file, length)
            self._describe()
        except BaseException:
            os.close(self._file)
            self.path.unlink(missing_ok=True)
            raise

    def _describe(self) -> None:
        now, calendar = time.monotonic_ns(), time.time_ns()
        step = os.environ.get("AMLDIST_TRACE", "")
        local = os.environ.get("LOCAL_RANK") or os.environ.get("SLURM_LOCALID") or "0"
        header = _HEADER.pack(
            0, VERSION, SLOTS_AT, ENTRIES_AT, ENTRY_BYTES, CAPACITY, self.rank, self.size,
            int(local) if local.isdigit() else 0, self._pid, 0, 0, now, calendar, now, calendar, 0,
            step.encode()[:127], os.environ.get("SLURMD_NODENAME", os.uname().nodename).encode()[:255], 0, b"",
            b"torch", MEMBERS_AT,
        )  # fmt: skip
        self._map[: len(header)] = header
        _U64.pack_into(self._map, 0, MAGIC)

    def tick(self) -> None:
        """Shows that the process lives, and how its clock runs."""
        _U64.pack_into(self._map, _LATEST_AT + 8, 0)
        _CLOCK.pack_into(self._map, _LATEST_AT, time.monotonic_ns(), time.time_ns())

    def add_communicator(self, identity: int, rank: int, members: Sequence[int], name: str) -> int:
        """The slot of a group whose `members` are ranks of the world; NO_SLOT: its calls are not judged."""
        slot = len(self._slots)
        if slot < SLOTS:
            self._slots.append(False)
        elif True in self._slots:
            slot = self._slots.index(True)
            self._slots[slot] = False
        else:
            return NO_SLOT
        how, first, stride = self._members(members)
        at = SLOTS_AT + slot * SLOT_BYTES
        _U32.pack_into(self._map, at + 12, 0)
        words = name.encode("ascii", "replace")[:71]
        self._map[at : at + SLOT_BYTES] = _SLOT.pack(identity, rank, 0, 0, 0, 0, 0, how, first, stride, 0, words)
        _U32.pack_into(self._map, at + 12, len(members))
        return slot

    def _members(self, members: Sequence[int]) -> tuple[int, int, int]:
        first = members[0]
        stride = members[1] - first if len(members) > 1 else 1
        if all(rank == first + i * stride for i, rank in enumerate(members)):
            return 1, first, stride
        if len(members) > POOL - self._pool_used:
            return 0, 0, 0
        at = self._pool_used
        struct.pack_into(f"<{len(members)}I", self._map, MEMBERS_AT + 4 * at, *members)
        self._pool_used += len(members)
        return 2, at, 0

    def close_communicator(self, slot: int) -> None:
        if slot < SLOTS:
            _U32.pack_into(self._map, SLOTS_AT + slot * SLOT_BYTES + 32, 1)
            self._slots[slot] = True

    def begin(self, operation: int, kind: int, slot: int, sequence: int, size: int, peer: int, state: int) -> int:
        """Writes a call; the result names it in the calls below. `sequence` 0: a message, which two ranks make."""
        self._recorded += 1
        ticket = self._recorded
        data, at = self._map, ENTRIES_AT + (ticket - 1) % CAPACITY * ENTRY_BYTES
        now = time.monotonic_ns()
        _U64.pack_into(data, at, 0)
        _BODY.pack_into(data, at + 8, sequence, size, now, now if state == STARTED else 0, 0, slot, peer, 0, state,
                        operation, kind, 0, ANY_TAG)  # fmt: skip
        _U64.pack_into(data, at, ticket)
        if slot < SLOTS and sequence:
            _U64.pack_into(data, SLOTS_AT + slot * SLOT_BYTES + 16, sequence)
        _U64.pack_into(data, _RECORDED_AT, ticket)
        return ticket

    def _entry(self, ticket: int) -> int:
        """Where the call is; 0: later ones have taken its place."""
        return ENTRIES_AT + (ticket - 1) % CAPACITY * ENTRY_BYTES if self._recorded - ticket < CAPACITY else 0

    def start(self, ticket: int) -> None:
        if at := self._entry(ticket):
            _U64.pack_into(self._map, at + _STARTED_AT, time.monotonic_ns())
            self._map[at + _STATE_AT] = STARTED

    def end(self, ticket: int, well: bool, slot: int, sequence: int) -> None:
        if at := self._entry(ticket):
            _U64.pack_into(self._map, at + _ENDED_AT, time.monotonic_ns())
            if not well:
                struct.pack_into("<h", self._map, at + _STATUS_AT, -1)
            self._map[at + _STATE_AT] = COMPLETED if well else FAILED
        if well and slot < SLOTS and sequence:
            _U64.pack_into(self._map, SLOTS_AT + slot * SLOT_BYTES + 24, sequence)

    def stacks_wanted(self) -> int:
        """True if the number has changed: the stacks are requested."""
        return int(_U32.unpack_from(self._map, STACKS_WANTED_AT)[0])

    def give_stacks(self, number: int, text: str) -> None:
        made = self.stack_path.with_suffix(".stack-new")
        made.unlink(missing_ok=True)
        file = os.open(made, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        with open(file, "w", encoding="utf-8", errors="replace") as out:
            out.write(text)
        made.rename(self.stack_path)
        _U32.pack_into(self._map, _STACKS_GIVEN_AT, number)

    def close(self, well: bool) -> None:
        """The process ends. The file of one that ended well stays until the node's last one has ended: others may wait
        for it in vain, and it says that it has left."""
        if self._pid != os.getpid():
            return
        self.tick()
        _U32.pack_into(self._map, _ENDING_AT, ENDED_WELL if well else ENDED_BADLY)
        os.close(self._file)  # and the lock
        self.stack_path.unlink(missing_ok=True)
        if well:
            self._remove_if_last()

    def _remove_if_last(self) -> None:
        files = list(self.folder.glob("*.torch.trace"))
        if any(is_written(each) for each in files):
            return
        for each in files:
            with open(each, "rb") as file:
                ending = _U32.unpack_from(file.read(_HEADER.size), _ENDING_AT)[0]
            if ending == ENDED_WELL:
                each.unlink(missing_ok=True)
        try:
            self.folder.rmdir()
        except OSError:  # files of other sources, or of ranks that failed
            pass
