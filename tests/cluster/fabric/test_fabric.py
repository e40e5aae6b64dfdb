"""rdma=require|prefer|off on a live cluster: what a sick node does to its step, and what the tasks are told."""

import json
import os
import pathlib
import shutil
import time

import pytest
from cluster import BUILD, READABLE, readable_copy
from fabric_nodes import FabricatedNodes, trees
from late_step import late_step

PLUGIN = os.environ.get("AMLDIST_PLUGIN", "")
LIBRARY = BUILD / "lib/tests/libfake_verbs.so"
TOOL = os.environ.get("AMLDIST_TOOL", "")
ALL = ["node1", "node2", "node3", "node4"]
EXACT = "=mlx5_ib0:1,mlx5_ib1:1"
pytestmark = pytest.mark.skipif(not LIBRARY.is_file(), reason="no libibverbs headers at build time: no fake library")


def healthy():
    return trees.azure(2, "400 Gb/sec (4X NDR)", 0)


def cable_out():
    tree = healthy()
    tree.port(1).state, tree.port(1).phys_state = "1: DOWN", "2: Polling"
    return tree


@pytest.fixture
def fabric(cluster):
    nodes = FabricatedNodes(cluster, LIBRARY)
    yield nodes
    nodes.close()


@pytest.fixture
def four_healthy(fabric):
    for node in ALL:
        fabric.lay(node, healthy())
    return fabric


@pytest.fixture
def one_sick(fabric):
    """node3's second cable is out."""
    for node in ALL:
        fabric.lay(node, cable_out() if node == "node3" else healthy())
    return fabric


def site(cluster, arguments=""):
    done = cluster.devcluster("plugin", PLUGIN, arguments)
    assert done.status == 0, str(done)


def test_require_on_healthy_nodes_starts_the_step_and_names_the_ports(cluster, four_healthy):
    tasks = cluster.tasks("-N4 -n8 --aml-dist=pytorch,rdma=require", env=four_healthy.environment())
    assert len(tasks) == 8
    for task in tasks:
        assert task.env["NCCL_IB_HCA"] == EXACT
        assert "NCCL_IB_DISABLE" not in task.env and "NCCL_IB_GID_INDEX" not in task.env


def test_what_the_user_has_set_stays(cluster, four_healthy):
    tasks = cluster.tasks("-N2 -n2 --aml-dist=pytorch,rdma=require",
                          env=four_healthy.environment(NCCL_IB_HCA="mlx5_ib1"))
    assert [task.env["NCCL_IB_HCA"] for task in tasks] == ["mlx5_ib1"] * 2


def test_require_with_one_sick_node_ends_the_step_before_a_program_starts(cluster, one_sick, workdir):
    began = time.monotonic()
    done = cluster.run(f"srun -N4 -n8 --aml-dist=pytorch,rdma=require bash -c 'touch {workdir}/$SLURM_PROCID; sleep 60'",
                       env=one_sick.environment())
    assert done.status != 0, str(done)
    assert time.monotonic() - began < 30
    lines = done.own_lines()
    assert len(lines) == 1, str(done)
    for word in ("rdma=require", "node3", "ib.state", "mlx5_ib1:1", "1: DOWN", "cable"):
        assert word in lines[0], lines[0]
    assert list(workdir.iterdir()) == []


def test_prefer_with_one_sick_node_moves_the_whole_step_to_sockets_and_says_so_once(cluster, one_sick):
    done = cluster.run("srun -N4 -n8 --aml-dist=pytorch,rdma=prefer bash -c "
                       "'echo $SLURM_PROCID ${NCCL_IB_DISABLE:-unset} ${UCX_TLS:-unset} ${NCCL_IB_HCA:-unset}'",
                       env=one_sick.environment())
    assert done.status == 0, str(done)
    told = sorted(line.split(" ", 1) for line in done.out.splitlines())
    assert [rank for rank, _ in told] == [str(rank) for rank in range(8)]
    assert {rest for _, rest in told} == {"1 tcp,sm,self unset"}, str(done)
    lines = done.own_lines()
    assert len(lines) == 1 and "rdma=prefer" in lines[0] and "node3" in lines[0] and "ib.state" in lines[0], str(done)


def test_prefer_on_healthy_nodes_says_nothing(cluster, four_healthy):
    done = cluster.run("srun -N4 -n4 --aml-dist=pytorch,rdma=prefer bash -c 'echo ${NCCL_IB_HCA:-unset}'",
                       env=four_healthy.environment())
    assert done.status == 0 and done.out.split() == [EXACT] * 4 and not done.own_lines(), str(done)


