"""Good citizenship: loopback names, a partition's defaults, advice that is printed once."""

import contextlib
import json
import os

import pytest
from cluster import PROBE, TORCH_ENVIRONMENT, read_reports
from oracle import check_pytorch, own_names

PLUGIN = os.environ.get("AMLDIST_PLUGIN", "")


@contextlib.contextmanager
def loopback_names(cluster, *nodes: str):
    """Nodes whose own name is 127.0.1.1 in their /etc/hosts, as a stock Debian has it."""
    try:
        for node in nodes:
            assert cluster.devcluster("break", node, "loopback-name").status == 0
        yield
    finally:
        assert cluster.devcluster("heal", "all").status == 0


@contextlib.contextmanager
def plugin_arguments(cluster, arguments: str):
    try:
        assert cluster.devcluster("plugin", PLUGIN, arguments).status == 0
        yield
    finally:
        assert cluster.devcluster("plugin", PLUGIN).status == 0


def test_gloo_is_told_its_interface_where_the_own_name_is_loopback(cluster):
    with loopback_names(cluster, "node2"):
        tasks = cluster.tasks("-w node[1-3] -N3 -n3 --aml-dist=pytorch")
        interface = cluster.run("ip -o -4 addr show scope global | awk '{print $2}'", on="node2").out.strip()
        assert {task.host: task.env.get("GLOO_SOCKET_IFNAME") for task in tasks} == {
            "node1": None, "node2": interface, "node3": None}
        chosen = cluster.tasks("-w node[1-3] -N3 -n3 --aml-dist=pytorch", env={"GLOO_SOCKET_IFNAME": "mine0"})
        assert {task.env["GLOO_SOCKET_IFNAME"] for task in chosen} == {"mine0"}


@contextlib.contextmanager
def hosts_of(cluster, node: str, change: str):
    """A node whose /etc/hosts a sed script has changed."""
    try:
        assert cluster.run(f"sed '{change}' /etc/hosts >/tmp/hosts && mount --bind /tmp/hosts /etc/hosts", on=node).status == 0
        yield
    finally:
        assert cluster.run("umount /etc/hosts", on=node).status == 0


@pytest.mark.parametrize("change", ["/node2/d", "s/^[0-9.]*\\(.*node2\\)/10.9.9.9\\1/"])
def test_gloo_is_told_its_interface_where_the_own_name_does_not_resolve_or_is_foreign(cluster, change):
    with hosts_of(cluster, "node2", change):
        tasks = cluster.tasks("-w node[1-3] -N3 -n3 --aml-dist=pytorch", user="alice")
        interface = cluster.run("ip -o -4 addr show scope global | awk '{print $2}'", on="node2").out.strip()
        assert {task.host: task.env.get("GLOO_SOCKET_IFNAME") for task in tasks} == {
            "node1": None, "node2": interface, "node3": None}


@pytest.mark.parametrize("change, said", [("/node1/d", "does not resolve on node1"), ("s/^[0-9.]*\\(.*node1\\)/10.9.9.9\\1/", "is 10.9.9.9 on node1")])
def test_a_master_name_that_leads_nowhere_at_home_is_refused(cluster, change, said):
    with hosts_of(cluster, "node1", change):
        done = cluster.run("srun -w node[1-2] -N2 -n2 --aml-dist=pytorch,master_addr=name sleep 30", timeout=20)
        assert done.status not in (0, 124), str(done)
        assert [line for line in done.own_lines() if f"MASTER_ADDR=node1 {said}, rank 0's node, so the other nodes" in line], str(done)


def test_jax_on_cpus_is_told_of_an_own_name_that_is_loopback(cluster):
    with loopback_names(cluster, "node1", "node2"):
        done = cluster.run("srun -w node[1-2] -N2 -n2 --aml-dist=jax true")
        assert done.status == 0 and len(done.own_lines()) == 1, str(done)
        assert "own name node1 is 127.0.1.1 on node1, and JAX on CPUs gives that to its peers" in done.own_lines()[0], str(done)
        assert cluster.run("srun -w node[1-2] -N2 -n2 --aml-dist=pytorch true").own_lines() == []


