"""A cluster whose names have IPv6 addresses only: MASTER_ADDR is a name there, since programs split it from the port at ':', and nodes
reach srun over IPv6. And one where Slurm uses both families."""

from __future__ import annotations

import contextlib
import json

import pytest
from cluster import PROBE, TORCH_ENVIRONMENT, Cluster, read_reports
from conftest import NAME, PLUGIN, RELEASE
from test_bare_tasks import LONG, check_ended
from test_citizens import hosts_of

MEET = """import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
ones = torch.ones(1)
dist.all_reduce(ones)
print("sum", int(ones), os.environ["MASTER_ADDR"])
dist.destroy_process_group()
"""


@contextlib.contextmanager
def cluster_of_two(suffix: str, *options: str):
    cluster = Cluster(f"{NAME}-{suffix}"[-16:].lstrip("-"), 2)
    started = cluster.devcluster("start", "--nodes", "2", *options, "--restart", "--plugin", PLUGIN,
                                 *(["--release", RELEASE] if RELEASE else []))
    assert started.status == 0, str(started)
    yield cluster
    assert cluster.devcluster("stop").status == 0


@pytest.fixture(scope="module")
def ipv6():
    with cluster_of_two("v6", "--ipv6") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def both():
    """Names have IPv4 addresses, and Slurm's daemons listen on both families: they know a peer as ::ffff:10.0.0.1."""
    with cluster_of_two("v46", "--conf", "CommunicationParameters=EnableIPv6") as cluster:
        yield cluster


@pytest.fixture(params=["ipv6", "both"])
def either(request):
    return request.getfixturevalue(request.param)


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


@pytest.mark.parametrize("change", ["/node2/d", "s/^[0-9a-f:.]*\\(.*node2\\)/fd00::9\\1/"])
def test_gloo_is_told_its_interface_where_the_own_name_leads_nowhere(ipv6, workdir, change):
    """It would look the name up, and listen on a loopback address, or end."""
    (workdir / "meet.py").write_text(MEET)
    with hosts_of(ipv6, "node2", change):
        tasks = ipv6.tasks("-N2 -n2 --aml-dist=pytorch", user="alice")
        assert {task.host: task.env.get("GLOO_SOCKET_IFNAME") for task in tasks} == {"node1": None, "node2": "eth0"}
        if ipv6.run("/usr/bin/python3 -c 'import torch'").status != 0:
            pytest.skip("PyTorch is not installed (Debian: python3-torch)")
        done = ipv6.run(f"srun -N2 -n2 --aml-dist=pytorch /usr/bin/python3 {workdir}/meet.py", env=TORCH_ENVIRONMENT)
    assert done.status == 0 and done.out.splitlines() == ["sum 2 node1"] * 2, str(done)


# ---- what nodes tell srun ----


def test_who_failed_first_is_told(either):
    done = either.run("srun -N2 -n2 --aml-dist=pytorch bash -c 'exit $((RANK * 7))'", user="alice")
    assert done.status == 7 and len(done.own_lines()) == 1, str(done)
    assert "first failure: rank 1 (local 0) on node2: exit status 7" in done.own_lines()[0], str(done)


def test_a_step_that_goes_well_says_nothing(either):
    done = either.run("srun -N2 -n4 --aml-dist=pytorch sleep 4", user="alice")
    assert done.status == 0 and not done.own_lines(), str(done)


def test_a_node_without_the_plugin_ends_the_step(either):
    assert either.devcluster("break", "node2", "no-plugin").status == 0
    try:
        done = either.run(f"srun -N2 -n2 --aml-dist=pytorch {LONG}", "alice", timeout=60)
    finally:
        assert either.devcluster("heal", "node2").status == 0
    check_ended(done, done.out + done.err)


def test_a_heterogeneous_step_gets_its_record_from_srun(either):
    done = either.run(f"srun -w node1 -n2 --aml-dist=pytorch {PROBE} : -w node2 -n1 {PROBE}", user="alice")
    tasks = read_reports(done.out)
    assert sorted((task.env["RANK"], task.host) for task in tasks) == [("0", "node1"), ("1", "node1"), ("2", "node2")], str(done)
    assert not done.own_lines(), str(done)


def test_the_ranks_are_asked_to_stop(either):
    """Nodes ask srun how long it is until then."""
    wait = "bash -c 'until [ -e $AMLDIST_STOP_FILE ]; do sleep 0.1; done; echo stops'"
    done = either.run(f"srun -N2 -n2 --time=2 --aml-dist=pytorch,stop=115 {wait}", user="alice", timeout=60)
    assert done.status == 0 and done.out.split() == ["stops"] * 2, str(done)
    assert len(done.own_lines()) == 1 and "stop: the ranks are asked to stop" in done.own_lines()[0], str(done)
