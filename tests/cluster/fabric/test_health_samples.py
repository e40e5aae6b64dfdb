"""contrib/health on a live cluster: a fault comes, the node is drained with the reason, the fault goes, the node comes back.

The fabric is a fabricated tree on each node, the GPUs are those of a driver in memory, the site's tool is a script that answers as
Azure's healthagent does. Slurm, the samples and aml-dist are the real ones; NHC too where AMLDIST_NHC_PROGRAM names its `nhc`.
"""

import os
import pathlib
import re
import shutil
import subprocess
import time

import pytest
from cluster import BUILD, Cluster
from conftest import NAME, PLUGIN, RELEASE
from fabric_nodes import FabricatedNodes, trees

HEALTH = pathlib.Path(__file__).resolve().parents[3] / "contrib/health"
TOOL = os.environ.get("AMLDIST_TOOL", "")
VERBS, NVML = (BUILD / f"lib/tests/libfake_{name}.so" for name in ("verbs", "nvml"))
NHC = os.environ.get("AMLDIST_NHC_PROGRAM", "")
pytestmark = pytest.mark.skipif(not VERBS.is_file() or not NVML.is_file(), reason="the libraries in memory were not built")

AGENT = """#!/bin/bash
status=OK
[[ ! -e FOLDER/agent.$SLURMD_NODENAME ]] || status=Error
echo '{"gpu": {"GpuHealthCheck": {"status": "'$status'", "message": "XID 79 on GPU 3"}}, "network": {"NetworkInterfaceCheck": {"status": "OK"}}}'
"""
# Each sample with its settings in the environment; a file switches it on, another makes a GPU of a node sick.
SAMPLE = """#!/bin/bash
[[ -e @FOLDER@/on.@NAME@ ]] || exit 0
export SLURMD_NODENAME=${SLURMD_NODENAME:-$(hostname -s)}
export AML_DIST=@TOOL@ AML_DIST_BASELINE=@FOLDER@/counters.$SLURMD_NODENAME AML_DIST_STRIKES=2 AML_DIST_PAUSE=0 AMLDIST_NVML=@NVML@
export AML_DIST_PROLOG_CONF=@FOLDER@/prolog.conf
[[ ! -e @FOLDER@/gpu.$SLURMD_NODENAME ]] || export FAKE_NVML_ECC=3:5
exec @HEALTH@/@NAME@
"""


def write(path: pathlib.Path, text: str) -> pathlib.Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


class Site:
    """Two nodes with a fabric, GPUs and a tool of the site, and our samples around their jobs."""

    def __init__(self, cluster: Cluster, folder: pathlib.Path) -> None:
        self.cluster, self.folder = cluster, folder
        self.fabric = FabricatedNodes(cluster, VERBS)
        for node in ("node1", "node2"):
            self.fabric.lay(node, trees.azure(2, "400 Gb/sec (4X NDR)", 0))

    def cable(self, node: str, plugged: bool) -> None:
        port = self.fabric.folder / node / "sys/class/infiniband/mlx5_ib1/ports/1"
        (port / "state").write_text("4: ACTIVE\n" if plugged else "1: DOWN\n")
        (port / "phys_state").write_text("5: LinkUp\n" if plugged else "2: Polling\n")

    def mark(self, name: str, there: bool) -> None:
        (self.folder / name).touch() if there else (self.folder / name).unlink()

    def shown(self, node: str) -> str:
        return self.cluster.run(f"scontrol show node {node}").out

    def until(self, node: str, what: str, timeout: float = 40) -> tuple[str, float]:
        """Waits for words in what Slurm shows of a node; what it shows, and how long it took."""
        began = time.monotonic()
        while time.monotonic() - began < timeout:
            text = self.shown(node)
            if re.search(what, text):
                return text, time.monotonic() - began
            time.sleep(0.5)
        log = pathlib.Path(f"/run/aml-devcluster/{self.cluster.name}/log/{node}.log").read_text(errors="replace")
        pytest.fail(f"{node} never showed {what}\n{self.shown(node)}\n{log[-3000:]}")