def test_off_looks_at_nothing(cluster, one_sick):
    # grep fails where it counts 0, which is what is wanted.
    done = cluster.run("srun -N4 -n4 --aml-dist=pytorch,rdma=off bash -c 'env | grep -c -e NCCL_ -e UCX_ || true'",
                       env=one_sick.environment())
    assert done.status == 0 and done.out.split() == ["0"] * 4 and not done.own_lines(), str(done)


def test_without_any_device_require_fails_and_prefer_falls_back(cluster):
    done = cluster.run("srun -N1 -n1 --aml-dist=pytorch,rdma=require true")
    lines = done.own_lines()
    assert done.status != 0 and len(lines) == 1, str(done)
    for word in ("node1", "ib.sysfs", "no device", "rdma=off"):
        assert word in lines[0], lines[0]
    done = cluster.run("srun -N2 -n2 --aml-dist=pytorch,rdma=prefer bash -c 'echo $NCCL_IB_DISABLE'")
    assert done.status == 0 and done.out.split() == ["1", "1"] and len(done.own_lines()) == 1, str(done)

@pytest.mark.parametrize("policy", ["prefer", "off"])
def test_a_login_shells_limit_of_locked_memory_does_not_reach_tasks_that_want_rdma(cluster, policy):
    """Each registration would fail because of it, though slurmd's own limit, which the node was judged by, is high enough."""
    done = cluster.run(f"ulimit -S -l 64; srun --propagate=MEMLOCK -N2 -n4 -O --aml-dist=pytorch,rdma={policy} bash -c "
                       "'echo limits $(ulimit -Sl) $(ulimit -Hl)'", user="alice")
    limits = [line.split()[1:] for line in done.out.splitlines() if line.startswith("limits ")]
    assert done.status == 0 and len(limits) == 4 and len({hard for _, hard in limits}) == 1 and limits[0][1] != "64", str(done)
    assert all(soft == (hard if policy == "prefer" else "64") for soft, hard in limits), str(done)


def test_the_task_part_judges_in_the_users_context(cluster, fabric):
    """root may open and lock what alice may not."""
    for node in ALL[:2]:
        fabric.lay(node, healthy())
    assert cluster.run("chmod 600 /dev/infiniband/uverbs1", on="node2").status == 0
    done = cluster.run("srun -N2 -n2 --aml-dist=pytorch,rdma=require true", user="alice", env=fabric.environment())
    lines = done.own_lines()
    assert done.status != 0 and len(lines) == 1, str(done)
    assert any("node2" in line and "ib.devnode" in line and "Permission denied" in line for line in lines), str(done)


def test_the_instance_type_of_a_job_file_asks_for_the_fabric(cluster, one_sick, workdir):
    """aml-run, the administrator's table and the plugin: the job does not start beside the faulty node, and else it does."""
    if not (READABLE / "aml-run").is_file():
        pytest.skip("aml-run was not built (no yaml-cpp)")
    (workdir / "table.yml").write_text("instance_types: {Standard_IB: {infiniband: require}}\n")
    (workdir / "job.yml").write_text("command: echo started $RANK\ndistribution: {type: pytorch}\n"
                                     "resources: {instance_count: 2, instance_type: Standard_IB}\n")
    run = f"cd {workdir} && {READABLE}/aml-run --instance-types table.yml --wait job.yml --nodelist="
    refused = cluster.run(run + "node[3-4]", env=one_sick.environment(FAKE_VERBS_SHARED=str(workdir)))
    assert refused.status != 0 and "started" not in refused.out, str(refused)
    assert [line for line in refused.own_lines() if "rdma=require" in line and "node3" in line and "ib.state" in line]
    verified = cluster.run(run + "node[1-2]", env=one_sick.environment(FAKE_VERBS_SHARED=str(workdir)))
    assert verified.status == 0 and {"started 0", "started 1"} <= set(verified.out.splitlines()), str(verified)


def test_verbs_that_hang_or_fail_are_named(cluster, four_healthy):
    done = cluster.run("srun -N1 -n1 --aml-dist=pytorch,rdma=require true",
                       env=four_healthy.environment(FAKE_VERBS_FAIL="rtr:110"))
    assert done.status != 0 and any("ib.loopback" in line and "RTR" in line for line in done.own_lines()), str(done)
    done = cluster.run("srun -N1 -n1 --aml-dist=pytorch,rdma=require true",
                       env=four_healthy.environment(FAKE_VERBS_FAIL="reg_mr:12"))
    assert done.status != 0 and any("ib.memlock" in line and "MEMLOCK" in line for line in done.own_lines()), str(done)


