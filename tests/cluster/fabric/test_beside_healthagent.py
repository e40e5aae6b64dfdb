"""contrib/cyclecloud's samples beside Azure's healthagent on a live cluster: a fault comes, the node is drained with the reason of who
has found it, the fault goes, who has drained resumes.

healthagent itself is not here. A stand-in does what its examples health.sh and epilog.sh do: health.sh is the HealthCheckProgram, drains
idle nodes with "Healthcheck failures. ...", and resumes only these; the epilog ends with the number of errors. A loop stands in for
systemd's timer. Slurm, the script that installs, the samples and aml-dist are the real ones.
"""

import pathlib
import re
import shutil
import subprocess
import time

import pytest
from cluster import Cluster
from conftest import NAME, PLUGIN, RELEASE
from test_health_samples import HEALTH, NVML, TOOL, VERBS, Site, write

pytestmark = pytest.mark.skipif(not VERBS.is_file() or not NVML.is_file(), reason="the libraries in memory were not built")

INSTALL = HEALTH.parent / "cyclecloud/specs/default/cluster-init/scripts/20-aml-dist-health.sh"
HEALTH_SH = """#!/bin/bash
[[ -e FOLDER/agent.$SLURMD_NODENAME ]] && errors=1 || errors=0
read -r state reason < <(sinfo -N -n "$SLURMD_NODENAME" -o "%T|%E" -h | head -n 1 | tr '|' ' ')
if [[ $state == idle ]] && ((errors)); then
    scontrol update NodeName="$SLURMD_NODENAME" State=drain Reason="Healthcheck failures. Run 'health -s' view health report."
elif [[ $state =~ ^drain(ed)?$ && $reason =~ ^"Healthcheck failures" ]] && ((!errors)); then
    scontrol update NodeName="$SLURMD_NODENAME" State=resume
fi
"""
AGENTS_EPILOG = """#!/bin/bash
echo "$SLURM_JOB_ID" >>FOLDER/epilog.ran
[[ ! -e FOLDER/agent_epilog.$SLURMD_NODENAME ]] || exit 2
"""
SETTINGS = """
AML_DIST=TOOL
AML_DIST_BASELINE=FOLDER/counters.$SLURMD_NODENAME AML_DIST_STRIKES=2 AML_DIST_PAUSE=0 AML_DIST_DRAIN=yes
export AMLDIST_NVML=NVML
[[ ! -e FOLDER/gpu.$SLURMD_NODENAME ]] || export FAKE_NVML_ECC=3:5
"""
TIMER = """#!/bin/bash
export SLURMD_NODENAME=$1 AML_DIST_HEALTH_CONF=FOLDER/etc/health.conf
while [[ -e FOLDER/timer ]]; do HEALTH/aml-dist-health; sleep 2; done
"""


@pytest.fixture(scope="module")
def site():
    folder = pathlib.Path(subprocess.run(["mktemp", "-d", "/var/tmp/aml-dist-agent-XXXXXX"], capture_output=True, text=True, check=True).stdout.strip())
    folder.chmod(0o755)
    nvml = shutil.copy(NVML, folder)

    def filled(text: str) -> str:
        for word, value in (("FOLDER", folder), ("TOOL", TOOL), ("NVML", nvml), ("HEALTH", HEALTH)):
            text = re.sub(rf"(?<![A-Z_]){word}(?![A-Z_])", str(value), text)
        return text
    files, slurm = folder / "spec/files", folder / "slurm"
    for each in (files, slurm / "prolog.d", slurm / "epilog.d"):
        each.mkdir(parents=True)
    for name in ("prolog", "epilog", "health"):
        (files / f"{name}.conf").write_text(filled(SETTINGS) + ("skus[main]=HB120rs_v3\n" if name == "prolog" else ""))
    environment = {"PATH": "/usr/bin:/bin", "HOSTNAME": "node1", "CYCLECLOUD_SPEC_PATH": str(folder / "spec"), "AML_DIST_SAMPLES": str(HEALTH),
                   "AML_DIST_SLURM_CONF": str(slurm), "AML_DIST_SETTINGS": str(folder / "etc"), "AML_DIST_UNITS": str(folder / "units")}
    for _ in range(2):
        subprocess.run(["bash", INSTALL], env=environment, check=True)
    assert (folder / "units/aml-dist-health.timer").is_file()
    for name in ("prolog", "epilog"):  # which read /etc/aml-dist on a machine of its own
        installed = slurm / f"{name}.d/50-aml-dist.sh"
        installed.write_text(installed.read_text().replace("/etc/aml-dist/", f"{folder}/etc/"))
    write(folder / "health.sh", filled(HEALTH_SH))
    write(slurm / "epilog.d/10-health_epilog.sh", filled(AGENTS_EPILOG))
    write(folder / "timer.sh", filled(TIMER))
    cluster = Cluster(f"{NAME}-ha"[-16:].lstrip("-"), 2)
    done = cluster.devcluster("start", "--nodes", "2", "--restart", "--plugin", PLUGIN, *(["--release", RELEASE] if RELEASE else []),
                              "--conf", f"HealthCheckProgram={folder}/health.sh", "--conf", "HealthCheckInterval=3", "--conf", "HealthCheckNodeState=ANY",
                              "--conf", f"Epilog={slurm}/epilog.d/*", "--conf", f"Prolog={slurm}/prolog.d/*")
    assert done.status == 0, str(done)
    own = Site(cluster, folder)
    yield own
    own.fabric.close()
    assert cluster.devcluster("stop").status == 0
    subprocess.run(["rm", "-rf", folder], check=True)


