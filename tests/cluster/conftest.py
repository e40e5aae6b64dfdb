"""One real cluster of four nodes for all tests; each test leaves it as it found it."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(folder) for folder in HERE.iterdir() if folder.is_dir()]  # tests share helpers across the folders

import ways  # noqa: E402
from cluster import BUILD, LATEST, Cluster, readable_copy  # noqa: E402

for command in pathlib.Path(os.environ.get("AMLDIST_TOOL", "/nowhere/aml-dist")).parent.glob("aml-*"):
    readable_copy(command)  # aml-run and the launchers lie beside the tool
for variable in ("AMLDIST_PLUGIN", "AMLDIST_TOOL"):
    if pathlib.Path(os.environ.get(variable, "")).is_file():
        os.environ[variable] = str(readable_copy(pathlib.Path(os.environ[variable])))
PLUGIN = os.environ.get("AMLDIST_PLUGIN", "")
NAME = os.environ.get("AMLDIST_TEST_CLUSTER", "test")
# A release of Debian for another Slurm than this machine's; PLUGIN and AMLDIST_TOOL must have been built there.
RELEASE = os.environ.get("AMLDIST_TEST_RELEASE", "")


def pytest_collection_modifyitems(config, items):
    """AMLDIST_TEST_SHARE=2/3: every third test, from the second on. Live tests mostly wait, so that several clusters can
    share them out."""
    number, _, shares = os.environ.get("AMLDIST_TEST_SHARE", "1/1").partition("/")
    mine = items[int(number) - 1::int(shares)]
    config.hook.pytest_deselected(items=[item for item in items if item not in mine])
    items[:] = mine
    for item in items:
        if reason := ways.not_tried(f"{item.path.name}::{item.nodeid.partition('::')[2]}"):
            item.add_marker(pytest.mark.skip(reason=f"not under {ways.STEPS}: {reason}"))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """A failed test shows the whole of its last commands, which may be all that is known of a rare failure."""
    outcome = yield
    report = outcome.get_result()
    if report.failed:
        report.sections += [("command", str(each)[-20000:]) for each in LATEST]
    if call.when != "call":
        LATEST.clear()


@pytest.fixture(scope="session")
def cluster():
    assert PLUGIN and pathlib.Path(PLUGIN).is_file(), "AMLDIST_PLUGIN must name the built spank_aml_dist.so"
    cluster = Cluster(NAME, 4)
    started = cluster.devcluster("start", "--nodes", "4", "--restart", "--plugin", PLUGIN,
                                 *(["--release", RELEASE] if RELEASE else []))
    assert started.status == 0, str(started)
    yield cluster
    crashed = [core.name for core in pathlib.Path(f"/run/aml-devcluster/{NAME}/log").glob("core*")]
    stopped = cluster.devcluster("stop")
    assert stopped.status == 0, str(stopped)
    assert not crashed, f"slurmctld or a slurmd crashed while the tests ran: {crashed}"


@pytest.fixture(scope="module")
def traced_libraries(cluster):
    """The folder of the libraries that record MPI; the plugin knows it."""
    built = pathlib.Path(os.environ.get("AMLDIST_TRACE_LIBRARIES", BUILD / "lib/aml-dist"))
    if cluster.run("command -v mpicc").status != 0 or not (built / "libamldist-mpitrace-preload.so").is_file():
        pytest.skip("no mpicc, or the libraries that record were not built")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="aml-dist-trace-", dir="/var/tmp"))
    for each in built.glob("libamldist-mpitrace-*.so"):
        shutil.copy(each, folder)
    subprocess.run(["chmod", "-R", "a+rX", folder], check=True)
    assert cluster.devcluster("plugin", PLUGIN, f"trace_libraries={folder}").status == 0
    yield folder
    assert cluster.devcluster("plugin", PLUGIN).status == 0
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def pmix(cluster) -> None:
    """For tests of srun --mpi=pmix: Debian's Slurm 26.05 is built without it."""
    offered = cluster.run("srun --mpi=list")
    if "pmix" not in (offered.out + offered.err).split():
        pytest.skip("this Slurm has no PMIx plugin (srun --mpi=list)")


@pytest.fixture(scope="session")
def addresses(cluster) -> dict[str, str]:
    """IPv4 address of each node, from the kernel of the node itself."""
    out = {}
    for number in range(1, cluster.nodes + 1):
        node = f"node{number}"
        done = cluster.run("ip -j -4 addr show scope global", on=node)
        assert done.status == 0, str(done)
        out[node] = json.loads(done.out)[0]["addr_info"][0]["local"]
    return out


@pytest.fixture(autouse=True)
def no_node_is_drained(cluster):
    """After each test all nodes must be usable."""
    yield
    states = cluster.states()
    assert len(states) == cluster.nodes
    bad = {node: state for node, state in states.items() if "drain" in state or "down" in state}
    assert not bad, "\n".join([str(bad), *(what_is_known_of(node) for node in bad)])


def what_is_known_of(node: str) -> str:
    """The ends of the logs, which go with the cluster, and whether its slurmd lives."""
    logs = pathlib.Path(f"/run/aml-devcluster/{NAME}/log")
    ends = {f"{node}.log": "", "slurmctld.log": node}
    lines = {name: [line for line in (logs / name).read_text(errors="replace").splitlines() if word in line][-15:]
             for name, word in ends.items() if (logs / name).exists()}
    processes = subprocess.run(["pgrep", "--list-full", "slurmd"], capture_output=True, text=True).stdout.splitlines()
    lines["processes"] = [line for line in processes if node in line]
    return "\n".join(f"{name}: {line}" for name, found in lines.items() for line in found)


@pytest.fixture
def workdir():
    """A folder that every node sees and every user may write (/tmp is each node's own)."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="aml-dist-test-", dir="/var/tmp"))
    path.chmod(0o777)
    yield path
    shutil.rmtree(path, ignore_errors=True)
