"""What the timing plugin writes down, read back."""

import shutil
from collections import defaultdict
from dataclasses import dataclass

from . import cluster


@dataclass(frozen=True)
class Timing:
    """One callback, or (calls > 1 or a '/' in the name) calls within one."""

    machine: str
    process: int
    parent: int
    context: str  # srun, slurmstepd
    callback: str
    task: int  # on its node; -1 outside of a task
    begin: float  # all in seconds
    duration: float
    faults: int
    calls: int


def plugstack_line(timing_plugin, plugin, arguments, flags=""):
    """With OUT for the folder that the timings go to."""
    return f"required {timing_plugin} real={plugin} out=OUT {flags} -- {arguments}"


def read(folder):
    timings = []
    for file in sorted(folder.iterdir()):
        for line in file.read_text().splitlines():
            process, parent, context, callback, task, begin, ns, faults, calls = line.split("\t")
            timings.append(Timing(file.name.split(".")[0], int(process), int(parent), context, callback, int(task),
                                  int(begin) / 1e9, int(ns) / 1e9, int(faults), int(calls)))
    return timings


def timed_launches(stage, plugstack, line, commands, environment, rounds):
    """Launches every command `rounds` times, in turn; returns for each the folders with its timings, and its wall
    times. The folders are read at the end: slurmstepd lives on for a moment after srun has returned."""
    folders, walls = defaultdict(list), defaultdict(list)
    root = stage / "timings"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    for number in range(rounds):
        for index, command in enumerate(commands):
            folder = root / f"{number}.{index}"
            folder.mkdir()
            folder.chmod(0o1777)
            plugstack.set(line.replace("OUT", str(folder), 1))
            walls[index].append(cluster.launch(command, environment))
            folders[index].append(folder)
    plugstack.none()
    return folders, walls


def layout_call(stage, plugstack, line, srun, environment, rounds):
    """Seconds of each call of slurm_job_step_layout_get, one per launch."""
    folders, _ = timed_launches(stage, plugstack, line, [[*srun, "--aml-dist=pytorch", "true"]], environment, rounds)
    return [timing.duration for folder in folders[0] for timing in read(folder)
            if timing.callback == "slurm_job_step_layout_get"]