def test_nodes_of_two_partition_keys_are_told_apart(cluster, fabric):
    fabric.lay("node1", healthy())
    other = healthy()
    for index in range(3):
        other.port(index).pkeys = {0: "0x8022", 1: "0x7fff"}
    fabric.lay("node2", other)
    done = cluster.run("srun -w node[1-2] -N2 -n2 --aml-dist=pytorch,rdma=require true", env=fabric.environment())
    lines = done.own_lines()
    assert done.status != 0 and len(lines) == 1, str(done)
    for word in ("0x0018", "0x0022", "node1", "node2"):
        assert word in lines[0], lines[0]


def test_the_sites_policy_counts_and_lowering_it_is_told(cluster, one_sick):
    site(cluster, "rdma=require")
    try:
        done = cluster.run("srun -N4 -n4 --aml-dist=pytorch true", env=one_sick.environment())
        assert done.status != 0 and any("node3" in line for line in done.own_lines()), str(done)
        done = cluster.run("srun -N4 -n4 --aml-dist=pytorch,rdma=off true", env=one_sick.environment())
        assert done.status == 0 and len(done.own_lines()) == 1 and "lowers" in done.own_lines()[0], str(done)
        assert not cluster.run("srun -N4 -n4 true").own_lines()
        partition = cluster.run("sinfo -h -o %R").out.split()[0]
        site(cluster, f"rdma=require rdma.{partition}=off")
        assert not cluster.run("srun -N4 -n4 --aml-dist=pytorch true", env=one_sick.environment()).own_lines()
    finally:
        site(cluster)


# ------------------------------------------------------------------------------------- the writes between nodes at launch


def faulty_helper(cluster, workdir, node, fault):
    """aml-dist as the plugin's helper; on one node `fault`, a line of bash, comes before it."""
    helper = workdir / "helper"
    helper.write_text(f"#!/bin/bash\n[[ $SLURMD_NODENAME != {node} ]] || {{ {fault}; }}\nexec {TOOL} \"$@\"\n")
    helper.chmod(0o755)
    site(cluster, f"rdma_helper={helper}")


@pytest.fixture
def plain_site(cluster):
    yield
    site(cluster)


ONLY_BETWEEN = "export FAKE_VERBS_LOSE_FAR=1"  # a loopback goes well


@pytest.mark.parametrize("pairs", ["ring", "log", "all"])
def test_the_nodes_write_to_each_other_before_any_program(cluster, four_healthy, pairs):
    done = cluster.run(f"srun -N4 -n4 --aml-dist=pytorch,rdma=require,rdma_pairs={pairs} echo started",
                       env=four_healthy.environment())
    assert done.status == 0 and done.out.split() == ["started"] * 4 and not done.own_lines(), str(done)


@pytest.mark.parametrize("pairs, ways", [("", ["node2 -> node3"]), (",rdma_pairs=log", ["node2 -> node1", "node2 -> node4"])])
def test_a_fabric_that_answers_and_does_not_carry_is_refused_for_any_program(
        cluster, four_healthy, workdir, plain_site, pairs, ways):
    faulty_helper(cluster, workdir, "node2", ONLY_BETWEEN)
    began = time.monotonic()
    done = cluster.run(f"srun -N4 -n8 --aml-dist=pytorch,rdma=require{pairs} touch {workdir}/ran",
                       env=four_healthy.environment())
    assert done.status != 0 and not (workdir / "ran").exists() and time.monotonic() - began < 30, str(done)
    lines = done.own_lines()
    assert len(lines) == 1 and "rdma=require failed between nodes: ib.pair: " in lines[0], str(done)
    assert any(way in lines[0] for way in ways) and "did not arrive" in lines[0], str(done)


def test_the_pairs_can_be_switched_off_and_lowering_them_is_told(cluster, four_healthy, workdir, plain_site):
    faulty_helper(cluster, workdir, "node2", ONLY_BETWEEN)
    command = "srun -N4 -n4 --aml-dist=pytorch,rdma=require,rdma_pairs=off true"
    done = cluster.run(command, env=four_healthy.environment())
    assert done.status == 0 and not done.own_lines(), str(done)
    site(cluster, f"rdma_helper={workdir}/helper rdma=require")
    done = cluster.run(command, env=four_healthy.environment())
    assert done.status == 0 and len(done.own_lines()) == 1 and "rdma_pairs=off lowers" in done.own_lines()[0], str(done)
    site(cluster, f"rdma_helper={workdir}/helper rdma=require rdma_pairs=off")
    done = cluster.run("srun -N4 -n4 --aml-dist=pytorch true", env=four_healthy.environment())
    assert done.status == 0 and not done.own_lines(), str(done)