@pytest.fixture(scope="module")
def site(cluster):
    folder = pathlib.Path(subprocess.run(["mktemp", "-d", "/var/tmp/aml-dist-health-XXXXXX"], capture_output=True, text=True, check=True).stdout.strip())
    folder.chmod(0o755)
    write(folder / "agent", AGENT.replace("FOLDER", str(folder)))
    (folder / "prolog.conf").write_text("skus[main]=HB120rs_v3\n")
    (folder / "site.conf").write_text(f"site_check.agent=status,5 {folder}/agent\n")
    nvml = shutil.copy(NVML, folder)
    for name in ("aml-dist-health", "prolog", "epilog"):
        text = SAMPLE
        for word, value in (("NAME", name), ("FOLDER", folder), ("TOOL", TOOL), ("NVML", nvml), ("HEALTH", HEALTH)):
            text = text.replace(f"@{word}@", str(value))
        write(folder / name, text)
    started = Cluster(f"{NAME}-hl"[-16:].lstrip("-"), 2)
    done = started.devcluster("start", "--nodes", "2", "--restart", "--plugin", PLUGIN, *(["--release", RELEASE] if RELEASE else []),
                              "--conf", f"HealthCheckProgram={folder}/aml-dist-health", "--conf", "HealthCheckInterval=3",
                              "--conf", "HealthCheckNodeState=ANY", "--conf", f"Epilog={folder}/epilog", "--conf", f"Prolog={folder}/prolog")
    assert done.status == 0, str(done)
    assert started.devcluster("plugin", PLUGIN, f"config={folder}/site.conf").status == 0
    own = Site(started, folder)
    yield own
    own.fabric.close()
    assert started.devcluster("stop").status == 0
    subprocess.run(["rm", "-rf", folder], check=True)


FAULTS = {
    "cable": (lambda site, there: site.cable("node2", not there), r"Reason=aml-dist: .*ib\.state .*mlx5_ib1:1"),
    "GPU": (lambda site, there: site.mark("gpu.node2", there), r"Reason=aml-dist: .*gpu\.ecc GPU 3"),
    "site's tool": (lambda site, there: site.mark("agent.node2", there), r"Reason=aml-dist: .*site\.agent GpuHealthCheck: XID 79 on GPU 3"),
}


@pytest.fixture
def health_check(site):
    site.mark("on.aml-dist-health", True)
    yield site
    site.mark("on.aml-dist-health", False)
    time.sleep(1)


@pytest.mark.parametrize("fault", FAULTS)
def test_the_health_check_drains_with_the_reason_and_resumes(health_check, fault):
    make, reason = FAULTS[fault]
    make(health_check, True)
    try:
        shown, drained = health_check.until("node2", r"State=\S*DRAIN")
        assert re.search(reason, shown), shown
        assert "DRAIN" not in health_check.shown("node1")
    finally:
        make(health_check, False)
    _, back = health_check.until("node2", r"State=IDLE\s")
    print(f"{fault}: drained after {drained:.1f} s, {re.search('Reason=.*', shown).group()}; back after {back:.1f} s")


def test_it_resumes_only_what_it_has_drained(health_check):
    assert health_check.cluster.run("scontrol update NodeName=node1 State=DRAIN Reason='replacing the fan'").status == 0
    FAULTS["cable"][0](health_check, True)
    health_check.until("node2", "Reason=aml-dist: ")
    FAULTS["cable"][0](health_check, False)
    health_check.until("node2", r"State=IDLE\s")
    time.sleep(7)  # twice HealthCheckInterval
    shown = health_check.shown("node1")
    assert "DRAIN" in shown and "Reason=replacing the fan" in shown, shown
    assert health_check.cluster.run("scontrol update NodeName=node1 State=RESUME").status == 0


def resume(site, node: str) -> None:
    assert site.cluster.run(f"scontrol update NodeName={node} State=RESUME").status == 0
    site.until(node, r"State=IDLE\s")


@pytest.mark.parametrize("fault", FAULTS)
def test_the_prolog_lets_no_job_on_a_sick_node(site, fault):
    make, _ = FAULTS[fault]
    site.mark("on.prolog", True)
    make(site, True)
    try:
        done = site.cluster.run("timeout 20 srun -w node2 -N1 bash -c 'echo the program ran'", timeout=30)
        assert "the program ran" not in done.out, str(done)
        shown, _ = site.until("node2", r"State=\S*DRAIN")
        assert "Reason=Prolog error" in shown or "Reason=prolog" in shown.lower(), shown
        site.cluster.run("scancel --user=root")
    finally:
        make(site, False)
    resume(site, "node2")
    done = site.cluster.run("timeout 60 srun -w node2 -N1 bash -c 'echo the program ran'", timeout=70)
    assert done.status == 0 and "the program ran" in done.out, str(done)
    site.mark("on.prolog", False)


