"""A world that cannot be built reports the reason in one sentence and ends.

    bootstrap.py --program PROGRAM

One process for each environment: a rank of two whose peer never connects, or that cannot find it. Then two ranks that
contradict each other, and rank 0 among strangers. Exit status: 0 if all reported the expected error, else 1.
"""

import argparse
import pathlib
import re
import select
import socket
import struct
import subprocess
import sys
import tempfile
import time

import launch

RANK = {"RANK": "0", "WORLD_SIZE": "2"}
AT_MASTER = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "23456"}
NOWHERE = "cannot find rank 0: set MASTER_ADDR and MASTER_PORT, or start the step with srun --aml-dist=KIND or --mpi=pmix"


def cases(broken: str) -> list[tuple[dict[str, str], str]]:
    """Environment, and the error of amldist_init (a pattern). `broken`: a folder with a file libpmix that is not a library."""
    return [
        (RANK, NOWHERE),
        (RANK | {"PMIX_NAMESPACE": "lost", "LD_LIBRARY_PATH": broken},
         NOWHERE + "; PMIx: (libpmix cannot be loaded: .*libpmix.so.2.*|this library was built without PMIx.*)"),
        (RANK | {"PMIX_NAMESPACE": "lost"}, NOWHERE + "; PMIx: .+"),
        (RANK | {"AMLDIST_BOOTSTRAP": "pmix"}, "PMIx_Init failed: .+: start the step with srun --mpi=pmix"
                                               "|this library was built without PMIx.*"),
        (RANK | {"AMLDIST_BOOTSTRAP": "pmix", "LD_LIBRARY_PATH": broken},
         "libpmix cannot be loaded: .*libpmix.so.2.*|this library was built without PMIx.*"),
        (RANK | {"AMLDIST_BOOTSTRAP": "carrier pigeon"}, "AMLDIST_BOOTSTRAP='carrier pigeon': use tcp, pmix, slurm or mpi"),
        (RANK | {"AMLDIST_ISA": "sse"}, "AMLDIST_ISA='sse': use plain, avx2 or avx512"),
        (RANK | {"AMLDIST_RDMA": "on"}, "AMLDIST_RDMA='on': use require, prefer or off"),
        (RANK | {"AMLDIST_PORT_RANGE": "20000-"}, "AMLDIST_PORT_RANGE: .*"),
        (RANK | {"AMLDIST_TIMEOUT_MS": "5s"}, "AMLDIST_TIMEOUT_MS='5s': use a number of milliseconds from 1 to 2147483647"),
        (RANK | {"AMLDIST_BOOTSTRAP": "slurm"}, "srun did not start this process"),
        (RANK | {"AMLDIST_BOOTSTRAP": "tcp"}, "MASTER_ADDR and MASTER_PORT are not both set"),
        (RANK | {"MASTER_ADDR": "127.0.0.1"}, "MASTER_ADDR and MASTER_PORT are not both set"),
        *((RANK | AT_MASTER | {"MASTER_PORT": port}, f"MASTER_PORT='{re.escape(port)}' is not a port")
          for port in ("0", "-1", "65536", "99999999999999999999", "29500x", " ")),
        ({"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "no.such.host.invalid", "MASTER_PORT": "23456"},
         r"rank 0 is missing in amldist_init: .*no\.such\.host\.invalid.*"),
        ({"RANK": "2", "WORLD_SIZE": "2"} | AT_MASTER, "RANK=2 is not below WORLD_SIZE=2"),
        ({"RANK": "0", "WORLD_SIZE": "0"} | AT_MASTER, "RANK=0 is not below WORLD_SIZE=0"),
        ({"RANK": "-1", "WORLD_SIZE": "2"} | AT_MASTER, "RANK='-1' is not a number"),
        ({"RANK": "0", "WORLD_SIZE": "99999999999999999999"} | AT_MASTER, "WORLD_SIZE='9+' is out of range .at most 67108864."),
        ({"RANK": "0"} | AT_MASTER, "RANK is set but WORLD_SIZE is not"),
        (RANK | AT_MASTER | {"PMIX_RANK": "1"}, "RANK=0 but PMIX_RANK=1: unset the wrong one"),
        (RANK | AT_MASTER | {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"},
         "RANK=0 but OMPI_COMM_WORLD_RANK=1: unset the wrong one"),
    ]


def complaint(program: str, environment: dict[str, str], pattern: str) -> str | None:
    """What is wrong with the answer; None: nothing. The program's own deadline is 30 s."""
    # An address sanitizer would report what libpmix itself leaks when it finds no server.
    done = subprocess.run([program, "place"], env=environment | {"ASAN_OPTIONS": "detect_leaks=0"}, capture_output=True,
                          text=True, timeout=60)
    said = [line.removeprefix("amldist_init: ") for line in done.stderr.splitlines() if line.startswith("amldist_init: ")]
    if done.returncode == 3 and len(said) == 1 and re.fullmatch(pattern, said[0]):
        return None
    return f"{environment}\n  wanted: {pattern}\n  status {done.returncode}, said: {done.stderr.strip()}"


def start(program: str, environment: dict[str, str]) -> subprocess.Popen:
    return subprocess.Popen([program, "place"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def sizes_that_differ(program: str) -> str | None:
    """Both ranks say why, and a host name cannot write to the terminal."""
    here = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(launch.free_port())}
    ranks = [start(program, here | {"RANK": "0", "WORLD_SIZE": "2"}),
             start(program, here | {"RANK": "1", "WORLD_SIZE": "3", "AMLDIST_NODE_NAME": "\x1b[31mred"})]
    said = [rank.communicate(timeout=60)[0] for rank in ranks]
    wanted = rb"rank 1 (\x1b[31mred) was started as one of 3 processes, rank 0 as one of 2"
    right = all(rank.returncode == 3 for rank in ranks) and all(wanted in each and b"\x1b" not in each for each in said)
    return None if right else f"sizes that differ: {[rank.returncode for rank in ranks]}, {said}"


def refusal_of_late_ranks(program: str) -> str | None:
    """Whoever comes after a world was refused hears of it at once: beside rank 0, beside the wrong one, on a node of its own."""
    here = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(launch.free_port()), "WORLD_SIZE": "5", "AMLDIST_TEST_INIT_MS": "120000"}
    own = [here | {"RANK": str(rank), "AMLDIST_NODE_NAME": f"node{rank // 2}"} for rank in range(5)]
    ranks = {0: start(program, own[0]), 2: start(program, own[2] | {"WORLD_SIZE": "6"})}
    first = ranks[2].communicate(timeout=60)[0]
    late = {rank: start(program, own[rank]) for rank in (1, 3, 4)}
    said = [first, *(rank.communicate(timeout=60)[0] for rank in (*late.values(), ranks[0]))]
    wanted = b"rank 2 (node1) was started as one of 6 processes, rank 0 as one of 5"
    right = all(rank.returncode == 3 for rank in (*ranks.values(), *late.values())) and all(wanted in each for each in said)
    return None if right else f"late ranks of a refused world: {said}"


def refusal_of_whole_nodes(program: str) -> str | None:
    """Rank 0 does not wait for ranks that hear of a refusal only from the leader of their node."""
    here = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(launch.free_port()), "AMLDIST_TEST_INIT_MS": "120000"}
    ranks = [start(program, here | {"RANK": str(rank), "AMLDIST_NODE_NAME": f"node{rank // 3}", "WORLD_SIZE": "7" if rank == 1 else "6"})
             for rank in range(6)]
    said = [rank.communicate(timeout=60)[0] for rank in ranks]
    wanted = b"rank 1 (node0) was started as one of 7 processes, rank 0 as one of 6"
    right = all(rank.returncode == 3 for rank in ranks) and all(wanted in each for each in said)
    return None if right else f"ranks of refused nodes: {said}"


def connected(port: int) -> socket.socket:
    """A connection to rank 0, as soon as it listens."""
    end = time.monotonic() + 30
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port))
        except ConnectionRefusedError:
            if time.monotonic() > end:
                raise
            time.sleep(0.01)