def test_a_master_name_outside_the_sites_network_is_refused(cluster):
    with plugin_arguments(cluster, "network=192.168.77.0/24 master_addr=name"):
        done = cluster.run("srun -w node[1-2] -N2 -n2 --aml-dist=pytorch true")
        assert done.status not in (0, 124) and "outside the site's network 192.168.77.0/24" in str(done.own_lines()), str(done)


def test_training_works_where_own_names_are_loopback(cluster):
    """Without GLOO_SOCKET_IFNAME Gloo would give its peers 127.0.1.1."""
    program = ("import os, torch, torch.distributed as d; d.init_process_group('gloo'); t = torch.ones(1);"
               "d.all_reduce(t); print('sum', int(t)); d.destroy_process_group()")
    with loopback_names(cluster, "node1", "node2"):
        done = cluster.run(f'srun -w node[1-2] -N2 -n2 --aml-dist=pytorch /usr/bin/python3 -c "{program}"', timeout=60,
                           env=TORCH_ENVIRONMENT)
    assert done.status == 0 and done.out.split() == ["sum", "2"] * 2, str(done)


def test_a_master_name_that_is_loopback_at_home_is_refused(cluster):
    with loopback_names(cluster, "node1"):
        done = cluster.run("srun -w node[1-2] -N2 -n2 --aml-dist=pytorch,master_addr=name sleep 30", timeout=20)
        assert done.status not in (0, 124), str(done)
        lines = done.own_lines()
        assert len(lines) == 1 and "127.0.1.1" in lines[0] and "master_addr=ip" in lines[0], str(done)
        alone = cluster.run("srun -w node1 -N1 -n2 --aml-dist=pytorch,master_addr=name true")
        assert alone.status == 0, "on one node loopback is fine: " + str(alone)


def test_a_partitions_default_kind(cluster, workdir):
    with plugin_arguments(cluster, "default.main=pytorch"):
        check_pytorch(cluster.tasks("-N2 -n4"))
        for task in cluster.tasks("-N2 -n2 --aml-dist=none"):
            assert own_names(task) == set()
        assert "TF_CONFIG" in cluster.tasks("-N2 -n2 --aml-dist=tensorflow")[0].env
        job = workdir / "job.sh"
        job.write_text(f"#!/bin/bash\nsrun {PROBE}\n")
        _, out = cluster.job_output(f"-N2 -n2 {job}", workdir)
        assert "AMLDIST_STAMP" in out
    with plugin_arguments(cluster, "default.other=pytorch default.main=none"):
        for task in cluster.tasks("-N2 -n2"):
            assert own_names(task) == set()


def test_mpi_without_pmix_is_told_once(cluster):
    done = cluster.run("srun -N4 -n8 --mpi=none --aml-dist=mpi true")
    assert done.status == 0 and len(done.own_lines()) == 1 and "--mpi=pmix" in done.own_lines()[0], str(done)


def test_mpi_with_pmix_is_silent(cluster, pmix):
    well = cluster.run("srun -N4 -n8 --mpi=pmix --aml-dist=mpi true")
    assert well.status == 0 and not well.own_lines(), str(well)


def test_fences_of_mpi_are_fences(cluster):
    """Slurm's default fence does not synchronize nodes (docs/decisions/0014)."""
    assert {task.env["SLURM_PMIX_FENCE"] for task in cluster.tasks("-N2 --aml-dist=mpi")} == {"ring"}
    assert "SLURM_PMIX_FENCE" not in cluster.tasks("-N1 --aml-dist=pytorch")[0].env
    chosen = cluster.run("env SLURM_PMIX_FENCE=mixed srun -N1 --aml-dist=mpi printenv SLURM_PMIX_FENCE")
    assert chosen.out == "mixed\n", "the user's word counts"


def test_gpus_that_do_not_fit_are_told_once(cluster):
    done = cluster.run("srun -N4 --ntasks-per-node=2 --export=ALL,ROCR_VISIBLE_DEVICES=0 --aml-dist=pytorch true")
    assert done.status == 0 and len(done.own_lines()) == 1 and "each task sees 1 GPU" in done.own_lines()[0], str(done)