def test_prefer_writes_between_nodes_where_the_site_wants_it(cluster, four_healthy, workdir, plain_site):
    faulty_helper(cluster, workdir, "node2", ONLY_BETWEEN)
    command = "srun -N4 -n4 --aml-dist=pytorch,rdma=prefer bash -c 'echo ${NCCL_IB_DISABLE:-unset}'"
    done = cluster.run(command, env=four_healthy.environment())
    assert done.out.split() == ["unset"] * 4 and not done.own_lines(), str(done)
    site(cluster, f"rdma_helper={workdir}/helper rdma_pairs=ring")
    done = cluster.run(command, env=four_healthy.environment())
    assert done.status == 0 and done.out.split() == ["1"] * 4 and len(done.own_lines()) == 1, str(done)
    assert "node2 -> node3" in done.own_lines()[0], str(done)


@pytest.mark.parametrize("fault, says, seconds", [
    ("exit 1", ("node2", "ib.helper", "printed no result"), 30),
    ("kill -KILL $$", ("node2", "ib.helper", "printed no result: signal 9"), 30),
    ("exec sleep 600", ("node2",), 75)])
def test_a_helper_that_dies_or_hangs_refuses_the_step_in_a_sentence(
        cluster, four_healthy, workdir, plain_site, fault, says, seconds):
    faulty_helper(cluster, workdir, "node2", fault)
    began = time.monotonic()
    done = cluster.run(f"srun -N4 -n4 --aml-dist=pytorch,rdma=require touch {workdir}/ran",
                       env=four_healthy.environment(), timeout=120)
    assert done.status != 0 and not (workdir / "ran").exists() and time.monotonic() - began < seconds, str(done)
    assert 1 <= len(done.own_lines()) <= 2, str(done)
    assert any(all(word in line for word in says) for line in done.own_lines()), str(done)


def test_a_task_that_dies_while_it_verifies_its_node_ends_the_step(cluster, four_healthy, workdir, plain_site):
    """The node's other task waits for its result, and the other node for their vote."""
    faulty_helper(cluster, workdir, "node2", "kill -KILL $PPID")
    began = time.monotonic()
    done = cluster.run(f"srun -w node[1-2] -N2 -n4 -O --aml-dist=pytorch,rdma=require touch {workdir}/ran", env=four_healthy.environment())
    assert done.status != 0 and not (workdir / "ran").exists() and time.monotonic() - began < 30, str(done)
    why = ("a task has ended before all nodes were verified", "the task that verified this node's fabric has ended")  # whichever is first
    assert any(any(words in line for words in why) for line in done.own_lines()), str(done)


def test_a_node_that_is_verified_long_after_the_others(cluster, four_healthy, workdir):
    """By more than a node waits where srun does not answer. node1 meets only node2 and node4 in the writes between nodes."""
    with late_step(cluster, workdir, "node3", 45):
        done = cluster.run("srun -N4 -n4 --aml-dist=pytorch,rdma=require echo started", env=four_healthy.environment())
    assert done.status == 0 and done.out.split() == ["started"] * 4, str(done)
    (line,) = done.own_lines()
    assert "3 of 4 nodes wait to write to each other" in line, str(done)


def test_a_helper_that_the_steps_end_kills_is_not_told_beside_the_cause(cluster, one_sick, workdir, plain_site):
    faulty_helper(cluster, workdir, "node2", "sleep 1; kill -KILL $$")
    done = cluster.run(f"srun -N4 -n4 --aml-dist=pytorch,rdma=require touch {workdir}/ran", env=one_sick.environment())
    assert done.status != 0 and not (workdir / "ran").exists(), str(done)
    assert len(done.own_lines()) == 1 and "node3: ib.state" in done.own_lines()[0], str(done)


# ------------------------------------------------------------------------------------------------------- health= at launch

NVML = LIBRARY.parent / "libfake_nvml.so"


def with_gpus():
    return {"AMLDIST_NVML": str(readable_copy(NVML)), "FAKE_NVML_GPUS": "8"}


