"""order=topology: a step whose hosts are along the switches runs, another is refused; aml-dist order writes the host file."""

import os
import re
import shlex

import pytest
from cluster import Cluster, release_of
from conftest import NAME, PLUGIN, RELEASE

TOOL = os.environ.get("AMLDIST_TOOL", "")
# Nodes of a leaf switch are not neighbours by name.
CONF = ["TopologyPlugin=topology/tree", "SwitchName=s0 Nodes=node[1,3]", "SwitchName=s1 Nodes=node[2,4]", "SwitchName=top Switches=s[0-1]"]


BLOCKS = ["TopologyPlugin=topology/block", "BlockName=b1 Nodes=node[1,3]", "BlockName=b2 Nodes=node[2,4]", "BlockSizes=2"]


def start(end_of_name: str, settings: list[str]) -> Cluster:
    cluster = Cluster(f"{NAME}-{end_of_name}"[-16:].lstrip("-"), 4)
    started = cluster.devcluster("start", "--nodes", "4", "--restart", "--plugin", PLUGIN, *(word for each in settings for word in ("--conf", each)),
                                 *(["--release", RELEASE] if RELEASE else []))
    assert started.status == 0, str(started)
    return cluster


@pytest.fixture(scope="module")
def switched():
    cluster = start("tp", CONF)
    yield cluster
    assert cluster.devcluster("stop").status == 0


@pytest.fixture(scope="module")
def blocked(cluster):
    if release_of(cluster) < (23, 11):
        pytest.skip("Slurm 23.11 or later")
    started = start("bk", BLOCKS)
    yield started
    assert started.devcluster("stop").status == 0


# In an allocation hosts are by name; without one, Slurm 26.05 brings them into the network's order.
BY_NAME = "salloc -Q -N4 srun -N4 -n4 --aml-dist=pytorch,order=topology true"


def test_by_name_the_hosts_are_not_along_the_switches(switched):
    done = switched.run(BY_NAME)
    (line,) = done.own_lines()
    assert done.status == 1 and "there are 12 links between neighbouring hosts, and 8 along the switches: write a host file" in line, str(done)


