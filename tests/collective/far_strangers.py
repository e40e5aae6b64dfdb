"""Worlds of two nodes, attacked from a third one by another user: each comes together, computes right and ends.

    far_strangers.py --program PROGRAM [--only NAME]...

The nodes are network name spaces. Prints a line for each attack, with the seconds of the world beside it. Exit status: 0 if
every world was right and nobody was let in, else 1; 77 where there can be no name spaces.
"""

from __future__ import annotations

import argparse
import pathlib
import secrets
import subprocess
import sys
import tempfile
import threading
import time

import everybody
import launch
import network

NOBODY = 65534
ATTACKER = 2  # his node
AS_NOBODY = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
FLOOD = "10000"


class Attack:
    """A stranger at work."""

    def __init__(self, place: list[str], script: pathlib.Path, *words: str):
        self.words = words
        self.said: list[str] = []
        self.process = subprocess.Popen([*place, launch.PYTHON_OF_ANYBODY, str(script), *words], stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self) -> None:
        for line in self.process.stdout:
            self.said.append(line.strip())

    def wait_for(self, word: str, limit: float = 60) -> None:
        end = time.monotonic() + limit
        while word not in self.said:
            if time.monotonic() > end or self.process.poll() not in (None, 0):
                raise TimeoutError(f"{self.words}: no {word!r}: {self.said}")
            time.sleep(0.01)

    def end(self) -> list[str]:
        self.process.kill()
        self.process.wait()
        self.reader.join(5)
        return self.said


