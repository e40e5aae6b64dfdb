"""What only newer releases of Slurm have, around our samples: START_ONLY, --requeue=expedite (25.11), Slurm's own metrics."""

import pathlib
import re
import subprocess
import time

import pytest
from cluster import Cluster, release_of
from conftest import NAME, RELEASE
from test_batch import script

HEALTH = pathlib.Path(__file__).resolve().parents[3] / "contrib/health"


@pytest.fixture(scope="module")
def newer(cluster, tmp_path_factory):
    """Two nodes with our health check at slurmd's start and our epilog. A file says which node is sick."""
    if release_of(cluster) < (25, 11):
        pytest.skip("Slurm 25.11 or later")
    folder = pathlib.Path(subprocess.run(["mktemp", "-d", "/var/tmp/aml-dist-newer-XXXXXX"], capture_output=True, text=True, check=True).stdout.strip())
    folder.chmod(0o755)
    (folder / "aml-dist").write_text(f"""#!/bin/bash
echo "$SLURMD_NODENAME $*" >>{folder}/asked
grep -qsx "$SLURMD_NODENAME" {folder}/sick || exit 0
echo 'node: fail (policy require)'
echo '  fail  ib.state      mlx5_ib1:1 1: DOWN'
exit 1
""")
    (folder / "aml-dist").chmod(0o755)
    for name in ("aml-dist-health", "epilog"):
        (folder / name).write_text(f"#!/bin/bash\nexport AML_DIST={folder}/aml-dist AML_DIST_BASELINE={folder}/counters AML_DIST_PAUSE=0\n"
                                   f"exec {HEALTH}/{name}\n")
        (folder / name).chmod(0o755)
    started = Cluster(f"{NAME}-nw"[-16:].lstrip("-"), 2)
    done = started.devcluster("start", "--nodes", "2", "--restart", *(["--release", RELEASE] if RELEASE else []),
                              "--conf", f"HealthCheckProgram={folder}/aml-dist-health", "--conf", "HealthCheckInterval=5",
                              "--conf", "HealthCheckNodeState=START_ONLY", "--conf", f"Epilog={folder}/epilog",
                              "--conf", "SlurmctldParameters=enable_expedited_requeue",
                              "--conf", "MetricsType=metrics/openmetrics")
    assert done.status == 0, str(done)
    started.folder = folder
    yield started
    assert started.devcluster("stop").status == 0
    subprocess.run(["rm", "-rf", folder], check=True)


def asked(cluster, what: str) -> list[str]:
    path = cluster.folder / "asked"
    return [line.split()[0] for line in path.read_text().splitlines() if what in line] if path.exists() else []


def test_the_health_check_runs_when_slurmd_starts_and_not_again(newer):
    newer.run("srun -N2 true")
    before = asked(newer, "--baseline")
    assert sorted(set(before)) == ["node1", "node2"]
    time.sleep(7)  # longer than HealthCheckInterval
    assert asked(newer, "--baseline") == before


def test_a_job_whose_node_is_sick_starts_again_at_once_on_another(newer, workdir):
    job = script(workdir, "echo $SLURM_RESTART_COUNT on $SLURMD_NODENAME", f"[[ -n $SLURM_RESTART_COUNT ]] || {{ echo $SLURMD_NODENAME >{newer.folder}/sick; exit 1; }}")
    identifier = newer.run(f"sbatch --parsable --requeue=expedite --open-mode=append --output={workdir}/out -N1 {job}").out.strip()
    done = newer.run(f"until scontrol show job {identifier} | grep -q JobState=COMPLETED; do sleep 0.2; done", timeout=60)
    text = (workdir / "out").read_text()
    sick = (newer.folder / "sick").read_text().strip()
    assert done.status == 0, text
    first, second = text.splitlines()
    assert first.split() == ["on", sick] and second.split()[:2] == ["1", "on"] and sick not in second, text
    shown = newer.run(f"scontrol show node {sick}").out
    assert "DRAIN" in shown and "Epilog error" in shown, shown
    (newer.folder / "sick").unlink()
    assert newer.run(f"scontrol update NodeName={sick} State=RESUME").status == 0


def test_a_job_that_fails_on_a_well_node_does_not_run_again(newer, workdir):
    job = script(workdir, "echo ran", "exit 1")
    identifier = newer.run(f"sbatch --parsable --requeue=expedite --open-mode=append --output={workdir}/out -N1 {job}").out.strip()
    done = newer.run(f"until scontrol show job {identifier} | grep -q Reason=.*[Hh]eld; do sleep 0.2; done", timeout=60)
    assert done.status == 0 and (workdir / "out").read_text() == "ran\n"
    newer.run(f"scancel {identifier}")


@pytest.mark.parametrize("endpoint", re.findall(r"metrics_path: (\S+)", (HEALTH.parent / "monitoring/prometheus.yml").read_text()))
def test_slurmctld_answers_where_the_sample_asks(newer, endpoint):
    program = f"import urllib.request as u; print(u.urlopen('http://login:6817{endpoint}', timeout=5).read().decode())"
    done = newer.run(f'/usr/bin/python3 -c "{program}"')
    assert done.status == 0 and re.search(r"^slurm_[a-z_]+(\{.*\})? [0-9.]+", done.out, re.MULTILINE), str(done)[:2000]
