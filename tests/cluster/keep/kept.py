"""A batch job of `aml-dist keep` and a small training that must end as an undisturbed one, bit for bit."""

from __future__ import annotations

import functools
import os
import pathlib
import re
import shutil
import time

from cluster import BUILD, READABLE, ROOT, Cluster, readable_copy
from test_faults import wait_until

TOOL = os.environ["AMLDIST_TOOL"]
# The first line of a rank: where it runs, and when it began.
RANK = ("echo rank $RANK of $WORLD_SIZE on $SLURMD_NODENAME start $AMLDIST_RESTART $TORCHELASTIC_RESTART_COUNT port $MASTER_PORT "
        "at $(date +%s.%N)")
# All ranks fit one linear model: each has samples of its own, gradients are summed by libdist, rank 0 saves after each step. What
# fault() of fault.py does at a step is the trial's.
TRAIN = """
import array, math, os, pathlib, sys, time
import amldist
folder, steps, pace = pathlib.Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
rank, restart, node = int(os.environ["RANK"]), int(os.environ["AMLDIST_RESTART"]), os.environ["SLURMD_NODENAME"]
fell = lambda: (folder / "fell").exists() or (folder / "fell").write_text(str(time.time()))
fault = lambda step: None
exec((folder / "fault.py").read_text())
fault(-1)
comm = amldist.init()
state, saved = array.array("d", [0.0] * 9), folder / "saved" / "state"  # the step's number and eight weights
if rank == 0 and saved.exists():
    state = array.array("d", saved.read_bytes())
comm.broadcast(state)
print("begins at", int(state[0]), "restart", restart, flush=True)
while state[0] < steps:
    step = int(state[0])
    fault(step)
    sample = [math.sin(1 + 31 * step + 7 * rank + i) for i in range(8)]
    error = sum(weight * each for weight, each in zip(state[1:], sample)) - math.cos(step + rank)
    gradient = array.array("d", [error * each for each in sample])
    comm.allreduce(gradient)
    state = array.array("d", [step + 1.0] + [weight - 0.05 * each / comm.size for weight, each in zip(state[1:], gradient)])
    time.sleep(pace)
    if rank == 0 and saves:
        draft = saved.with_name("draft")
        draft.write_bytes(state.tobytes())
        draft.rename(saved)
if rank == 0:
    (folder / "end").write_bytes(state.tobytes())
comm.finalize()
"""
KILL_NODE = "pkill -9 -x slurmd; pkill -9 slurmstepd; pkill -9 -f train.py"


class Kept:
    """A batch job; with `salloc` one of the login machine, so that every node can be replaced."""

    def __init__(self, cluster: Cluster, workdir: pathlib.Path, arguments: str, program: str, sbatch: str | None = "-N4", srun: str = "",
                 salloc: bool = False,
                 environment: dict[str, str] | None = None) -> None:
        self.cluster, self.workdir, self.log = cluster, workdir, workdir / "log"
        (workdir / "rank.sh").write_text(f"#!/bin/bash\ncd {workdir}\n{RANK}\n{program}\n")
        job = workdir / "job.sh"
        job.write_text(f"#!/bin/bash\ncd {workdir}\n{TOOL} keep {arguments} -- srun --ntasks-per-node=1 --aml-dist=pytorch{srun if srun[:1] == ',' else ' ' + srun} "
                       f"bash {workdir}/rank.sh\necho status $? >>{self.log}\n")
        job.chmod(0o755)
        if sbatch is None:  # somebody else starts job.sh
            return
        options = f"--exclusive --ntasks-per-node=1 {sbatch}"
        if salloc:
            done = cluster.run(f"cd {workdir} && setsid -f salloc -Q {options} ./job.sh </dev/null >{self.log} 2>&1")
        else:
            done = cluster.run(f"cd {workdir} && sbatch --parsable {options} --open-mode=append -o {self.log} job.sh", env=environment)
        assert done.status == 0, str(done)
        self.job = done.out.strip()

    def text(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def says(self, words: str, seconds: float = 40) -> float:
        try:
            wait_until(lambda: words in self.text(), seconds)
        except AssertionError:
            raise AssertionError(f"never said {words!r}:\n{self.text()}") from None
        return time.monotonic()

    def end(self, seconds: float = 60) -> int:
        self.says("\nstatus ", seconds)
        return int(re.search(r"^status (\d+)$", self.text(), re.MULTILINE)[1])

    def lines(self) -> list[str]:
        return re.findall(r"^aml-dist: keep: (.*)$", self.text(), re.MULTILINE)

    def starts(self) -> list[str]:
        return [line.partition(" on ")[2] for line in self.lines() if re.match(r"start \d+ on ", line)]

    def hosts(self, start: int) -> list[str]:
        """Of the ranks of one start, in their order."""
        found = re.findall(rf"^rank (\d+) of \d+ on (\w+) start {start} {start} port", self.text(), re.MULTILINE)
        return [host for _, host in sorted(set(found))]

    def began(self, start: int) -> float:
        """When the first rank of a start began, in seconds since 1970."""
        return min(float(time) for time in re.findall(rf" start {start} {start} port \d+ at ([0-9.]+)$", self.text(), re.MULTILINE))

    def resumed_at(self, start: int) -> int:
        """The step at which the training went on."""
        return int(re.search(rf"^begins at (\d+) restart {start}$", self.text(), re.MULTILINE)[1])


def train(cluster: Cluster, workdir: pathlib.Path, arguments: str, steps: int = 60, pace: float = 0.1, fault: str = "", saves: bool = True,
          **options) -> Kept:
    """`fault`: Python that defines fault(step), which each rank calls before each step, and with -1 before it meets the others."""
    (workdir / "saved").mkdir(exist_ok=True)
    (workdir / "train.py").write_text(TRAIN)
    (workdir / "fault.py").write_text(f"saves = {saves}\n{fault}")
    return Kept(cluster, workdir, arguments, f"{package_of_tests()} exec /usr/bin/python3 {workdir}/train.py {workdir} {steps} {pace}", **options)


@functools.cache
def package_of_tests() -> str:
    """The variables by which Python finds the package and the library that were built."""
    package = READABLE / "package"
    shutil.copytree(ROOT / "libdist/api/python/amldist", package / "amldist", ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    library = readable_copy((BUILD / "lib/libamldist.so.0").resolve())
    return f"PYTHONPATH={package} PYTHONDONTWRITEBYTECODE=1 AMLDIST_LIBRARY={library}"


def wait_for_checkpoint(kept: Kept) -> None:
    kept.says("begins at ")
    wait_until((kept.workdir / "saved/state").exists, 20)


UNDISTURBED: dict[tuple[int, int], bytes] = {}


def ends_as_undisturbed(cluster: Cluster, workdir: pathlib.Path, ranks: int, steps: int) -> bool:
    """Bit for bit. The other training has as many ranks, a node for each, and takes no rest between its steps."""
    if (ranks, steps) not in UNDISTURBED:
        own = workdir / "undisturbed"
        own.mkdir()
        kept = train(cluster, own, "--health off", steps, 0, sbatch=f"-N{ranks}")
        assert kept.end() == 0, kept.text()
        UNDISTURBED[ranks, steps] = (own / "end").read_bytes()
    return (workdir / "end").exists() and (workdir / "end").read_bytes() == UNDISTURBED[ranks, steps]
