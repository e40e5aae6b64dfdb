"""What differs between the nodes of a step on a live cluster: named before its tasks start, and by aml-dist check."""

import shutil

import pytest
from cluster import readable_copy
from fabric_nodes import trees
from test_fabric import (ALL, LIBRARY, by_id, check_step, fabric, faulty_helper, four_healthy, healthy, plain_site,  # noqa: F401
                         with_gpus)

pytestmark = pytest.mark.skipif(not LIBRARY.is_file(), reason="no libibverbs headers at build time: no fake library")


def roce(mtu="9000", ecn="3"):
    """Two RoCE cards; their interfaces with this MTU, and congestion control for this priority."""
    tree = trees.roce()

    def settings(sys, dev):
        for interface in ("ens0", "ens1"):
            trees.write(sys / "class/net" / interface / "mtu", mtu)
            for kind in ("roce_np", "roce_rp"):
                for priority in "01234567":
                    trees.write(sys / f"class/net/{interface}/ecn/{kind}/enable/{priority}", str(int(priority == ecn)))

    tree.after.append(settings)
    return tree


def of_infiniband(change):
    def tree():
        node = healthy()
        change(node)
        return node
    return tree


def older_firmware(node):
    for device in node.devices:
        device.fw_ver = "28.37.1014"


def older_driver(node):
    node.modules["mlx5_core"] = "23.10"


@pytest.mark.parametrize("usual, other, says", [
    (healthy, of_infiniband(older_firmware), ("ib.fw", "node3 has firmware 28.37.1014, 3 nodes have 28.41.1000 (node1)")),
    (healthy, of_infiniband(older_driver), ("ib.fw", "node3 has RDMA driver 23.10, 3 nodes have 24.04 (node1)")),
    (roce, lambda: roce(mtu="1500"), ("roce.mtu", "node3 has MTU 1500, 3 nodes have 9000 (node1)")),
    (roce, lambda: roce(ecn="5"), ("roce.qos", "node3 has flow control", "ECN 5", "ECN 3")),
], ids=["firmware", "driver of the cards", "MTU", "congestion control"])
def test_nodes_that_differ_are_named_before_a_program_starts(cluster, fabric, usual, other, says):
    for node in ALL:
        fabric.lay(node, other() if node == "node3" else usual())
    for policy in ("require", "prefer"):
        done = cluster.run(f"srun -N4 -n8 --aml-dist=pytorch,rdma={policy} echo started", env=fabric.environment())
        assert done.status == 0 and done.out.split() == ["started"] * 8, str(done)
        assert len(done.own_lines()) == 1 and "the nodes differ: " in done.own_lines()[0], str(done)
        assert all(word in done.own_lines()[0] for word in says), str(done)
    done = cluster.run("srun -w node[1-2] -N2 -n2 --aml-dist=pytorch,rdma=require true", env=fabric.environment())
    assert done.status == 0 and not done.own_lines(), str(done)


@pytest.mark.parametrize("priorities, says", [("8", None), ("0", "node2 has flow control PFC none"), ("48", "node2 has flow control PFC 4+5")])
def test_priority_flow_control_that_differs_is_named(cluster, fabric, workdir, plain_site, priorities, says):
    """The kernel of a node without such cards says nothing of it: fake_dcb.c answers in its place, on each node its own."""
    library = LIBRARY.parent / "libfake_dcb.so"
    for node in ALL:
        fabric.lay(node, roce())
    faulty_helper(cluster, workdir, "*", f"export LD_PRELOAD={readable_copy(library)} FAKE_DCB_PRIORITIES=8; "
                                         f"[[ $SLURMD_NODENAME != node2 ]] || export FAKE_DCB_PRIORITIES={priorities}")
    done = cluster.run("srun -N4 -n4 --aml-dist=pytorch,rdma=require true", env=fabric.environment())
    assert done.status == 0, str(done)
    if says is None:
        assert not done.own_lines(), str(done)
    else:
        assert len(done.own_lines()) == 1 and says in done.own_lines()[0] and "3 nodes have PFC 3" in done.own_lines()[0], str(done)