def closed_of(connections: list[socket.socket], wanted: int) -> int:
    """How many of them the other side has closed; waits until there are as many as wanted, or for 20 seconds."""
    closed: set[socket.socket] = set()
    end = time.monotonic() + 20
    while len(closed) < wanted and time.monotonic() < end:
        left = [each for each in connections if each not in closed]
        closed |= set(select.select(left, [], [], 0.1)[0])  # rank 0 sends strangers nothing: readable is closed
    return len(closed)


def strangers(program: str) -> str | None:
    """Rank 0 closes what is no rank, keeps few that say nothing, and the world comes together all the same."""
    master_port = launch.free_port()
    port = launch.meeting_port(master_port)
    step = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(master_port)}
    ranks = [start(program, step | {"RANK": "0"})]
    greedy = connected(port)
    greedy.sendall(struct.pack("<IB", 64 << 20, 1))  # a frame of 64 MiB
    crowd = [connected(port) for _ in range(200)]
    gone = closed_of([greedy], 1), closed_of(crowd, 130)
    ranks.append(start(program, step | {"RANK": "1"}))
    said = [rank.communicate(timeout=60)[0] for rank in ranks]
    if gone[0] == 1 and gone[1] >= 130 and [rank.returncode for rank in ranks] == [0, 0]:
        return None
    return f"strangers: closed {gone} of 1 and 200, statuses {[rank.returncode for rank in ranks]}, {said}"


