"""How frameworks find rank 0 without --aml-dist: the doctor's reading of Slurm's variables against their own functions.

No cluster: each framework's function is called in its own environment, for many host lists and job numbers.
"""

from __future__ import annotations

import itertools
import json
import os
import pathlib
import subprocess

import pytest
from conftest import DEBIAN, VENV, need

LISTS = ["node1", "node[1-4]", "node[001-003]", "node[1,3,5-7]", "node[7]", "a1,b[2-3]", "rack[0-1]b[0-1]", "n[3],m[5]",
         "rack[0-1]_blade[0-1]", "node1,node2", "gpu-a-[1-2]", "gpu-a-01,gpu-b-02", "n[1-2],m[3-4]"]
NOT_FOR_SCONTROL = ["c[1-2]-ib0", "n[3]-a,m[5-6]"]  # 22.05 writes such lists nowhere and expands none; later ones do
JOBS = ["7", "61440", "1234567"]

LIGHTNING = """
from lightning.fabric.plugins.environments import SLURMEnvironment
environment = SLURMEnvironment()
print(f"{environment.main_address}:{environment.main_port}")
"""
JAX = """
from jax._src.clusters.slurm_cluster import SlurmCluster
print(SlurmCluster.get_coordinator_address(timeout_secs=None, override_coordinator_port=None))
"""
IGNITE = """
from ignite.distributed.comp_models import native
found = native._setup_ddp_vars_from_slurm_env(os.environ)
print(f"{found['MASTER_ADDR']}:{found['MASTER_PORT']}")
"""
# One start of Python for all: a fresh environment for each case, then the framework's own words.
LOOP = """
import json, os, sys, traceback
cases = json.load(sys.stdin)
for case in cases:
    os.environ.clear()
    os.environ.update(case)
    try:
        exec(compile(sys.argv[1], "framework", "exec"))
    except Exception as error:
        print(type(error).__name__)
"""


def environments(slurm_conf: pathlib.Path, lists: list[str]) -> list[dict[str, str]]:
    slurm_conf.write_text("ClusterName=test\nSlurmctldHost=localhost\n")  # without one scontrol expands no list
    return [{"SLURM_CONF": str(slurm_conf), "PATH": f"{VENV}/bin:{DEBIAN}", "SLURM_JOB_ID": job,
             "SLURM_JOB_NAME": "train", "SLURM_STEP_ID": "0",
             "SLURM_PROCID": "1", "SLURM_LOCALID": "0", "SLURM_NODEID": "1", "SLURM_NTASKS": "2",
             "SLURM_NTASKS_PER_NODE": "1", "SLURM_NNODES": "2", "SLURM_STEP_NUM_NODES": "2",
             "SLURM_STEP_NUM_TASKS": "2",
             "SLURM_JOB_NUM_NODES": "2", "SLURM_NODELIST": hosts, "SLURM_JOB_NODELIST": hosts,
             "SLURM_STEP_NODELIST": hosts}
            for hosts, job in itertools.zip_longest(lists, JOBS, fillvalue=JOBS[0])]


def doctors_word(tool, framework: str, environment: dict[str, str]) -> dict:
    saved = "".join(f"{name}={value}\n" for name, value in environment.items())
    done = subprocess.run([str(tool), "doctor", "--json", "--env-file", "-", "--framework", framework, "--launcher",
                           "srun"],
                          input=saved, capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == "", done
    row, = json.loads(done.stdout)
    return row


@pytest.mark.parametrize("framework, code, needs", [
    ("lightning", LIGHTNING, "lightning"),
    ("jax", JAX, "jax"),
    ("ignite", IGNITE, "pytorch-ignite"),
], ids=["lightning", "jax", "ignite"])
def test_the_master_is_the_one_that_the_framework_finds(tool, tmp_path, framework, code, needs):
    need(needs)
    cases = environments(tmp_path / "slurm.conf", LISTS + ([] if framework == "ignite" else NOT_FOR_SCONTROL))
    done = subprocess.run([str(VENV / "bin/python3"), "-c", LOOP, code], input=json.dumps(cases), capture_output=True,
                          text=True,
                          timeout=120, check=False, env=os.environ | {"PATH": DEBIAN})
    assert done.returncode == 0, done.stderr
    found = done.stdout.splitlines()
    assert len(found) == len(cases), done.stdout
    said = [doctors_word(tool, framework, case) for case in cases]
    assert [row["master"] for row in said] == found
    # A wrong reading of the list is a step that hangs.
    for row, case in zip(said, cases):
        first = subprocess.run([str(tool), "explain", "--nodelist", case["SLURM_NODELIST"], "--tasks-per-node", "1",
                                "--json"],
                               capture_output=True, text=True, timeout=60, check=True)
        right = json.loads(first.stdout)[0]["host"] == row["master"].split(":")[0]
        assert row["verdict"] == ("fine" if right else "hangs"), (row, case)