@pytest.mark.parametrize("rdma, health", [("off", "require"), ("require", "prefer"), ("off", "prefer")])
@pytest.mark.parametrize("fault, says", [
    ("export FAKE_NVML_DRIVER=535.161.08", ("gpu.count", "node2 has GPU driver 535.161.08, 3 nodes have 550.90.07 (node1)")),
    ("export FAKE_NVML_DOMAIN=8", ("gpu.fabric", "node2 has NVLink domain and clique 0808", "3 nodes have 0707", "one rack")),
    ("export FAKE_NVML_DOMAIN=0", ("gpu.fabric", "node2 has NVLink domain and clique none", "3 nodes have 0707")),
    ("export FAKE_NVML_CLIQUE=0:5,1:5,2:5,3:5,4:5,5:5,6:5,7:5", ("gpu.fabric", "node2 has NVLink domain and clique 0707", "/5, 3 nodes"))],
    ids=["driver", "domain", "no domain", "clique"])
def test_gpus_of_another_driver_or_nvlink_domain_are_named(cluster, four_healthy, workdir, plain_site, rdma, health, fault, says):
    faulty_helper(cluster, workdir, "node2", fault)
    env = four_healthy.environment(**with_gpus(), FAKE_NVML_DOMAIN="7")
    done = cluster.run(f"srun -N4 -n4 --aml-dist=pytorch,rdma={rdma},health={health} echo started", env=env)
    assert done.status == 0 and done.out.split() == ["started"] * 4, str(done)
    lines = [line for line in done.own_lines() if "gpu.imex" not in line]  # no channel on a machine without GPUs
    assert len(lines) == 1 and "the nodes differ: " in lines[0] and all(word in lines[0] for word in says), str(done)


def test_another_verbs_library_on_one_node_is_named(cluster, four_healthy, workdir, plain_site):
    other = workdir / "libibverbs.so.1.11.32"
    shutil.copy(four_healthy.verbs, other)
    faulty_helper(cluster, workdir, "node2", f"export AMLDIST_LIBIBVERBS={other}")
    done = cluster.run("srun -N4 -n4 --aml-dist=pytorch,rdma=require true", env=four_healthy.environment())
    assert done.status == 0 and len(done.own_lines()) == 1, str(done)
    assert "ib.provider: node2 has verbs library libibverbs.so.1.11.32, 3 nodes have" in done.own_lines()[0], str(done)


def test_a_card_that_only_the_other_nodes_have_is_missed_without_any_table(cluster, fabric, workdir):
    """No SKU says how many there should be; the other nodes do."""
    for node in ALL:
        tree = healthy()
        if node == "node3":
            tree.devices = [device for device in tree.devices if device.name != "mlx5_ib1"]
        fabric.lay(node, tree)
    done = cluster.run(f"srun -N4 -n4 --aml-dist=pytorch,rdma=require touch {workdir}/ran", env=fabric.environment())
    assert done.status != 0 and not (workdir / "ran").exists(), str(done)
    assert len(done.own_lines()) == 1 and "rdma=require failed between nodes: ib.count: node3 has ports 1" in done.own_lines()[0], str(done)
    done = cluster.run("srun -N4 -n4 --aml-dist=pytorch,rdma=prefer bash -c 'echo ${NCCL_IB_DISABLE:-unset}'",
                       env=fabric.environment())
    assert done.status == 0 and done.out.split() == ["1"] * 4 and len(done.own_lines()) == 1, str(done)
    assert "uses sockets" in done.own_lines()[0] and "node3 has ports 1" in done.own_lines()[0], str(done)


@pytest.mark.parametrize("usual, other, check, says", [
    (roce, lambda: roce(mtu="1500"), "roce.mtu", "node3 has MTU 1500, 3 nodes have 9000 (node1)"),
    (roce, lambda: roce(ecn="5"), "roce.qos", "node3 has flow control"),
    (healthy, of_infiniband(older_driver), "ib.fw", "node3 has RDMA driver 23.10, 3 nodes have 24.04 (node1)"),
], ids=["MTU", "congestion control", "driver of the cards"])
def test_settings_and_versions_that_differ_are_named_by_the_check_of_a_step(cluster, fabric, workdir, usual, other, check, says):
    for node in ALL:
        fabric.lay(node, other() if node == "node3" else usual())
    done, report = check_step(cluster, fabric, workdir)
    found = by_id(report)[check]
    assert done.status == 0 and found["verdict"] == "warn" and says in found["evidence"], str(done)
    assert all(node["verdict"] == "pass" for node in report["nodes"]), "no node is wrong by itself"