def listener_at(address: str, port: int) -> socket.socket:
    out = socket.socket()
    out.bind((address, port))
    out.listen()
    return out


def taken_port(program: str) -> str | None:
    """Rank 0 takes no other port than the one that all know."""
    port = launch.free_port()
    with listener_at("127.0.0.1", launch.meeting_port(port)):
        step = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": "0"}
        rank = start(program, step)
        said = rank.communicate(timeout=60)[0].decode()
    wanted = (rf"aml-dist: rank 0 cannot listen on port {port + launch.DISTANCE} of \S+ \(the port of libamldist for "
              rf"MASTER_PORT={port}\): another process has it; give another MASTER_PORT, or free ports with AMLDIST_PORT_RANGE,"
              r" the same on all ranks\n")
    return None if rank.returncode == 3 and re.search(wanted, said) else f"a taken port: {rank.returncode}, {said}"


def framework_at_master_port(program: str) -> str | None:
    """MASTER_PORT itself belongs to the program's framework."""
    port = launch.free_port()
    with listener_at("0.0.0.0", port):
        step = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        ranks = [start(program, step | {"RANK": str(rank)}) for rank in range(2)]
        said = [rank.communicate(timeout=60)[0] for rank in ranks]
    return None if [rank.returncode for rank in ranks] == [0, 0] else f"a framework at MASTER_PORT: {said}"


def listening(pids: list[int]) -> set[tuple[str, int]]:
    """Addresses and ports at which these processes listen."""
    inodes = {link.readlink().name for pid in pids for link in pathlib.Path(f"/proc/{pid}/fd").iterdir()}
    found = set()
    for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        if words[3] == "0A" and f"socket:[{words[9]}]" in inodes:
            address, port = words[1].split(":")
            found.add((socket.inet_ntoa(struct.pack("=I", int(address, 16))), int(port, 16)))
    return found


