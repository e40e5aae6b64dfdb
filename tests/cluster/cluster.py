"""The live cluster as the tests see it: run a command in it, and ask every task what it observed."""

from __future__ import annotations

import atexit
import collections
import dataclasses
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import tempfile
import warnings

import ways

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Where the programs of the tests were built, for this machine or for the release of Debian that the cluster runs in.
BUILD = pathlib.Path(os.environ.get("AMLDIST_BUILD", ROOT / "build-development"))
DEVCLUSTER = ROOT / "contrib/devcluster/devcluster"
# Users of the cluster cannot read a checkout in /root: what they run lies in a folder that they can.
READABLE = pathlib.Path(tempfile.mkdtemp(prefix="aml-dist-suite-", dir="/var/tmp"))
READABLE.chmod(0o755)
atexit.register(shutil.rmtree, READABLE, ignore_errors=True)

# What srun says in about one launch of a thousand on a busy machine: the connection that carries a node's output is reset,
# and Slurm gives the step up. No test is about that: such a command is run once more, and pytest's summary shows both.
LOST = "io error with slurmstepd"

# Debian 13's PyTorch is built without libuv, and its init_process_group fails unless told so. One thread, because those of
# several ranks on a processor wait without sleeping.
TORCH_ENVIRONMENT = {"USE_LIBUV": "0", "OMP_NUM_THREADS": "1"}


def readable_copy(path: pathlib.Path) -> pathlib.Path:
    """A copy of a file that every user of the cluster can read and run, on every node. One that is in use stays what it is."""
    copy = READABLE / path.name
    with tempfile.NamedTemporaryFile(dir=READABLE, delete=False) as new:
        shutil.copyfile(path, new.name)
    pathlib.Path(new.name).chmod(0o755)
    pathlib.Path(new.name).replace(copy)
    return copy


# Under AMLDIST_TEST_STEPS=async this srun is found before Slurm's.
(READABLE / "asynchronous").mkdir()
readable_copy(ROOT / "tests/cluster/asynchronous/srun").rename(READABLE / "asynchronous/srun")
FIND_SRUN = f"PATH={READABLE}/asynchronous:$PATH; " if ways.STEPS == "async" else ""

PROBE = readable_copy(pathlib.Path(__file__).resolve().parent / "probe.py")


@dataclasses.dataclass
class Finished:
    """A command that ended."""

    command: str
    status: int
    out: str
    err: str

    def __str__(self) -> str:
        return f"$ {self.command}\nstatus {self.status}\n--- out\n{self.out}\n--- err\n{self.err}"

    @property
    def said(self) -> str:
        """The error stream without srun's lines about a job that waits until the nodes of the test before are free."""
        return re.sub(r"^srun: job \d+ (queued and waiting for|has been allocated) resources\n", "", self.err, flags=re.MULTILINE)

    def own_lines(self) -> list[str]:
        """Lines of aml-dist in either stream, as the user reads them."""
        return [line for line in (self.out + self.err).splitlines() if "aml-dist: " in line]


LATEST: collections.deque[Finished] = collections.deque(maxlen=4)  # what a failed test shows: pytest shortens an assertion's object


@dataclasses.dataclass
class Task:
    """What one task observed: truth first (host, Slurm's ids), then its environment."""

    host: str
    procid: int
    localid: int
    nodeid: int
    env: dict[str, str]

    def number(self, name: str) -> int:
        return int(self.env[name])


class Cluster:
    def __init__(self, name: str, nodes: int) -> None:
        self.name = name
        self.nodes = nodes

    def devcluster(self, *arguments: str, timeout: float = 300) -> Finished:
        more = ways.with_settings(arguments[1:]) if arguments[0] == "start" else arguments[1:]
        command = [str(DEVCLUSTER), arguments[0], "--name", self.name, *more]
        return finish(command, timeout)

    def run(self, command: str, user: str = "root", on: str | None = None, timeout: float = 90,
            env: dict[str, str] | None = None) -> Finished:
        """Runs a shell line on the login machine or on a node; variables of the test process do not come along."""
        where = ["--on", on] if on else []
        assignments = [f"{name}={value}" for name, value in (env or {}).items()]
        inside = ["timeout", str(int(timeout)), "env", *assignments, "bash", "-c", FIND_SRUN + command]
        line = [str(DEVCLUSTER), "run", "--name", self.name, "--user", user, *where, "--env-clean", "--", *inside]
        done = finish(line, timeout + 30)
        if LOST not in done.err:
            return done
        warnings.warn(f"Slurm lost a node's output, run once more: {command}\n{done.err}", stacklevel=2)
        return finish(line, timeout + 30)

    def tasks(self, srun_arguments: str, user: str = "root", **options) -> list[Task]:
        """Starts the probe in every task of `srun ARGUMENTS` and returns their reports in rank order."""
        command = f"srun {srun_arguments} {shlex.quote(str(PROBE))}"
        done = self.run(command, user, **options)
        assert done.status == 0, str(done)
        return read_reports(done.out)

    def states(self) -> dict[str, str]:
        done = self.run("sinfo -h -N -o '%N %T'")
        assert done.status == 0, str(done)
        return dict(line.split() for line in done.out.splitlines())

    def job_output(self, submit: str, directory: pathlib.Path, user: str = "root", timeout: float = 90,
                   **options) -> tuple[Finished, str]:
        """`sbatch --wait ...`: the submission, and what the job wrote."""
        out = directory / "job.out"
        done = self.run(f"cd {shlex.quote(str(directory))} && sbatch --wait --output={out} {submit}", user,
                        timeout=timeout, **options)
        return done, out.read_text() if out.exists() else ""


def release_of(cluster: Cluster) -> tuple[int, int]:
    """Slurm's: (24, 11)."""
    year, month = re.search(r"(\d+)\.(\d+)", cluster.run("srun --version").out).groups()
    return int(year), int(month)


def finish(command: list[str], timeout: float) -> Finished:
    kept = {name: os.environ[name] for name in ("PATH", "DEVCLUSTER_ROOTS") if name in os.environ}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL,
                              cwd="/", env=kept | {"LANG": "C.UTF-8"}, errors="replace")
    except subprocess.TimeoutExpired as late:
        said = [(each or b"").decode(errors="replace") for each in (late.stdout, late.stderr)]
        LATEST.append(Finished(f"{shlex.join(command)}: not done in {timeout:g} s", -1, *said))
        raise
    finished = Finished(shlex.join(command), done.returncode, done.stdout, done.stderr)
    LATEST.append(finished)
    return finished


def read_reports(output: str) -> list[Task]:
    """Reports of the probe (see there) among other lines, in the order of steps and ranks."""
    variables: dict[tuple[int, ...], dict[str, str]] = {}
    for line in output.splitlines():
        if not line.startswith("probe: "):
            continue
        _, task, pair = line.split(" ", 2)
        name, piece = json.loads(pair)
        own = variables.setdefault(tuple(int(number) for number in task.split(".")), {})
        own[name] = own.get(name, "") + piece
    return [Task(env.pop("<host>"), int(env["SLURM_PROCID"]), int(env["SLURM_LOCALID"]), int(env["SLURM_NODEID"]), env)
            for _, env in sorted(variables.items())]
