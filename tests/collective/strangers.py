"""Worlds among strangers: whoever lacks the secret can neither join one nor end it nor stand in its middle.

    strangers.py --program PROGRAM

Strangers are processes of another user (nobody) where this runs as root, else of this one. Exit status: 0 if every world
came together right beside them, else 1.
"""

import argparse
import contextlib
import os
import pathlib
import re
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
import time

import everybody
import launch
import leftovers
from bootstrap import connected

NOBODY = 65534
OPEN = "this world is open: any process that reaches rank 0's port can join it"


def rank(program: str, number: int, size: int, port: int, address: str = "127.0.0.1", user: int | None = None,
         case: str = "place", **more: str) -> subprocess.Popen:
    environment = {"RANK": str(number), "WORLD_SIZE": str(size), "MASTER_ADDR": address, "MASTER_PORT": str(port)} | more
    return subprocess.Popen([program, case], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            user=user)


def ends(processes: list[subprocess.Popen]) -> tuple[list[int], list[str], list[str]]:
    texts = [process.communicate(timeout=90) for process in processes]
    return [process.returncode for process in processes], [text[0] for text in texts], [text[1] for text in texts]


def kill(process: subprocess.Popen) -> None:
    process.kill()
    process.communicate()


def own_address() -> str | None:
    """An address of this machine that is not loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            return None
        return probe.getsockname()[0]


class Step:
    """A secret, and a program that other users can run."""

    def __init__(self, program: str):
        self.program = program
        self.secret = {"AMLDIST_STEP_SECRET": secrets.token_hex(32)}
        self.stranger = NOBODY if os.geteuid() == 0 else None

    def trust(self, wanted: str, said: str, **environment: str) -> str | None:
        """What provenance calls a world of two ranks, and how often rank 0 warns."""
        address = environment.pop("address", "127.0.0.1")
        port = launch.free_port()
        statuses, out, err = ends([rank(self.program, each, 2, port, address, **environment) for each in range(2)])
        right = statuses == [0, 0] and all(re.search(rf"; {wanted}[;,]", text) for text in out)
        if right and [text.count(OPEN) for text in err] == ([1, 0] if said else [0, 0]):
            return None
        return f"{wanted}: {statuses} {out} {err}"

    def trusts(self) -> list[str | None]:
        checks = [self.trust("authenticated", "", **self.secret)]
        with tempfile.TemporaryDirectory() as folder:
            checks.append(self.trust("authenticated", "", XDG_RUNTIME_DIR=folder))  # of one user on one machine
            left = [name for name in os.listdir(folder) if name.startswith("aml-dist-secret-")]
            checks.append(f"files are left: {left}" if left else None)
        if (address := own_address()) is None:
            print("not checked: an open world, since this machine has no address but loopback")
            return checks
        checks.append(self.trust("open", OPEN, address=address))
        port = launch.free_port()
        statuses, _, err = ends([rank(self.program, each, 2, port, address, AMLDIST_SECRET="require") for each in range(2)])
        refused = statuses == [3, 3] and all("AMLDIST_SECRET=require, but the ranks have no secret" in text for text in err)
        return checks + [None if refused else f"require: {statuses} {err}"]

    def false_ranks(self) -> str | None:
        """Strangers come as rank 1 before rank 1, with no secret and with a wrong one."""
        port = launch.free_port()
        zero = rank(self.program, 0, 2, port, **self.secret)
        others = [rank(self.program, 1, 2, port, user=self.stranger),
                  rank(self.program, 1, 2, port, user=self.stranger, AMLDIST_STEP_SECRET=secrets.token_hex(32)),
                  rank(self.program, 1, 9, port, user=self.stranger)]
        time.sleep(1)
        statuses, out, err = ends([zero, rank(self.program, 1, 2, port, **self.secret)])
        inside = [other.poll() for other in others]
        for other in others:
            kill(other)
        if statuses == [0, 0] and inside == [None] * 3 and err == ["", ""]:
            return None
        return f"false ranks: {statuses} {inside} {out} {err}"

    def relay(self) -> str | None:
        """Somebody listens where rank 1 looks for rank 0, and passes everything on to rank 0."""
        port = launch.free_port()
        zero = rank(self.program, 0, 2, port, **self.secret)
        connected(launch.meeting_port(port)).close()
        with socket.create_server(("127.0.0.1", 0)) as server:
            threading.Thread(target=pass_on, args=(server, launch.meeting_port(port)), daemon=True).start()
            deceived = rank(self.program, 1, 2, server.getsockname()[1] - launch.DISTANCE, **self.secret)
            time.sleep(2)
            caught = deceived.poll()
            kill(deceived)
            statuses, _, err = ends([zero, rank(self.program, 1, 2, port, **self.secret)])
        return None if caught is None and statuses == [0, 0] else f"relay: {caught} {statuses} {err}"

    def flood(self) -> str | None:
        """10,000 connections that say nothing, or half a hello, before rank 1 comes."""
        port = launch.free_port()
        zero = rank(self.program, 0, 2, port, **self.secret)
        connected(launch.meeting_port(port)).close()
        before = memory(zero.pid)
        most_files = 0
        for number in range(10_000):
            with socket.create_connection(("127.0.0.1", launch.meeting_port(port))) as one:
                if number % 2:
                    one.sendall(b"\x79\0\0\0\5")
                if number % 100 == 0:
                    most_files = max(most_files, len(os.listdir(f"/proc/{zero.pid}/fd")))
        grown = memory(zero.pid) - before
        crowd = [socket.create_connection(("127.0.0.1", launch.meeting_port(port))) for _ in range(500)]
        statuses, _, err = ends([zero, rank(self.program, 1, 2, port, **self.secret)])
        for each in crowd:
            each.close()
        if statuses == [0, 0] and most_files < 100 and grown < 4096:
            return None
        return f"flood: {statuses} {err}, {most_files} descriptors, {grown} KiB more"


    def squatted_folders(self) -> list[str | None]:
        """Another user has the user's folders in /tmp and /dev/shm: the world goes on without, and says so."""
        if self.stranger is None or not leftovers.own_mounts():
            print("not checked: squatted folders, which takes root and mount name spaces")
            return []
        for parent in ("/tmp", "/dev/shm"):
            folder = pathlib.Path(parent) / f"aml-dist-{os.geteuid()}"
            folder.mkdir()
            os.chown(folder, NOBODY, NOBODY)
        port = launch.free_port()
        statuses, out, err = ends([rank(self.program, each, 2, port, case="operations") for each in range(2)])
        said = f"{OPEN} (cannot keep a secret in '/tmp/aml-dist-{os.geteuid()}': it belongs to another user)"
        right = statuses == [0, 0] and said in err[0] and not err[1]
        statuses, _, refused = ends([rank(self.program, each, 2, port, AMLDIST_SECRET="require") for each in range(2)])
        right &= statuses == [3, 3] and "it belongs to another user" in refused[0]
        statuses, out, _ = ends([rank(self.program, each, 2, port, **self.secret) for each in range(2)])
        right &= statuses == [0, 0] and "no flight recorder: " in out[0]
        return [None if right else f"squatted folders: {statuses} {out} {err} {refused}"]

    def squatted_name(self) -> str | None:
        """Another user has learnt at what name the ranks of a node met, and has it when they meet there again."""
        port = launch.free_port()
        zero = rank(self.program, 0, 2, port, case="operations", **self.secret)
        connected(launch.meeting_port(port)).close()
        names = names_of(zero.pid)
        met = ends([zero, rank(self.program, 1, 2, port, case="operations", **self.secret)])
        squat = ("import socket, sys, time; held = [socket.socket(socket.AF_UNIX) for _ in sys.argv[1:]]; "
                 "[(one.bind('\\0' + name), one.listen()) for one, name in zip(held, sys.argv[1:])]; "
                 "print('ready', flush=True); time.sleep(100)")
        squatter = subprocess.Popen([launch.PYTHON_OF_ANYBODY, "-c", squat, *names], stdout=subprocess.PIPE, user=self.stranger)
        squatter.stdout.readline()
        statuses, _, err = ends([rank(self.program, each, 2, port, case="operations", **self.secret) for each in range(2)])
        kill(squatter)
        if met[0] == statuses == [0, 0] and err == ["", ""] and names:
            return None
        return f"a squatted name: {names} {met} {statuses} {err}"