def test_the_host_file_brings_them_into_order_and_ranks_stay_slurms(switched, workdir):
    hosts = workdir / "hosts"
    step = f"SLURM_HOSTFILE={hosts} srun --distribution=arbitrary --aml-dist=pytorch,order=topology"
    probe = "bash -c 'echo $RANK $SLURM_PROCID $NODE_RANK $SLURMD_NODENAME'"
    done = switched.run(f"salloc -N4 --ntasks-per-node=2 bash -c {shlex.quote(f'{TOOL} order >{hosts} && {step} {probe}')}")
    assert done.status == 0, str(done)
    assert hosts.read_text().split() == ["node1", "node1", "node3", "node3", "node2", "node2", "node4", "node4"]
    tasks = sorted(line.split() for line in done.out.splitlines())
    assert tasks == [[str(rank), str(rank), str(rank // 2), host] for rank, host in enumerate(hosts.read_text().split())], str(done)


def test_aml_run_writes_the_host_file(switched, workdir):
    probe = "bash -c 'echo $RANK $SLURM_PROCID $SLURMD_NODENAME'"
    done = switched.run(f"cd {workdir} && {os.path.dirname(TOOL)}/aml-run --kind pytorch,order=topology -N4 --ntasks-per-node=1 --wait -- {probe}")
    assert done.status == 0, str(done)
    tasks = sorted(line.split() for line in done.out.splitlines() if re.match(r"\d \d node", line))
    assert tasks == [["0", "0", "node1"], ["1", "1", "node3"], ["2", "2", "node2"], ["3", "3", "node4"]], str(done)
    assert switched.run("ls /tmp/tmp.* 2>/dev/null", on="node1").out == "", "the host file is removed"


def test_a_cluster_without_switches_says_so(cluster):
    done = cluster.run("srun -N2 -n2 --aml-dist=pytorch,order=topology true")
    (line,) = done.own_lines()
    assert done.status == 1 and "order=topology: Slurm knows no switches or blocks (scontrol show topology): drop the key" in line, str(done)


def test_explain_counts_and_draws_the_links(switched, workdir):
    saved = workdir / "topology"
    switched.run(f"scontrol show topology >{saved}")
    done = switched.run(f"{TOOL} explain --aml-dist=pytorch --nodelist 'node[1-4]' --tasks-per-node 1 --topology {saved}")
    assert "as placed:          12 links between neighbours: node1 | node2 | node3 | node4\n" in done.out, str(done)
    assert "along the switches: 8 links between neighbours: node1 node3 | node2 node4\n" in done.out, str(done)


def test_the_addresses_of_the_tasks_say_the_same(switched, workdir):
    """SLURM_TOPOLOGY_ADDR, which a task has where scontrol does not answer."""
    saved = workdir / "addresses"
    told = switched.run("srun -N4 -n4 bash -c 'echo $SLURMD_NODENAME $SLURM_TOPOLOGY_ADDR'")
    assert "node3 top.s0.node3\n" in told.out, str(told)
    saved.write_text(told.out)
    done = switched.run(f"{TOOL} explain --aml-dist=pytorch --nodelist 'node[1-4]' --tasks-per-node 1 --topology {saved}")
    assert "as placed:          12 links between neighbours: node1 | node2 | node3 | node4\n" in done.out, str(done)


def test_where_slurm_orders_the_hosts_of_a_step_ranks_follow(switched):
    """Slurm's lists are by name all the same: only the tasks tell."""
    if release_of(switched) < (26, 5):
        pytest.skip("Slurm 26.05 or later")
    probe = "bash -c 'echo $RANK $SLURM_PROCID $NODE_RANK $SLURMD_NODENAME $MASTER_ADDR $SLURM_NODELIST'"
    done = switched.run(f"srun -w node[2-4] --ntasks-per-node=1 --aml-dist=pytorch,order=topology {probe}")
    tasks = [line.split() for line in sorted(done.out.splitlines())]
    assert [task[:3] for task in tasks] == [[str(rank)] * 3 for rank in range(3)], str(done)
    assert [task[3] for task in tasks] == ["node3", "node2", "node4"] and {task[5] for task in tasks} == {"node[2-4]"}, str(done)
    (master,) = {task[4] for task in tasks}
    assert switched.run("getent ahostsv4 node3").out.split()[0] == master, str(done)


def test_blocks_are_kept_together_as_switches_are(blocked, workdir):
    done = blocked.run(BY_NAME)
    (line,) = done.own_lines()
    assert done.status == 1 and "order=topology: " in line and "along the switches: write a host file" in line, str(done)
    hosts = workdir / "hosts"
    step = f"SLURM_HOSTFILE={hosts} srun --distribution=arbitrary --aml-dist=pytorch,order=topology bash -c 'echo $RANK $SLURMD_NODENAME'"
    done = blocked.run(f"salloc -N4 --ntasks-per-node=1 bash -c {shlex.quote(f'{TOOL} order >{hosts} && {step}')}")
    assert done.status == 0, str(done)
    placed = [line.split()[1] for line in sorted(done.out.splitlines())]
    assert sorted(map(sorted, (placed[:2], placed[2:]))) == [["node1", "node3"], ["node2", "node4"]], str(done)


def test_the_addresses_of_the_tasks_name_the_blocks(blocked, workdir):
    saved = workdir / "addresses"
    saved.write_text(blocked.run("srun -N4 -n4 bash -c 'echo $SLURMD_NODENAME $SLURM_TOPOLOGY_ADDR'").out)
    done = blocked.run(f"{TOOL} explain --aml-dist=pytorch --nodelist 'node[1-4]' --tasks-per-node 1 --topology {saved}")
    assert re.search(r"along the switches: \d+ links between neighbours: node1 node3 \| node2 node4\n", done.out), f"{saved.read_text()}{done}"