@pytest.mark.parametrize("rdma", ["", ",rdma=require"])
def test_a_sick_gpu_on_one_node_ends_the_step_under_health_require(cluster, four_healthy, workdir, plain_site, rdma):
    env = four_healthy.environment(**with_gpus())
    command = f"srun -N4 -n4 --aml-dist=pytorch,health=require{rdma} touch {workdir}/ran"
    faulty_helper(cluster, workdir, "nobody", "true")
    done = cluster.run(command, env=env)
    assert done.status == 0 and (workdir / "ran").exists() and not done.own_lines(), str(done)
    (workdir / "ran").unlink()
    faulty_helper(cluster, workdir, "node2", "export FAKE_NVML_ECC=2:3")
    done = cluster.run(command, env=env)
    assert done.status != 0 and not (workdir / "ran").exists(), str(done)
    assert len(done.own_lines()) == 1, str(done)
    for word in ("health=require failed on node2: gpu.ecc", "GPU 2", "3 uncorrectable"):
        assert word in done.own_lines()[0], str(done)


def test_health_prefer_says_it_and_starts(cluster, four_healthy, workdir, plain_site):
    faulty_helper(cluster, workdir, "node2", "export FAKE_NVML_ECC=2:3")
    site(cluster, f"rdma_helper={workdir}/helper health=prefer")
    done = cluster.run("srun -N4 -n4 --aml-dist=pytorch echo started", env=four_healthy.environment(**with_gpus()))
    assert done.status == 0 and done.out.split() == ["started"] * 4 and len(done.own_lines()) == 1, str(done)
    assert "health=prefer on node2: gpu.ecc" in done.own_lines()[0], str(done)


def test_a_sick_gpu_refuses_a_step_that_prefers_rdma(cluster, four_healthy, workdir, plain_site):
    """Sockets would not help it: the other nodes do not start either."""
    faulty_helper(cluster, workdir, "node2", "export FAKE_NVML_ECC=2:3")
    done = cluster.run(f"srun -N4 -n4 --aml-dist=pytorch,rdma=prefer,health=require touch {workdir}/ran",
                       env=four_healthy.environment(**with_gpus()))
    assert done.status != 0 and not (workdir / "ran").exists(), str(done)
    assert any("health=require failed on node2: gpu.ecc" in line for line in done.own_lines()), str(done)


PROGRAM = LIBRARY.parent / "fabric_world"


def world_step(cluster, fabric, workdir, wrap, policy):
    """A program on libdist over two nodes; what a rank says: "STATUS NCCL_IB_DISABLE UCX_TLS | reason"."""
    for file in (PROGRAM, PROGRAM.parents[1] / "libamldist.so.0"):
        shutil.copy(file, workdir / file.name)
    return cluster.run(f"srun -w node[1-2] -N2 -n4 --aml-dist=pytorch,rdma={policy} {wrap} {workdir}/fabric_world",
                       env=fabric.environment(FAKE_VERBS_SHARED=str(workdir), LD_LIBRARY_PATH=str(workdir)))


def lose_on_node2(workdir):
    """node2's writes are lost once the program runs; its loopback at launch went well."""
    wrap = workdir / "wrap"
    wrap.write_text("#!/bin/bash\n[[ $SLURMD_NODENAME != node2 ]] || export FAKE_VERBS_LOSE=1\nexec \"$@\"\n")
    wrap.chmod(0o755)
    return wrap


def test_a_program_on_libdist_verifies_between_the_nodes_by_the_steps_policy(cluster, four_healthy, workdir):
    done = world_step(cluster, four_healthy, workdir, "", "require")
    assert done.status == 0 and done.out.splitlines() == ["0 - - | -"] * 4, str(done)
    done = world_step(cluster, four_healthy, workdir, lose_on_node2(workdir), "require")
    assert done.status != 0 and len(done.out.splitlines()) == 4, str(done)
    for line in done.out.splitlines():
        assert "rdma=require" in line and "ib.pair: node2 -> node1" in line, str(done)
    done = world_step(cluster, four_healthy, workdir, lose_on_node2(workdir), "prefer")
    assert done.status == 0 and done.out.splitlines() == ["0 1 tcp,sm,self | -"] * 4, str(done)
    assert len(done.own_lines()) == 1 and "node2 -> node1" in done.own_lines()[0], str(done)
    done = world_step(cluster, four_healthy, workdir, lose_on_node2(workdir), "off")
    assert done.status == 0 and done.out.splitlines() == ["0 - - | -"] * 4 and not done.own_lines(), str(done)


