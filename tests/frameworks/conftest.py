"""A cluster of its own, the examples in a folder that every node sees, and the environment with the frameworks."""

from __future__ import annotations

import importlib.metadata
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/cluster"))
from cluster import Cluster, Finished, readable_copy  # noqa: E402

FOLDER = pathlib.Path(os.environ.get("AMLDIST_FRAMEWORKS", "/var/tmp/aml-dist-frameworks"))
VENV = FOLDER / "venv"
DEBIAN = "/usr/bin:/bin:/usr/sbin:/sbin"
NAME = os.environ.get("AMLDIST_TEST_CLUSTER", "test")[:13] + "-fw"
REPORT = ROOT / "build-development/test-results/frameworks.md"
END_STATES = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")


def pytest_configure(config):
    config.addinivalue_line("markers", "core: runs on Debian's own packages, without tests/frameworks/install")


class Examples:
    """Copies of contrib/examples; a job runs in the folder of its script, as a user's would."""

    def __init__(self, cluster: Cluster, folder: pathlib.Path) -> None:
        self.cluster = cluster
        self.folder = folder

    def environment(self, debian: bool = False) -> dict[str, str]:
        """Variables of the user's shell. `debian`: without the frameworks' environment."""
        return {"PATH": DEBIAN if debian else f"{VENV}/bin:{DEBIAN}",
                "OMP_NUM_THREADS": "1",  # else each rank has a thread for each processor, and they wait without sleeping
                "TORCH_EXTENSIONS_DIR": str(FOLDER / "extensions"),  # DeepSpeed compiles there, once
                "PYTHONPYCACHEPREFIX": str(FOLDER / "pycache")}

    def submit(self, script: str, shape: str = "", arguments: str = "", debian: bool = False,
               env: dict[str, str] | None = None, timeout: float = 240) -> tuple[str, str]:
        """Submits FOLDER/SCRIPT and waits for its end: state and output (sbatch --wait looks every 30 s only)."""
        folder = self.folder / pathlib.Path(script).parent
        name = pathlib.Path(script).name
        done = self.cluster.run(f"cd {shlex.quote(str(folder))} && sbatch --parsable {shape} {name} {arguments}",
                                env=self.environment(debian) | (env or {}))
        assert done.status == 0, str(done)
        job = done.out.strip()
        state = self.wait_for(job, timeout)
        logs = sorted(folder.glob(f"*-{job}*.out"))
        return state, "".join(log.read_text(errors="replace") for log in logs)

    def wait_for(self, job: str, timeout: float) -> str:
        """Its state at the end; Slurm starts a requeued job again after ten seconds at the earliest."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            shown = self.cluster.run(f"scontrol --oneliner show job {job}").out
            states = set(re.findall(r"JobState=(\w+)", shown))
            if states and states <= set(END_STATES):
                return ",".join(sorted(states))
            time.sleep(0.2)
        self.cluster.run(f"scancel {job}")
        return f"no end after {timeout:g} s"


def results(output: str) -> list[dict]:
    """What the examples print on their last lines; torchrun may put '[default0]:' before it."""
    return [json.loads(text) for text in re.findall(r"result: (\{.*\})$", output, re.MULTILINE)]


@pytest.fixture(scope="session")
def cluster():
    plugin = pathlib.Path(os.environ.get("AMLDIST_PLUGIN", ROOT / "build-development/lib/slurm/spank_aml_dist.so"))
    assert plugin.is_file(), "AMLDIST_PLUGIN must name the built spank_aml_dist.so"
    cluster = Cluster(NAME, 4)
    started = cluster.devcluster("start", "--nodes", "4", "--restart", "--plugin", str(readable_copy(plugin)))
    assert started.status == 0, str(started)
    yield cluster
    stopped = cluster.devcluster("stop")
    assert stopped.status == 0, str(stopped)


@pytest.fixture(scope="session")
def tool() -> pathlib.Path:
    path = pathlib.Path(os.environ.get("AMLDIST_TOOL", ROOT / "build-development/bin/aml-dist"))
    assert path.is_file(), "AMLDIST_TOOL must name the built aml-dist"
    return readable_copy(path)


@pytest.fixture
def examples(cluster):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="aml-dist-examples-", dir="/var/tmp"))
    folder.chmod(0o755)
    shutil.copytree(ROOT / "contrib/examples", folder, dirs_exist_ok=True)
    yield Examples(cluster, folder)
    shutil.rmtree(folder, ignore_errors=True)


def need(*distributions: str) -> None:
    """Skips the test, with the reason, where one of these is not installed in the frameworks' environment."""
    paths = [str(path) for path in VENV.glob("lib/python3.*/site-packages")]
    there = {each.name.lower().replace("_", "-") for each in importlib.metadata.distributions(path=paths)}
    missing = [name for name in distributions if name not in there]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed: run tests/frameworks/install"
                    + (" --horovod" if "horovod" in missing else ""))


def need_debian(module: str, package: str) -> None:
    """The same for Debian's own Python packages."""
    done = subprocess.run(["/usr/bin/python3", "-c", f"import {module}"], capture_output=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"Debian's {package} is not installed")


_rows: list[tuple[str, ...]] = []


@pytest.fixture
def record():
    """Adds a row to the table of what ran: framework, version, way of launching, shape, seconds, checked, verdict."""
    return lambda *cells: _rows.append(tuple(str(cell) for cell in cells))


def pytest_sessionfinish():
    if not _rows:
        return
    head = ("framework", "version", "way of launching", "nodes x tasks", "seconds", "checked", "verdict")
    lines = [head, tuple("---" for _ in head), *_rows]
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text("".join("| " + " | ".join(line) + " |\n" for line in lines))
