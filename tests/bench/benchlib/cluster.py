"""A cluster of one's own for a measurement, and the two sides of it.

The outer side starts the cluster, puts what is needed into a folder that every machine of it sees (the stage), and
runs the same program again inside, on the login machine. The inner side launches steps and leaves its samples on the
stage as JSON.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

BENCH = Path(__file__).resolve().parent.parent
REPOSITORY = BENCH.parent.parent
DEVCLUSTER = REPOSITORY / "contrib" / "devcluster" / "devcluster"
SETTLE = 0.05  # seconds in front of a launch, for the one before to leave the nodes


class Trouble(Exception):
    """Ends a benchmark with one sentence."""


def add_options(parser):
    parser.add_argument("--build", type=Path, default=REPOSITORY / "build", metavar="DIR", help="build folder (build/)")
    parser.add_argument("--plugin", type=Path, metavar="FILE", help="plugin to measure (that of the build folder)")
    parser.add_argument("--plugin-args", default="", metavar="ARGS", help="the plugin's arguments in plugstack.conf")
    parser.add_argument("--cluster", default=f"bench{os.getpid()}", metavar="NAME", help="name of the cluster to start")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures and samples")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)  # the inner side's stage


def plugin_of(options):
    path = options.plugin or options.build / "lib" / "slurm" / "spank_aml_dist.so"
    if not path.is_file():
        raise Trouble(f"no plugin {path}: cmake --build {options.build} --target bench, or name it with --plugin")
    return path


def devcluster(*words, **keywords):
    try:
        return subprocess.run([DEVCLUSTER, *words], check=True, text=True, **keywords)
    except subprocess.CalledProcessError as problem:
        said = f": {problem.stderr.strip()}" if problem.stderr else ""
        raise Trouble(f"'devcluster {words[0]}' failed with status {problem.returncode}{said}") from None


@contextmanager
def running_cluster(name, nodes, tasks=8):
    """Nodes that claim processors enough for so many tasks. Yields the stage; the cluster and all its files are gone afterwards, whatever happens."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(143))
    if subprocess.run([DEVCLUSTER, "conf", "--name", name], check=False, capture_output=True).returncode == 0:
        raise Trouble(f"a cluster '{name}' runs already: devcluster stop --name {name}, or choose another name")
    try:
        cpus = max(8, -(-tasks // nodes))
        devcluster("start", "--name", name, "--nodes", str(nodes), "--cpus", str(cpus), capture_output=True)
        conf = devcluster("conf", "--name", name, stdout=subprocess.PIPE).stdout.strip()
        stage = Path(conf).parent.parent / "bench"
        stage.mkdir(exist_ok=True)
        yield stage
    finally:
        subprocess.run([DEVCLUSTER, "stop", "--name", name], check=False, capture_output=True)


def stage_files(stage, *files):
    """Copies files to the stage, where Slurm and tasks of every user can read them; returns their new paths."""
    copies = []
    for file in files:
        target = stage / file.name
        shutil.copy(file, target)
        target.chmod(0o755)
        copies.append(target)
    shutil.copytree(BENCH / "benchlib", stage / "benchlib", dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.pyc"))
    stage.chmod(0o755)
    return copies


def stage_plugin(stage, name, plugin):
    """Copies a plugin, with the trace libraries of its build beside it as an installation has them, to a folder of this name on the stage; returns its path."""
    folder = stage / name / "slurm"
    folder.mkdir(parents=True)
    (staged,) = stage_files(folder, plugin)
    libraries = plugin.parent.parent / "aml-dist"
    if libraries.is_dir():
        shutil.copytree(libraries, stage / name / "aml-dist")
    return staged


def run_inside(stage, name, program, arguments):
    """Runs `program`, a file on the stage, on the login machine; returns what it left in samples.json."""
    devcluster("run", "--name", name, "--", sys.executable, "-B", str(program), "--inside", str(stage), *arguments)
    return json.loads((stage / "samples.json").read_text())


def leave_samples(stage, samples):
    (stage / "samples.json").write_text(json.dumps(samples))


# ---------------------------------------------------------------------------------------------------------- inner side


class Plugstack:
    """Changes the plugin that the next step gets. srun and slurmstepd read plugstack.conf when they start; a rename
    swaps it at once, and costs the same whatever was there before."""

    def __init__(self, conf):
        self.path = conf.parent / "plugstack.conf"

    def set(self, line):
        new = self.path.with_suffix(".next")
        new.write_text(line + "\n" if line else "")
        new.rename(self.path)

    def none(self):
        self.set("")


def clean_environment():
    """Without what an outer job may have left behind."""
    keep = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "SBATCH_", "AMLDIST_"))}
    keep["SLURM_CONF"] = os.environ["SLURM_CONF"]
    return keep


def launch(command, environment, limit=60.0):
    """Runs a command to its end; returns its wall time in seconds. Blocks in waitpid: subprocess would poll."""
    time.sleep(SETTLE)
    null = os.open(os.devnull, os.O_RDWR)
    actions = [(os.POSIX_SPAWN_DUP2, null, fd) for fd in (0, 1)]
    begin = time.perf_counter()
    pid = os.posix_spawnp(command[0], command, environment, file_actions=actions)

    def too_long(*_):
        os.kill(pid, signal.SIGKILL)

    signal.signal(signal.SIGALRM, too_long)
    signal.setitimer(signal.ITIMER_REAL, limit)
    try:
        _, status = os.waitpid(pid, 0)
        end = time.perf_counter()
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        os.close(null)
    if status != 0:
        what = f"did not end within {limit:.0f} s" if os.WIFSIGNALED(status) else f"failed (status {status >> 8})"
        raise Trouble(f"{' '.join(command)} {what}")
    return end - begin


def machine():
    """What a reader needs to judge the figures by."""
    model = [line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
             if line.startswith("model name")]
    version = subprocess.run(["srun", "--version"], text=True, capture_output=True, check=False).stdout.strip()
    return {
        "cpu": model[0] if model else os.uname().machine,
        "cpus": len(os.sched_getaffinity(0)),
        "kernel": os.uname().release,
        "slurm": version,
        "load_average": os.getloadavg()[0],
    }


def describe(facts, options):
    build = "of unknown type"
    cache = options.build / "CMakeCache.txt"
    for line in cache.read_text().splitlines() if cache.is_file() else []:
        if line.startswith("CMAKE_BUILD_TYPE:"):
            build = line.split("=", 1)[1]
    return (f"{facts['slurm']}, {facts['cpus']} x {facts['cpu']}, Linux {facts['kernel']}, load"
            f" {facts['load_average']:.2f} at the start; build {build}")