def test_aml_run_verifies_all_nodes_before_the_program(cluster, four_healthy, workdir):
    tool = pathlib.Path(TOOL).with_name("aml-run")
    command = f"{tool} --kind pytorch,rdma=require -N2 --tasks-per-node 1 --chdir {workdir} --wait -- touch {workdir}/ran"
    done = cluster.run(command, env=four_healthy.environment(FAKE_VERBS_SHARED=str(workdir)))
    assert done.status == 0 and (workdir / "ran").exists(), str(done)
    (workdir / "ran").unlink()
    done = cluster.run(command, env=four_healthy.environment(FAKE_VERBS_SHARED=str(workdir), FAKE_VERBS_LOSE="1"))
    assert done.status != 0 and not (workdir / "ran").exists(), str(done)
    assert any("rdma=require failed: ib.pair" in line for line in done.own_lines()), str(done)


@pytest.fixture
def features(cluster):
    """Gives nodes features, and takes them back."""
    given = []

    def give(nodes, names):
        given.append(nodes)
        done = cluster.run(f"scontrol update NodeName={nodes} AvailableFeatures={names} ActiveFeatures={names}")
        assert done.status == 0, str(done)

    yield give
    for nodes in given:
        cluster.run(f"scontrol update NodeName={nodes} AvailableFeatures= ActiveFeatures=")
    site(cluster)


def test_a_feature_of_the_nodes_asks_for_verification(cluster, one_sick, features):
    features("node[1-4]", "fast,ib")
    site(cluster, "rdma.feature.ib=require")
    done = cluster.run("srun -N4 -n4 --aml-dist=pytorch,verbose true", env=one_sick.environment())
    assert done.status != 0, str(done)
    assert any("rdma=require by rdma.feature.ib=" in line for line in done.own_lines()), str(done)
    assert any("node3" in line and "ib.state" in line for line in done.own_lines()), str(done)
    done = cluster.run("srun -N4 -n4 --aml-dist=pytorch,rdma=off true", env=one_sick.environment())
    assert done.status == 0 and len(done.own_lines()) == 1, str(done)
    assert "lowers the site's rdma.feature.ib=require" in done.own_lines()[0], str(done)
    partition = cluster.run("sinfo -h -o %R").out.split()[0]
    site(cluster, f"rdma.feature.ib=require rdma.{partition}=off")
    assert not cluster.run("srun -N4 -n4 --aml-dist=pytorch true", env=one_sick.environment()).own_lines()


def test_one_node_with_the_feature_decides_for_the_whole_step(cluster, one_sick, features):
    features("node1", "ib")
    site(cluster, "rdma.feature.ib=prefer")
    done = cluster.run("srun -N4 -n4 --aml-dist=pytorch bash -c 'echo ${NCCL_IB_DISABLE:-unset}'",
                       env=one_sick.environment())
    assert done.status == 0 and done.out.split() == ["1"] * 4, str(done)
    assert len(done.own_lines()) == 1 and "node3" in done.own_lines()[0], str(done)
    done = cluster.run("srun -w node[2-3] -N2 -n2 --aml-dist=pytorch bash -c 'echo ${NCCL_IB_DISABLE:-unset}'",
                       env=one_sick.environment())
    assert done.out.split() == ["unset"] * 2 and not done.own_lines(), "neither has the feature: " + str(done)


def test_a_feature_says_what_a_node_should_have_and_a_sku_may_have_a_policy(cluster, four_healthy, features):
    features("node2", "Standard_ND96isr_H100_v5")
    features("node4", "small")
    command = "--aml-dist=pytorch true"
    site(cluster, "rdma.sku.ND96isr_H100_v5=require")
    done = cluster.run(f"srun -w node[1-2] -N2 -n2 {command}", env=four_healthy.environment())
    assert done.status != 0 and len(done.own_lines()) == 1, str(done)
    assert "node2" in done.own_lines()[0] and "ib.count" in done.own_lines()[0], str(done)
    site(cluster, "rdma=require rdma_sku.feature.small=ND96asr_v4")
    done = cluster.run(f"srun -w node[3-4] -N2 -n2 {command}", env=four_healthy.environment())
    assert len(done.own_lines()) == 1 and "node4" in done.own_lines()[0], str(done)


def test_without_the_helper_require_is_refused(cluster, four_healthy):
    site(cluster, "rdma_helper=/nonexistent/aml-dist")
    try:
        done = cluster.run("srun -N1 -n1 --aml-dist=pytorch,rdma=require true", env=four_healthy.environment())
        assert done.status != 0 and len(done.own_lines()) == 1, str(done)
        assert "/nonexistent/aml-dist" in done.own_lines()[0] and "rdma_helper" in done.own_lines()[0], str(done)
    finally:
        site(cluster)


