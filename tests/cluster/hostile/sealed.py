"""Datagrams between srun and the nodes of its step, as who has the step's token writes them: the step's own user. A third
writing of the form in libdist/step/messages/datagram.hpp, so that a test can be a hostile node."""

from __future__ import annotations

import random
import re
import time

BITS = (1 << 64) - 1


def siphash(key: bytes, text: bytes) -> int:
    k0, k1 = int.from_bytes(key[:8], "little"), int.from_bytes(key[8:], "little")
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]

    def rotate(word: int, bits: int) -> int:
        return (word << bits | word >> 64 - bits) & BITS

    def rounds(count: int) -> None:
        for _ in range(count):
            for a, b, c, d, first, second in ((0, 1, 2, 3, 13, 16), (2, 1, 0, 3, 17, 21)):
                v[a] = (v[a] + v[b]) & BITS
                v[c] = (v[c] + v[d]) & BITS
                v[b] = rotate(v[b], first) ^ v[a]
                v[d] = rotate(v[d], second) ^ v[c]
                v[a] = rotate(v[a], 32)

    padded = text + bytes(7 - len(text) % 8) + bytes([len(text) & 255])
    for at in range(0, len(padded), 8):
        word = int.from_bytes(padded[at:at + 8], "little")
        v[3] ^= word
        rounds(2)
        v[0] ^= word
    v[2] ^= 255
    rounds(4)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def seal(token: str, fields: str, sender: int | None = None, stamp: int | None = None, direction: str = "q") -> bytes:
    """`token`: its 32 digits; `fields`: "failed;2;0;9;1234;node2"."""
    who = f"{random.getrandbits(64) if sender is None else sender:016x}"
    when = f"{time.monotonic_ns() if stamp is None else stamp:016x}"
    key = int(token[:16], 16).to_bytes(8, "little") + int(token[16:], 16).to_bytes(8, "little")
    code = siphash(key, f"{direction}{who}{when};{fields}".encode())
    return f"aml-dist;2;{who};{when};{code:016x};{fields}".encode()


def channel_of(environment: bytes) -> tuple[int, str] | None:
    """Port and token in the environment of an srun that the caller may read: the step's own user."""
    found = re.search(rb"SLURM_AMLDIST_REPORT=2;port=(\d+);token=([0-9a-f]{32})", environment)
    return (int(found[1]), found[2].decode()) if found else None


assert siphash(bytes(range(16)), bytes(range(15))) == 0xA129CA6149BE45E5  # of the paper that describes it