def names_of(process: int) -> set[str]:
    """Those of its abstract sockets, as soon as it has one, or none after 30 seconds."""
    end = time.monotonic() + 30
    names: set[str] = set()
    while not names and time.monotonic() < end:
        sockets = sockets_of(process)
        names = {line.split()[-1][1:] for line in pathlib.Path("/proc/net/unix").read_text().splitlines()
                 if line.split()[-1].startswith("@") and line.split()[6] in sockets}
        time.sleep(0.01)
    return names


def sockets_of(process: int) -> set[str]:
    """Their numbers."""
    found = set()
    for path in pathlib.Path(f"/proc/{process}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            link = os.readlink(path)
            found |= {link[8:-1]} if link.startswith("socket:[") else set()
    return found


def memory(process: int) -> int:
    """Resident, in KiB."""
    with open(f"/proc/{process}/status") as status:
        return int(re.search(r"VmRSS:\s+(\d+)", status.read())[1])


def pass_on(server: socket.socket, port: int) -> None:
    def pump(source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:  # the other side has hung up: what has arrived is judged there
            pass

    while True:
        try:
            near, _ = server.accept()
        except OSError:
            return
        far = socket.create_connection(("127.0.0.1", port))
        for ends_of in ((near, far), (far, near)):
            threading.Thread(target=pump, args=ends_of, daemon=True).start()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    step = Step(everybody.for_all_users(parser.parse_args().program)[0])
    results = [*step.trusts(), step.false_ranks(), step.relay(), step.flood(), step.squatted_name(),
               *step.squatted_folders()]
    wrong = [each for each in results if each]
    print("\n".join([*wrong, f"{len(results)} cases, {len(wrong)} wrong"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
