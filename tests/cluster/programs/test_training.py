"""Real PyTorch over the real plugin: the example that the documentation shows, unmodified."""

import json
import shutil

import pytest
from cluster import ROOT, TORCH_ENVIRONMENT

EXAMPLE = ROOT / "contrib/examples/pytorch"


@pytest.mark.parametrize("user, shape", [
    ("root", "-N4 --ntasks-per-node=2"),
    ("alice", "-N3 -n5"),
])
def test_distributed_data_parallel(cluster, workdir, user, shape):
    for name in ("train_ddp.py", "train_ddp.sbatch"):
        shutil.copy(EXAMPLE / name, workdir / name)
    report_path = workdir / "report.json"
    done, out = cluster.job_output(f"{shape} train_ddp.sbatch --report {report_path}", workdir, user, timeout=180,
                                   env=TORCH_ENVIRONMENT)
    assert done.status == 0, str(done) + out
    report = json.loads(report_path.read_text())
    processes = report["processes"]
    assert [each["rank"] for each in processes] == list(range(report["world_size"]))
    assert len({each["host"] for each in processes}) == int(shape[2])
    assert len({(each["master_addr"], each["master_port"]) for each in processes}) == 1
    assert report["parameters_equal"] is True
    assert report["epochs"][-1]["loss"] < report["epochs"][0]["loss"] / 2