def test_the_sites_sku_is_expected(cluster, four_healthy):
    site(cluster, "rdma=require rdma_sku=Standard_ND96isr_H100_v5")
    try:
        done = cluster.run("srun -N1 -n1 --aml-dist=pytorch true", env=four_healthy.environment())
        assert done.status != 0 and any("ib.count" in line and "has 8" in line for line in done.own_lines()), str(done)
    finally:
        site(cluster)


# ------------------------------------------------------------------------------------------------- srun aml-dist check


def check_step(cluster, fabric, workdir, arguments="", srun="", **more):
    """`srun aml-dist check --json` over four nodes; registered memory lies in files that all nodes see."""
    done = cluster.run(f"srun -N4 --ntasks-per-node=1 {srun} {TOOL} check --json --policy require --timeout 8 {arguments}",
                       env=fabric.environment(FAKE_VERBS_SHARED=str(workdir), **more))
    start = done.out.find("{")
    return done, json.JSONDecoder().raw_decode(done.out[start:])[0] if start >= 0 else {}


def by_id(report):
    return {check["id"]: check for check in report["checks"]}


def test_a_step_of_healthy_nodes_is_verified_with_writes_between_them(cluster, four_healthy, workdir):
    done, report = check_step(cluster, four_healthy, workdir, "--pairs")
    assert done.status == 0, str(done)
    assert report["verdict"] == "pass" and [node["node"] for node in report["nodes"]] == ALL
    pair = by_id(report)["ib.pair"]
    assert pair["verdict"] == "pass" and "node1 -> node2 over mlx5_ib0:1" in pair["evidence"], pair


def test_bandwidth_is_measured_on_request_and_compared_with_the_rate(cluster, four_healthy, workdir):
    done, report = check_step(cluster, four_healthy, workdir, "--bandwidth")
    pair = by_id(report)["ib.pair"]
    assert done.status == 1, "files are no 400 Gb/s: " + str(done)
    assert pair["verdict"] == "fail" and "Gb/s, expected 360" in pair["evidence"], pair


def on_one_node(workdir, node, variable):
    """A command before the tool that sets a variable on that node only."""
    wrap = workdir / "wrap"
    wrap.write_text(f"#!/bin/bash\n[[ $SLURMD_NODENAME != {node} ]] || export {variable}\nexec \"$@\"\n")
    wrap.chmod(0o755)
    return str(wrap)


def test_a_slow_node_is_found_and_its_name_is_for_exclude(cluster, four_healthy, workdir):
    usual_write, slow_write = "300000", "1500000"  # microseconds: more than a write ever waits for a processor
    wrap = on_one_node(workdir, "node3", f"FAKE_VERBS_SLOW={slow_write}")
    done, report = check_step(cluster, four_healthy, workdir, "--bench", srun=wrap, FAKE_VERBS_SLOW=usual_write)
    bandwidth = by_id(report)["ib.bandwidth"]
    assert done.status == 1 and bandwidth["verdict"] == "fail", str(done)
    assert bandwidth["evidence"].startswith("slow: node3") and "deviations from the median" in bandwidth["evidence"], bandwidth
    slow, usual = ([each["gbps"] for each in report["measurements"] if (each["from"] == "node3") == own] for own in (True, False))
    assert len(slow) == 2 * 2 and len(usual) == 3 * 2 * 2, "two ports, to the first and to the second next node"
    assert max(slow) < min(usual)
    text = cluster.run(f"srun -N4 --ntasks-per-node=1 {wrap} {TOOL} check --policy require --timeout 8 --bench --exclude",
                       env=four_healthy.environment(FAKE_VERBS_SHARED=str(workdir), FAKE_VERBS_SLOW=usual_write))
    assert text.status == 1 and "node3" in text.out.split()[0].split(","), str(text)


def test_gpus_of_two_nodes_write_to_each_others_memory(cluster, four_healthy, workdir):
    """libfake_gpus.so is a CUDA driver whose GPUs' memory is the process's (tests/fabric/fake_gpus.c). Each write takes longer than
    one ever waits for a processor: copies between files would differ as much as sick nodes do where other programs run."""
    gpus = {"AMLDIST_CUDA": str(readable_copy(LIBRARY.parent / "libfake_gpus.so")), "FAKE_VERBS_SLOW": "700000"}
    done, report = check_step(cluster, four_healthy, workdir, "--bench", **gpus)
    check = by_id(report)["ib.gpudirect"]
    assert done.status == 0 and check["verdict"] == "pass", str(done)
    assert check["evidence"].startswith("GPU to GPU: 16 measurements"), check
    torn = on_one_node(workdir, "node3", "FAKE_CUDA_TORN=1")
    done, report = check_step(cluster, four_healthy, workdir, "--bench", srun=torn, **gpus)
    pair = by_id(report)["ib.pair"]
    assert done.status == 1 and "-> node3 over" in pair["evidence"], str(done)
    assert "byte 4096 did not arrive in the GPU's memory" in pair["evidence"] and "-> node4" not in pair["evidence"], pair
    alone = on_one_node(workdir, "node2", "AMLDIST_CUDA=/nonexistent")
    done, report = check_step(cluster, four_healthy, workdir, "--bench", srun=alone, **gpus)
    check = by_id(report)["ib.gpudirect"]
    assert check["verdict"] == "pass" and "-> node2" in check["evidence"] and "to host memory" in check["evidence"], str(done)