def test_double_launch_is_refused(cluster):
    done = cluster.run("srun -N2 --ntasks-per-node=2 --aml-dist=pytorch,launch=per-node true")
    assert done.status != 0 and len(done.own_lines()) == 1 and "one launcher per node" in done.own_lines()[0], str(done)


def test_per_node_hides_what_makes_a_launcher_look_like_a_rank(cluster, pmix):
    for task in cluster.tasks("-N2 --ntasks-per-node=1 --mpi=pmix --aml-dist=pytorch,launch=per-node,nproc_per_node=3"):
        hidden = {"SLURM_NTASKS", "SLURM_NPROCS", "SLURM_STEP_ID", "PMIX_RANK", "PMIX_NAMESPACE"}
        assert not hidden & set(task.env)
        assert {"AMLDIST_HIDDEN_" + name for name in hidden} <= set(task.env)
        for kept in ("SLURM_JOB_ID", "SLURM_PROCID", "SLURM_NODEID", "SLURM_STEP_NODELIST"):
            assert kept in task.env
        assert task.env["PET_NPROC_PER_NODE"] == "3" and task.env["PET_NNODES"] == "2"
        assert not {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"} & set(task.env)


def test_multi_prog_and_pty(cluster, workdir):
    config = workdir / "multi.conf"
    config.write_text(f"0-1 {PROBE}\n2 {PROBE}\n")
    done = cluster.run(f"srun -n3 -N3 --multi-prog --aml-dist=pytorch {config}")
    check_pytorch(read_reports(done.out))
    shell = cluster.run("srun -N1 -n1 --pty --aml-dist=pytorch bash -c 'echo rank $RANK'")
    assert "rank 0" in shell.out, str(shell)


@contextlib.contextmanager
def second_network(cluster, *nodes: str):
    """ib0 with 192.168.77.N on nodeN."""
    for node in nodes:
        number = node.removeprefix("node")
        made = cluster.run(f"ip link add ib0 type veth peer name ib0peer && ip addr add 192.168.77.{number}/24 dev ib0 && ip link set ib0 up && ip link set ib0peer up", on=node)
        assert made.status == 0, str(made)
    try:
        yield
    finally:
        for node in nodes:
            cluster.run("ip link del ib0", on=node)


def test_the_sites_interface_has_the_masters_address(cluster, workdir):
    """Only rank 0's node knows it; every task of every node gets it."""
    with second_network(cluster, "node1", "node2", "node3"), plugin_arguments(cluster, "interface=ib0"):
        for layout, first in (("-w node[1-3] -N3 -n6", 1), ("-w node2 -N1 -n2", 2), ("-w node[2-3] -N2 -n4 -m cyclic", 2)):
            tasks = cluster.tasks(f"{layout} --aml-dist=pytorch")
            assert {task.env["MASTER_ADDR"] for task in tasks} == {f"192.168.77.{first}"}, layout
        hosts = workdir / "hosts"
        hosts.write_text("node3\nnode1\nnode3\n")
        tasks = cluster.tasks("-n3 -m arbitrary --aml-dist=pytorch", env={"SLURM_HOSTFILE": str(hosts)})
        assert {task.env["MASTER_ADDR"] for task in tasks} == {"192.168.77.3"}
        done = cluster.run(f"srun -w node2 -N1 -n1 --aml-dist=pytorch {PROBE} : -w node[1,3] -N2 -n2 {PROBE}")
        assert {task.env["MASTER_ADDR"] for task in read_reports(done.out)} == {"192.168.77.2"}, str(done)
        named = cluster.tasks("-w node[1-2] -N2 -n2 --aml-dist=pytorch,master_addr=name")
        assert {task.env["MASTER_ADDR"] for task in named} == {"node1"}


def test_a_master_without_the_sites_interface_is_refused(cluster):
    with second_network(cluster, "node2"), plugin_arguments(cluster, "interface=ib0"):
        done = cluster.run("srun -w node[1-2] -N2 -n2 --aml-dist=pytorch sleep 60", timeout=40)
        assert done.status not in (0, 124), str(done)
        lines = done.own_lines()
        assert len(lines) == 1 and "node1 has no interface ib0" in lines[0], str(done)
        assert cluster.run("srun -w node2 -N1 -n1 --aml-dist=pytorch true").status == 0


def test_first_failure_under_a_default_kind(cluster, workdir):
    with plugin_arguments(cluster, "default.main=pytorch"):
        done = cluster.run("srun -N2 -n2 bash -c 'exit $((RANK * 7))'")
        assert done.status == 7 and len(done.own_lines()) == 1, str(done)
        assert "first failure: rank 1 (local 0)" in done.own_lines()[0] and "exit status 7" in done.own_lines()[0]
    with plugin_arguments(cluster, "default.other=pytorch"):
        silent = cluster.run("srun -N2 -n2 bash -c 'env | grep ^SLURM_AMLDIST; exit 3'")
        assert silent.status == 3 and silent.out == "" and not silent.own_lines(), str(silent)


def test_an_interactive_step_starts_steps_like_any_other(cluster):
    inner = f"srun --overlap -N2 -n4 --aml-dist=pytorch {PROBE}"
    done = cluster.run(f"salloc -Q -N2 -n4 srun --interactive --preserve-env --mpi=none {inner}")
    tasks = sorted(read_reports(done.out), key=lambda task: task.procid)
    assert done.status == 0 and len(tasks) == 4, str(done)
    check_pytorch(tasks)
    outer = cluster.run(f"salloc -Q -N2 -n4 srun --interactive --preserve-env --mpi=none --aml-dist=pytorch {PROBE}")
    assert outer.status == 0, str(outer)


def workers_by_host(tasks) -> dict[str, set[str]]:
    """How TF_CONFIG names each node; the same in every task."""
    (workers,) = {tuple(json.loads(task.env["TF_CONFIG"])["cluster"]["worker"]) for task in tasks}
    named = {}
    for task in tasks:
        named.setdefault(task.host, set()).add(workers[task.procid].rsplit(":", 1)[0])
    return named


def test_tf_config_names_all_nodes_by_the_rule_of_the_master(cluster, addresses):
    with loopback_names(cluster, "node1", "node2", "node3"):
        for layout in ("-N3 -n6", "-N3 -n5 -m cyclic", "-w node[2-3] -N2 -n2"):
            tasks = cluster.tasks(f"{layout} --aml-dist=tensorflow")
            assert workers_by_host(tasks) == {task.host: {addresses[task.host]} for task in tasks}, layout
    named = cluster.tasks("-N3 -n6 --aml-dist=tensorflow,master_addr=name")
    assert workers_by_host(named) == {task.host: {task.host} for task in named}
    assert {task.env["MASTER_ADDR"] for task in named} == {"node1"}
    done = cluster.run(f"srun -w node2 -N1 -n1 --aml-dist=tensorflow {PROBE} : -w node[1,3] -N2 -n2 {PROBE}")
    tasks = read_reports(done.out)
    assert workers_by_host(tasks) == {task.host: {addresses[task.host]} for task in tasks}, str(done)


def test_tf_config_where_the_site_has_an_interface(cluster, addresses):
    """The other nodes' addresses on it are known to nobody else."""
    with second_network(cluster, "node1", "node2"):
        with plugin_arguments(cluster, "interface=ib0"):
            done = cluster.run("srun -w node[1-2] -N2 -n2 --aml-dist=tensorflow true", timeout=40)
            assert done.status not in (0, 124) and "interface ib0: use master_addr=name" in str(done.own_lines()), str(done)
            named = cluster.tasks("-w node[1-2] -N2 -n2 --aml-dist=tensorflow,master_addr=name")
            assert workers_by_host(named) == {node: {node} for node in ("node1", "node2")}
        with plugin_arguments(cluster, "interface=ib0 network=192.168.77.0/24"):
            done = cluster.run("srun -w node[1-2] -N2 -n2 --aml-dist=tensorflow true", timeout=40)
            assert done.status not in (0, 124) and "outside the site's network" in str(done.own_lines()), str(done)