class Field:
    def __init__(self, program: str, nodes: network.Network, folder: pathlib.Path):
        self.program, scripts = everybody.for_all_users(program)
        self.script = scripts / "stranger.py"
        self.nodes, self.folder = nodes, folder
        self.port = launch.free_port()
        self.secret = secrets.token_hex(32)

    @property
    def meeting(self) -> str:
        return str(launch.meeting_port(self.port))

    def rank(self, number: int, node: int | None = None, master: int = 0, before: list[str] | None = None,
             **more: str) -> subprocess.Popen:
        environment = {"RANK": str(number), "WORLD_SIZE": "2", "MASTER_ADDR": self.nodes.address(master),
                       "MASTER_PORT": str(self.port), "AMLDIST_STEP_SECRET": self.secret, "AMLDIST_NODE_NAME": f"node{number}",
                       "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
        place = self.nodes.on(number if node is None else node)
        return subprocess.Popen([*place, *(before or []), self.program, "operations"], env=environment | more,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def stranger(self, *words: str, user: list[str] = AS_NOBODY) -> Attack:
        return Attack([*self.nodes.on(ATTACKER), *user], self.script, *words)

    @staticmethod
    def ends(ranks: list[subprocess.Popen]) -> list[str]:
        """What is wrong with a world."""
        problems = []
        for rank in ranks:
            try:
                said = rank.communicate(timeout=60)[0]
            except subprocess.TimeoutExpired:
                rank.kill()
                said = "it hangs: " + rank.communicate()[0]
            if rank.returncode != 0 or said:
                problems.append(f"status {rank.returncode}: {said!r}")
        return problems

    def beside(self, *words: str, user: list[str] = AS_NOBODY) -> list[str]:
        """Rank 0 waits, the attack begins, then rank 1 comes; the attack goes on until both have ended."""
        ranks = [self.rank(0)]
        attack = self.stranger(*words, user=user)
        try:
            attack.wait_for("ready")
        finally:
            ranks.append(self.rank(1))
            problems = self.ends(ranks)
            said = attack.end()
        made = [int(line.split()[0]) for line in said if line.endswith(" connections")]
        few = made and made[0] < int(words[-1]) * 0.9
        return problems + ([f"{words[0]}: {said}"] if "let in" in said or few else [])

    # ---- the attacks ----
    def record(self) -> list[str]:
        """One on the network keeps the proofs of a world that starts well."""
        attack = Attack(self.nodes.in_the_middle(), self.script, "record", "port1", self.meeting, str(self.folder / "recorded"))
        attack.wait_for("ready")
        problems = self.ends([self.rank(0), self.rank(1)])
        attack.wait_for("recorded")
        attack.end()
        (self.folder / "recorded").chmod(0o644)
        return problems

    def with_recording(self, how: str) -> list[str]:
        problems = self.record()
        ranks = [self.rank(0)]  # the same step's, at the same port, with the same secret
        attack = self.stranger(how, self.nodes.address(0), self.meeting, str(self.folder / "recorded"))
        attack.wait_for("ready")
        ranks.append(self.rank(1))
        problems += self.ends(ranks)
        said = attack.end()
        return problems + ([f"{how}: {said}"] if "let in" in said or "challenged" not in said else [])

    def replay(self) -> list[str]:
        """The proofs of a world of the same step are sent again to its next one."""
        return self.with_recording("replay")

    def reflect(self) -> list[str]:
        """Rank 0's own proof comes back as the joiner's."""
        return self.with_recording("reflect")

    def relay(self) -> list[str]:
        """A rank that is led to the stranger gets rank 0's challenge from him, and tells him no proof."""
        ranks = [self.rank(0)]
        attack = self.stranger("relay", self.meeting, self.nodes.address(0), self.meeting)
        attack.wait_for("ready")
        led = self.rank(1, master=ATTACKER)
        attack.wait_for("challenged")
        time.sleep(1)
        caught = led.poll()
        led.kill()
        led.communicate()
        ranks.append(self.rank(1))
        problems = self.ends(ranks)
        said = attack.end()
        return problems + ([f"relay: {caught} {said}"] if caught is not None or "let in" in said else [])

    def other_secret(self) -> list[str]:
        """Ranks of another step, and of none, come first."""
        ranks = [self.rank(0)]
        # They wait longer than the world takes, also on a busy machine: neither is let in, nor told that it is refused.
        others = [self.rank(1, ATTACKER, before=AS_NOBODY, AMLDIST_STEP_SECRET=secret, AMLDIST_TEST_INIT_MS="300000")
                  for secret in (secrets.token_hex(32), "")]
        time.sleep(1)
        ranks.append(self.rank(1))
        problems = self.ends(ranks)
        inside = [other.poll() for other in others]
        for other in others:
            other.kill()
            other.communicate()
        return problems + ([f"they ended with {inside}"] if inside != [None, None] else [])

    def false_rank_0(self) -> list[str]:
        """Rank 0 of another step listens where a rank looks: the rank passes it by."""
        false = self.rank(0, ATTACKER, before=AS_NOBODY, AMLDIST_STEP_SECRET=secrets.token_hex(32),
                          MASTER_ADDR=self.nodes.address(ATTACKER))
        led = self.rank(1, master=ATTACKER)
        time.sleep(2)
        ends = [false.poll(), led.poll()]
        for each in (false, led):
            each.kill()
            each.communicate()
        return [f"they ended with {ends}"] if ends != [None, None] else []

    def half_open(self) -> list[str]:
        return self.beside("half-open", self.nodes.address(0), self.meeting, FLOOD, user=[])

    def silent(self) -> list[str]:
        return self.beside("silent", self.nodes.address(0), self.meeting, FLOOD)

    def halves(self) -> list[str]:
        return self.beside("halves", self.nodes.address(0), self.meeting, FLOOD)

    def slow(self) -> list[str]:
        return self.beside("slow", self.nodes.address(0), self.meeting, "300")

    def after_the_start(self) -> list[str]:
        """The port of a rank that computes already."""
        ranks = [self.rank(0), self.rank(1)]
        show = [*self.nodes.on(1), "ss", "-ltnH"]
        while not (listeners := subprocess.run(show, capture_output=True, text=True, check=True).stdout.split()):
            time.sleep(0.005)
        attack = self.stranger("halves", self.nodes.address(1), listeners[3].rpartition(":")[2], "2000")
        problems = self.ends(ranks)
        attack.end()
        return problems

    def ports(self) -> list[str]:
        """Another user of both nodes holds all ports of the range that he can, but those that a rank needs."""
        most = 8
        first = launch.free_port()
        ports = [str(first + i) for i in range(most)]
        meeting = (self.port + launch.DISTANCE) % most
        spare = [(meeting + 1) % most, (meeting + 2) % most]  # where the ranks themselves listen
        squat = ("import socket, sys, time; held = [socket.create_server(('', int(port))) for port in sys.argv[1:]]; "
                 "print('ready', flush=True); time.sleep(100)")
        wanted = [[port for i, port in enumerate(ports) if i not in (meeting, spare[0])],
                  [port for i, port in enumerate(ports) if i != spare[1]]]
        squatters = [subprocess.Popen([*self.nodes.on(node), *AS_NOBODY, launch.PYTHON_OF_ANYBODY, "-c", squat, *wanted[node]],
                                      stdout=subprocess.PIPE, text=True) for node in range(2)]
        for each in squatters:
            each.stdout.readline()
        problems = self.ends([self.rank(number, AMLDIST_PORT_RANGE=f"{ports[0]}-{ports[-1]}") for number in range(2)])
        for each in squatters:
            each.kill()
            each.communicate()
        return problems


ATTACKS = ["replay", "reflect", "relay", "other_secret", "false_rank_0", "half_open", "silent", "halves", "slow",
           "after_the_start", "ports"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--only", action="append", choices=ATTACKS)
    options = parser.parse_args()
    if why := network.reason_to_skip():
        print(f"skipped: {why}")
        return 77
    wrong = 0
    # Not below TMPDIR, which other users may not enter: the attacker reads what was recorded.
    with network.Network() as nodes, tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        pathlib.Path(folder).chmod(0o755)
        for name in ["nobody", *(options.only or ATTACKS)]:
            field = Field(options.program, nodes, pathlib.Path(folder))
            since = time.monotonic()
            try:
                problems = field.ends([field.rank(0), field.rank(1)]) if name == "nobody" else getattr(field, name)()
            except (TimeoutError, OSError) as problem:
                problems = [repr(problem)]
            print(f"{name:<16}{time.monotonic() - since:6.1f} s  {'right' if not problems else problems}", flush=True)
            wrong += bool(problems)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