def test_the_record_says_how_often_a_node_was_slow(cluster, four_healthy, workdir):
    wrap = on_one_node(workdir, "node3", "FAKE_VERBS_SLOW=1500000")
    record = workdir / "record"
    record.write_text("2026-11-02T10:00:00Z\tnode3\t17.0\n2026-11-03T10:00:00Z\tnode3\t18.0\n2026-11-03T10:00:00Z\tnode3\t18.0\nnot a line\n")
    done, report = check_step(cluster, four_healthy, workdir, f"--bench --record {record}", srun=wrap, FAKE_VERBS_SLOW="300000")
    evidence = by_id(report)["ib.bandwidth"]["evidence"]
    assert done.status == 1 and evidence.startswith("node3: the 3rd time since 2026-11-02; slow: node3"), evidence
    assert len(record.read_text().splitlines()) == 5 and record.read_text().splitlines()[-1].split("\t")[1] == "node3"


def test_nothing_slow_is_nothing_to_exclude(cluster, four_healthy, workdir):
    done = cluster.run(f"srun -N2 --ntasks-per-node=1 {TOOL} check --policy require --timeout 8 --bench --exclude",
                       env=four_healthy.environment(FAKE_VERBS_SHARED=str(workdir)))
    assert done.status == 0 and not done.out.strip(), str(done)


def test_a_write_that_does_not_arrive_names_both_ends(cluster, four_healthy, workdir):
    done, report = check_step(cluster, four_healthy, workdir, srun=on_one_node(workdir, "node2", "FAKE_VERBS_LOSE=1"))
    assert done.status == 1, str(done)
    pair = by_id(report)["ib.pair"]
    assert pair["verdict"] == "fail" and "node2 -> node3" in pair["evidence"], pair
    assert "node1 -> node2" not in pair["evidence"]


def test_what_differs_between_nodes_is_named(cluster, fabric, workdir):
    for node in ALL:
        tree = healthy()
        if node == "node2":
            for index in range(2):
                tree.port(index).pkeys = {0: "0x8022", 1: "0x7fff"}
        if node == "node4":
            for index in range(2):
                tree.devices[index].fw_ver = "28.37.1014"
        fabric.lay(node, tree)
    done, report = check_step(cluster, fabric, workdir)
    checks = by_id(report)
    assert done.status == 1, str(done)
    assert checks["ib.pkey"]["verdict"] == "fail" and "node2 has P_Key 0x0022" in checks["ib.pkey"]["evidence"]
    assert checks["ib.fw"]["verdict"] == "warn" and "node4" in checks["ib.fw"]["evidence"]
    verdicts = {node["node"]: node["verdict"] for node in report["nodes"]}
    assert verdicts == {node: "pass" for node in ALL}, "no node is wrong by itself"


def test_a_sick_node_among_four_fails_the_step(cluster, one_sick, workdir):
    done, report = check_step(cluster, one_sick, workdir)
    assert done.status == 1 and {node["node"]: node["verdict"] for node in report["nodes"]}["node3"] == "fail"
    assert "node3: mlx5_ib1:1 1: DOWN" in by_id(report)["ib.state"]["evidence"], report


def test_a_node_that_never_comes_is_named_in_time(cluster, four_healthy, workdir):
    wrap = workdir / "wrap"
    wrap.write_text("#!/bin/bash\n[[ $SLURMD_NODENAME != node4 ]] || exec sleep 40\nexec \"$@\"\n")
    wrap.chmod(0o755)
    began = time.monotonic()
    done = cluster.run(f"srun -N4 --ntasks-per-node=1 {wrap} {TOOL} check --policy require --timeout 3",
                       env=four_healthy.environment(FAKE_VERBS_SHARED=str(workdir)))
    assert done.status != 0 and time.monotonic() - began < 60
    assert any("nothing from node 3" in line for line in done.own_lines()), str(done)