def test_the_epilog_drains_a_node_that_became_sick_during_a_job(site):
    site.mark("on.epilog", True)
    try:
        assert site.cluster.run("timeout 60 srun -w node2 -N1 sleep 0").status == 0
        time.sleep(2)
        assert "DRAIN" not in site.shown("node2"), "a healthy node's epilog fails"
        FAULTS["cable"][0](site, True)
        assert site.cluster.run("timeout 60 srun -w node2 -N1 true").status == 0, "the job itself is well"
        shown, _ = site.until("node2", r"State=\S*DRAIN")
        assert "Reason=Epilog error" in shown, shown
    finally:
        FAULTS["cable"][0](site, False)
        site.mark("on.epilog", False)
    resume(site, "node2")


def test_the_sites_tool_counts_at_launch_where_health_is_required(site):
    done = site.cluster.run("timeout 60 srun -N2 --aml-dist=pytorch,health=require true")
    assert done.status == 0 and not done.own_lines(), str(done)
    site.mark("agent.node2", True)
    try:
        done = site.cluster.run("timeout 60 srun -N2 --aml-dist=pytorch,health=require echo ran")
        assert done.status != 0 and "ran" not in done.out, str(done)
        assert any("health=require failed on node2: site.agent: GpuHealthCheck: XID 79 on GPU 3" in line for line in done.own_lines()), str(done)
        done = site.cluster.run("timeout 60 srun -N2 --aml-dist=pytorch,health=prefer true")
        assert done.status == 0 and any("health=prefer on node2: site.agent" in line for line in done.own_lines()), str(done)
        assert not site.cluster.run("timeout 60 srun -N2 --aml-dist=pytorch true").own_lines()
    finally:
        site.mark("agent.node2", False)


def test_the_tools_answer_runs_as_the_steps_user(site):
    """Not as root: a tool that writes down who runs it."""
    write(site.folder / "who", "#!/bin/bash\necho '{\"a\": {\"status\": \"Error\", \"message\": \"uid '$(id -u)'\"}}'\n")
    text = (site.folder / "site.conf").read_text()
    (site.folder / "site.conf").write_text(text + f"site_check.who=status,5 {site.folder}/who\n")
    try:
        done = site.cluster.run("timeout 60 srun -N1 --aml-dist=pytorch,health=require true", user="alice")
        assert any("site.who: a: uid 20001" in line for line in done.own_lines()), str(done)
    finally:
        (site.folder / "site.conf").write_text(text)


@pytest.mark.skipif(not NHC, reason="AMLDIST_NHC_PROGRAM does not name an installed NHC")
@pytest.mark.parametrize("fault", FAULTS)
def test_the_line_of_nhc_drains_and_resumes(site, fault):
    make, _ = FAULTS[fault]
    conf = site.folder / "nhc.conf"
    conf.write_text(f"* || export AML_DIST={TOOL}\n* || export AML_DIST_BASELINE={site.folder}/counters\n* || export AML_DIST_PAUSE=0\n"
                    "* || check_aml_dist\n")
    scripts = pathlib.Path(NHC).resolve().parent / "scripts"
    include = site.folder / "nhc-scripts"
    shutil.copytree(scripts, include, dirs_exist_ok=True)
    shutil.copy(HEALTH / "aml-dist.nhc", include)
    helpers = pathlib.Path(NHC).resolve().parent / "helpers"
    env = {"AMLDIST_NVML": str(site.folder / NVML.name), "SLURMD_NODENAME": "node2"}
    line = (f"{NHC} -t 30 -l {site.folder}/nhc.log -c {conf} INCDIR={include} HELPERDIR={helpers} NHC_RM=slurm "
            "HOSTNAME=node2 MARK_OFFLINE=1")

    def nhc():
        sick = {"FAKE_NVML_ECC": "3:5"} if (site.folder / "gpu.node2").exists() else {}
        return site.cluster.run(line, on="node2", env=env | sick)
    assert nhc().status == 0, (site.folder / "nhc.log").read_text()
    make(site, True)
    try:
        assert nhc().status != 0
        shown, _ = site.until("node2", r"State=\S*DRAIN")
        assert re.search(r"Reason=NHC: .*check_aml_dist", shown), shown
    finally:
        make(site, False)
    assert nhc().status == 0
    site.until("node2", r"State=IDLE\s")
