"""Steps of `aml-dist ray` with the real Ray, for the tests: `tests/frameworks/install --rays` installs a new one, and one from before
tokens and `ray symmetric-run`."""

from __future__ import annotations

import os
import pathlib
import shlex
import threading
import time

import pytest
from conftest import DEBIAN, FOLDER

RAYS = pathlib.Path(os.environ.get("AMLDIST_RAYS", FOLDER))  # RAYS/ray-new, RAYS/ray-old
SLOW = 400  # seconds: each Ray starts ten Pythons, and the nodes share two cores
SHAPE = "-N2 --ntasks-per-node=1 --cpus-per-task=2"
NICE = {"RAY_worker_niceness": "0"}  # with Ray's own 15 its tasks stand still where others compile
HELLO = """import ray
ray.init(log_to_driver=False)
nodes = ray.get([ray.remote(num_cpus=0)(lambda: __import__("socket").gethostname()).options(resources={"node:" + n["NodeManagerAddress"]: 0.01})
                 .remote() for n in ray.nodes()])
print("driver:", sorted(nodes), ray.cluster_resources().get("CPU"), flush=True)
"""


def installed(which: str) -> pathlib.Path:
    folder = RAYS / f"ray-{which}/bin"
    if not (folder / "ray").is_file():
        pytest.skip(f"{folder}/ray is not installed: run tests/frameworks/install --rays")
    return folder


class Steps:
    """Starts steps of `aml-dist ray`, and looks for what they leave."""

    def __init__(self, cluster, tool, folder: pathlib.Path) -> None:
        self.cluster, self.tool, self.folder = cluster, tool, folder

    def driver(self, text: str, name: str = "driver.py") -> str:
        path = self.folder / name
        path.write_text(text)
        return f"python {path}"

    def line(self, command: str, shape: str = SHAPE, options: str = "", option: str = "ray") -> str:
        return f"srun {shape} --aml-dist={option} {self.tool} ray {options} -- {command}"

    def run(self, bin_folder: pathlib.Path, command: str, shape: str = SHAPE, options: str = "", option: str = "ray", user: str = "root",
            timeout: float = SLOW, env: dict[str, str] | None = None):
        line = self.line(command, shape, options, option)
        return self.cluster.run(line, user=user, env={"PATH": f"{bin_folder}:{DEBIAN}", **NICE, **(env or {})}, timeout=timeout)

    def left(self) -> dict[str, str]:
        """Processes of Ray, folders and leases on each node."""
        look = ("ls -d /tmp/aml-ray-* 2>/dev/null; ls /run/aml-dist/ports 2>/dev/null | grep \"[.]$(stat -Lc %i /proc/self/ns/net)$\";"
                " for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline 2>/dev/null; echo; done |"
                " grep -E 'ray::|raylet|gcs_server|ray start|aml-dist ray' | grep -v grep; true")
        names = [f"node{number}" for number in range(1, self.cluster.nodes + 1)]
        return {name: out for name in names if (out := self.cluster.run(look, on=name).out.strip())}

    def wait_until_clean(self, seconds: float = 60) -> dict[str, str]:
        """The step's last processes may live a moment longer than srun."""
        deadline = time.monotonic() + seconds
        while (found := self.left()) and time.monotonic() < deadline:
            time.sleep(1)
        return found


@pytest.fixture
def steps(cluster, tool):
    folder = pathlib.Path(f"/var/tmp/aml-dist-ray-{os.getpid()}")
    folder.mkdir(exist_ok=True)
    folder.chmod(0o1777)
    steps = Steps(cluster, tool, folder)
    yield steps
    left = steps.wait_until_clean()
    assert left == {}, left


def own(done) -> list[str]:
    return [line.removeprefix("aml-dist: ray: ") for line in done.err.splitlines() if line.startswith("aml-dist: ray: ")]


WAITS = """import os, pathlib, ray, time
ray.init()
pathlib.Path(__file__).with_name("up").write_text(str(os.getpid()))
time.sleep(600)
"""


class Running:
    """A step whose driver waits; `up` holds the driver's process once the driver has the whole cluster."""

    def __init__(self, steps: Steps, bin_folder: pathlib.Path, text: str = WAITS, **run) -> None:
        self.steps, self.up = steps, steps.folder / "up"
        self.up.unlink(missing_ok=True)
        driver = steps.driver(text, "waits.py")
        self.thread = threading.Thread(target=lambda: setattr(self, "done", steps.run(bin_folder, driver, **run)))
        self.done = None
        self.thread.start()
        wait_until(lambda: self.done is not None or (self.up.exists() and self.up.read_text()), SLOW)
        assert self.up.exists(), str(self.done)
        self.driver = self.up.read_text()  # its process; or what else it wrote

    def signal(self, name: str, where: str, pattern: str) -> None:
        """To the oldest process whose command line matches."""
        sent = self.steps.cluster.run(f"pkill -{name} -o -f {shlex.quote(pattern)}", on=where)
        assert sent.status == 0, f"{pattern}: {sent}"

    def job(self) -> str:
        return self.steps.cluster.run("squeue -h -o %A").out.split()[0]

    def end(self, seconds: float = 100):
        self.thread.join(seconds)
        assert not self.thread.is_alive(), f"no end after {seconds} s"
        return self.done


def wait_until(is_so, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not (found := is_so()) and time.monotonic() < deadline:
        time.sleep(0.5)
    return bool(found)