def ports_of_a_site(program: str) -> str | None:
    """All listeners are in the site's range, and in a world of one machine on its loopback; rank 0 keeps its port."""
    port = launch.free_port()
    low = launch.free_port()
    step = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "AMLDIST_PORT_RANGE": f"{low}-{low + 40}"}
    ranks = [subprocess.Popen([program, "victim", "nothing", "-1", "30000"], env=step | {"RANK": str(rank)},
                              stdout=subprocess.PIPE, text=True) for rank in range(2)]
    try:
        for rank in ranks:
            if rank.stdout is None or rank.stdout.readline() != "ready\n":
                return "ports of a site: no world"
        found = [listening([rank.pid]) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    right = all(address == "127.0.0.1" and low <= port <= low + 40 for each in found for address, port in each)
    met_at = low + (port + launch.DISTANCE) % 41
    return None if right and ("127.0.0.1", met_at) in found[0] and found[1] else f"ports of a site: {found}, met at {met_at}"


def one_port_for_two(program: str) -> str | None:
    """Two jobs with one MASTER_PORT: the second one's rank 0 refuses, also once the first one's world has come together."""
    port = launch.free_port()
    step = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    first = [subprocess.Popen([program, "victim", "nothing", "-1", "30000"], env=step | {"RANK": str(rank)},
                              stdout=subprocess.PIPE, text=True) for rank in range(2)]
    try:
        if any(rank.stdout is None or rank.stdout.readline() != "ready\n" for rank in first):
            return "one port for two: no first world"
        second = start(program, step | {"RANK": "0"})
        said = second.communicate(timeout=60)[0].decode()
        still = [rank.poll() for rank in first]
    finally:
        for rank in first:
            rank.kill()
            rank.wait()
    right = second.returncode == 3 and "another process has it" in said and still == [None, None]
    return None if right else f"one port for two: {second.returncode}, {said}, {still}"


def two_jobs_in_one_world(program: str) -> str | None:
    """Two jobs with one MASTER_PORT: if rank 0 of one and rank 1 of the other have met, all end with a sentence as soon as
    the second rank 1 comes."""
    step = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(launch.free_port())}
    mixed = [subprocess.Popen([program, "victim", "nothing", "-1", "30000"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              env=step | {"RANK": str(rank), "AMLDIST_NODE_NAME": f"node{rank}"}, text=True) for rank in range(2)]
    if any(rank.stdout is None or rank.stdout.readline() != "ready\n" for rank in mixed):
        return "two jobs in one world: no world"
    late = start(program, step | {"RANK": "1", "AMLDIST_NODE_NAME": "node2"})
    said = [late.communicate(timeout=60)[0].decode(), *(rank.communicate(timeout=60)[0] for rank in mixed)]
    wanted = ("two processes came as rank 1: one from node1, and one from node2 when the world was complete: do two jobs "
              "have one MASTER_PORT?")
    statuses = [late.returncode, *(rank.returncode for rank in mixed)]
    right = statuses == [3, 7, 7] and all(wanted in each for each in said)
    return None if right else f"two jobs in one world: {statuses}, {said}"


def ipv6(program: str) -> str | None:
    """Rank 0 at an address of IPv6, with any ports and with those of a site."""
    if not launch.has_ipv6():
        print("not checked: IPv6, which this machine lacks")
        return None
    first = launch.free_port()
    for ports in ({}, {"AMLDIST_PORT_RANGE": f"{first}-{first + 20}"}):
        step = {"WORLD_SIZE": "2", "MASTER_ADDR": "::1", "MASTER_PORT": str(launch.free_port())} | ports
        for nodes in ([{}] * 2, [{"AMLDIST_NODE_NAME": f"node{rank}"} for rank in range(2)]):
            ranks = [start(program, step | {"RANK": str(rank)} | nodes[rank]) for rank in range(2)]
            said = [rank.communicate(timeout=60)[0].decode() for rank in ranks]
            if [rank.returncode for rank in ranks] != [0, 0] or any("rank 0 at [::1]:" not in each for each in said):
                return f"IPv6: {said}"
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    program = parser.parse_args().program
    with tempfile.TemporaryDirectory() as broken:
        (pathlib.Path(broken) / "libpmix.so.2").write_text("no library")
        table = cases(broken)
        wrong = [each for each in (complaint(program, environment, pattern) for environment, pattern in table) if each]
    others = (sizes_that_differ, refusal_of_late_ranks, refusal_of_whole_nodes, strangers, taken_port, framework_at_master_port,
              ports_of_a_site, one_port_for_two, two_jobs_in_one_world, ipv6)
    wrong += [each for each in (other(program) for other in others) if each]
    print("\n".join([*wrong, f"{len(table) + len(others)} cases, {len(wrong)} with an unexpected answer"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
