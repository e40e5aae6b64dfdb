"""A cluster whose names have IPv6 addresses only: MASTER_ADDR is a name there, since programs split it from the port at ':'."""

from __future__ import annotations

import json

import pytest
from cluster import Cluster
from conftest import NAME, PLUGIN, RELEASE

MEET = """import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
ones = torch.ones(1)
dist.all_reduce(ones)
print("sum", int(ones), os.environ["MASTER_ADDR"])
"""


@pytest.fixture(scope="module")
def ipv6():
    cluster = Cluster(f"{NAME}-v6"[-16:].lstrip("-"), 2)
    started = cluster.devcluster("start", "--nodes", "2", "--ipv6", "--restart", "--plugin", PLUGIN,
                                 *(["--release", RELEASE] if RELEASE else []))
    assert started.status == 0, str(started)
    yield cluster
    assert cluster.devcluster("stop").status == 0


@pytest.mark.parametrize("on", [None, "node2"])
@pytest.mark.parametrize("kind", ["pytorch", "mpi", "jax", "tensorflow", "pytorch,launch=per-node"])
def test_the_master_is_a_name(ipv6, kind, on):
    for task in ipv6.tasks(f"-N2 -n2 --aml-dist={kind}", on=on):
        assert task.env["MASTER_ADDR"] == "node1"
        if kind == "tensorflow":
            port = task.env["MASTER_PORT"]
            assert json.loads(task.env["TF_CONFIG"])["cluster"]["worker"] == [f"node1:{port}", f"node2:{port}"]
        if kind == "jax":
            assert task.env["JAX_COORDINATOR_ADDRESS"] == f"node1:{task.env['MASTER_PORT']}"


def test_who_asks_for_an_address_is_told_that_there_is_none(ipv6):
    done = ipv6.run("srun -N2 -n2 --aml-dist=pytorch,master_addr=ip true")
    assert done.status == 1 and "has no IPv4 address (fd00::" in done.err and "use master_addr=name" in done.err, str(done)


def test_a_name_that_is_loopback_on_its_own_node_is_refused(ipv6):
    """As everywhere: the other nodes could not reach it."""
    assert ipv6.devcluster("break", "node1", "loopback-name").status == 0
    try:
        done = ipv6.run("srun -N2 -n2 --aml-dist=pytorch true")
        assert done.status == 1 and "MASTER_ADDR=node1 is " in done.err, str(done)
    finally:
        assert ipv6.devcluster("heal", "node1").status == 0


def test_gloo_meets_there(ipv6, workdir):
    if ipv6.run("/usr/bin/python3 -c 'import torch'").status != 0:
        pytest.skip("PyTorch is not installed (Debian: python3-torch)")
    (workdir / "meet.py").write_text(MEET)
    done = ipv6.run(f"srun -N2 -n2 --aml-dist=pytorch /usr/bin/python3 {workdir}/meet.py")
    assert done.status == 0 and done.out.splitlines() == ["sum 2 node1"] * 2, str(done)