@pytest.fixture
def timer(site):
    """Our program on both nodes, every two seconds."""
    site.mark("timer", True)
    for node in ("node1", "node2"):
        assert site.cluster.run(f"setsid {site.folder}/timer.sh {node} </dev/null >{site.folder}/timer.{node} 2>&1 &", on=node).status == 0
    yield site
    site.mark("timer", False)
    time.sleep(4)


def job(site) -> None:
    done = site.cluster.run("timeout 60 srun -w node2 -N1 echo ran", timeout=70)
    assert done.status == 0 and "ran" in done.out, str(done)


def test_both_epilogs_run_after_a_job_on_healthy_nodes(site):
    job(site)
    deadline = time.monotonic() + 20
    while not (site.folder / "epilog.ran").exists() and time.monotonic() < deadline:
        time.sleep(0.5)
    assert (site.folder / "epilog.ran").exists(), "healthagent's epilog did not run after ours"
    time.sleep(2)
    assert "DRAIN" not in site.shown("node2"), site.shown("node2")


@pytest.mark.parametrize("fault", ["cable", "GPU"])
def test_ours_drains_and_resumes_and_healthagents_program_leaves_it(timer, fault):
    site = timer

    def make(there):
        site.cable("node2", not there) if fault == "cable" else site.mark("gpu.node2", there)
    make(True)
    try:
        shown, _ = site.until("node2", r"State=\S*DRAIN")
        assert re.search(r"Reason=aml-dist: .*(ib\.state .*mlx5_ib1:1|gpu\.ecc GPU 3)", shown), shown
        time.sleep(7)  # twice HealthCheckInterval: healthagent is content with the node, and resumes only its own drains
        assert "DRAIN" in site.shown("node2") and "DRAIN" not in site.shown("node1")
    finally:
        make(False)
    site.until("node2", r"State=IDLE\s")
    job(site)


def test_healthagents_drain_is_left_to_healthagent(timer):
    site = timer
    site.mark("agent.node2", True)
    try:
        shown, _ = site.until("node2", r"State=\S*DRAIN")
        assert "Reason=Healthcheck failures" in shown, shown
        time.sleep(5)  # ours is content with the node, and leaves it
        assert "DRAIN" in site.shown("node2")
    finally:
        site.mark("agent.node2", False)
    site.until("node2", r"State=IDLE\s")


def test_a_fault_during_a_job_is_drained_by_our_epilog_with_the_reason_and_ends_by_itself(site, request):
    try:
        # While it runs: our prolog would not let it start on a sick node.
        done = site.cluster.run(f"timeout 60 srun -w node2 -N1 bash -c 'cd {site.fabric.folder}/node2/sys/class/infiniband/mlx5_ib1/ports/1 && "
                                "echo 1: DOWN >state && echo 2: Polling >phys_state'", timeout=70)
        assert done.status == 0, str(done)
        shown, _ = site.until("node2", r"State=\S*DRAIN")
        assert re.search(r"Reason=aml-dist: .*ib\.state .*mlx5_ib1:1", shown), shown
        time.sleep(7)
        assert "DRAIN" in site.shown("node2"), "nobody resumes a node whose cable is out"
    finally:
        site.cable("node2", True)
    request.getfixturevalue("timer")
    site.until("node2", r"State=IDLE\s")


def test_healthagents_failing_epilog_drains_as_without_us(timer):
    site = timer
    site.mark("agent_epilog.node2", True)
    try:
        job(site)
        shown, _ = site.until("node2", r"State=\S*DRAIN")
        assert "Reason=Epilog error" in shown, shown
        time.sleep(5)
        assert "DRAIN" in site.shown("node2"), "ours resumes only what it has drained"
    finally:
        site.mark("agent_epilog.node2", False)
    assert site.cluster.run("scontrol update NodeName=node2 State=RESUME").status == 0
    site.until("node2", r"State=IDLE\s")
    job(site)
