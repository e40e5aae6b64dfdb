"""System calls of one node's slurmstepd as strace sees them: who makes them, with whose rights, about which path."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import re
import subprocess
import time

from cluster import DEVCLUSTER, Cluster

CALLS = "trace=%file,clone,clone3,fork,vfork,setuid,setreuid,setresuid"
#: With sockets, signals and locks.
ALL_CALLS = f"{CALLS},socket,bind,listen,connect,sendto,sendmsg,setsockopt,kill,tgkill,pidfd_open,pidfd_send_signal,flock"
LINE = re.compile(r"(\d+) +(?:<\.\.\. (\w+) resumed>|(\w+)\()(.*)")
BIRTHS = {"clone", "clone3", "fork", "vfork"}
#: Which argument of a call is the effective user id.
EFFECTIVE = {"setuid": 0, "setreuid": 1, "setresuid": 1}


@dataclasses.dataclass
class Call:
    """A call about a path (or a socket, a signal, a new process), from a process that still is slurmstepd's own image."""

    user: int
    text: str
    of_plugin: bool = False  # in a recording with stacks: whether the plugin is on the stack

    def shape(self) -> str:
        """Without the result, and the numbers that differ from step to step."""
        return re.sub(r"\d+", "N", re.sub(r"(\) += .*| <unfinished.*)$", "", self.text))


@dataclasses.dataclass
class Process:
    program: str = "slurmd"
    user: int = 0


def of_slurmstepd(log: str) -> list[Call]:
    """From strace's log, begun on slurmd before the step."""
    processes: dict[str, Process] = {}
    parents = []  # whose fork has begun and not returned: a child may be seen before that
    calls = []
    latest: dict[str, Call] = {}  # of each process
    pid = ""
    for line in log.splitlines():
        if line.startswith(" > ") and "spank_aml_dist" in line and pid in latest:
            latest[pid].of_plugin = True
        said = LINE.match(line)
        if not said:
            continue
        pid, resumed, called, rest = said.groups()
        if pid not in processes:
            processes[pid] = dataclasses.replace(processes[parents[-1]]) if parents else Process()
        process = processes[pid]
        name = resumed or called
        if called:
            latest.pop(pid, None)
        if name in BIRTHS:
            returned = re.search(r"\) += (\d+)", rest)
            if returned:
                processes.setdefault(returned[1], dataclasses.replace(process))
            parents = [each for each in parents if each != pid] + ([] if "= " in rest.rpartition(")")[2] else [pid])
        elif name in EFFECTIVE and called:
            user = re.findall(r"-?\d+", rest)[EFFECTIVE[name]]
            process.user = process.user if user == "-1" else int(user)
        elif name == "execve" and called and "ENOENT" not in rest:
            process.program = rest.split('"')[1].rpartition("/")[2]
        if called and name not in ("getcwd", "execve", *EFFECTIVE) and process.program == "slurmstepd":
            # strace shows where the process is, which says something of relative paths only.
            latest[pid] = Call(process.user, f"{name}({re.sub('AT_FDCWD<[^>]*>, (?=./)', '', rest)}")
            calls.append(latest[pid])
    return calls


@contextlib.contextmanager
def recorded(cluster: Cluster, node: str, log: pathlib.Path, stacks: bool = False):
    """strace on that node's slurmd and all that it starts, for as long as the block lasts. With stacks also sockets, signals
    and locks."""
    calls = f"{ALL_CALLS} -k" if stacks else CALLS
    inside = f"exec strace -f -y -s 4096 -e signal=none -e {calls} -o {log} -p $(pgrep -x slurmd)"
    strace = subprocess.Popen([str(DEVCLUSTER), "run", "--name", cluster.name, "--on", node, "--", "bash", "-c", inside],
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert "attached" in strace.stderr.readline()
    try:
        yield
        for _ in range(100):  # slurmstepd outlives its step's srun a little
            if cluster.run("pgrep -x slurmstepd", on=node).status != 0:
                break
            time.sleep(0.1)
    finally:
        cluster.run("pkill -INT -x strace", on=node)
        strace.communicate(timeout=20)
