"""Nodes without configuration files: slurmctld hands out plugstack.conf, and one file switches the plugin off."""

import pytest
from cluster import Cluster
from conftest import NAME, PLUGIN, RELEASE
from oracle import check_pytorch


@pytest.fixture(scope="module")
def configless():
    cluster = Cluster(f"{NAME}-cl"[-16:].lstrip("-"), 2)
    started = cluster.devcluster("start", "--nodes", "2", "--configless", "--restart", "--plugin", PLUGIN,
                                 *(["--release", RELEASE] if RELEASE else []))
    assert started.status == 0, str(started)
    yield cluster
    assert cluster.devcluster("stop").status == 0


def test_the_nodes_have_only_what_slurmctld_gave_them(configless):
    done = configless.run("ls /etc/slurm; echo ${SLURM_CONF:-unset}; cat /run/slurm/conf/plugstack.conf", on="node2")
    assert "slurm.conf" not in done.out and "unset" in done.out and PLUGIN in done.out, str(done)


@pytest.mark.parametrize("on", [None, "node2"])
def test_a_step_gets_its_environment(configless, on):
    """With srun on the login machine, and on a node that has no slurm.conf."""
    check_pytorch(configless.tasks("-N2 -n4 --aml-dist=pytorch", on=on))


def test_mistakes_are_refused_in_srun(configless):
    done = configless.run("srun -N2 -n2 --aml-dist=pytorch,process_count=8 true", on="node2")
    assert done.status == 1 and "process_count=8 but the step has 2 tasks" in done.own_lines()[0], str(done)


def test_switched_off_for_the_whole_cluster_by_one_file(configless, workdir):
    """Once the file is named, no node needs a change and no daemon a restart."""
    switch = workdir / "aml-dist.conf"
    switch.write_text("")
    switch.chmod(0o644)
    assert configless.devcluster("plugin", PLUGIN, f"config={switch}").status == 0
    try:
        assert configless.run("scontrol reconfigure").status == 0
        wait_for_argument(configless, str(switch))
        check_pytorch(configless.tasks("-N2 -n4 --aml-dist=pytorch", on="node2"))
        switch.write_text("disabled\n")
        for on in (None, "node1"):
            done = configless.run("srun -N2 -n2 --aml-dist=pytorch bash -c 'echo ${RANK:-unset}'", on=on)
            assert done.status == 0 and done.out.split() == ["unset"] * 2, str(done)
            assert len(done.own_lines()) == 1 and "switched off by the administrator" in done.own_lines()[0], str(done)
        switch.write_text("")
        check_pytorch(configless.tasks("-N2 -n4 --aml-dist=pytorch"))
    finally:
        assert configless.devcluster("plugin", PLUGIN).status == 0


def wait_for_argument(cluster: Cluster, text: str) -> None:
    """Until slurmctld's reconfiguration has reached both nodes."""
    for node in ("node1", "node2"):
        done = cluster.run(f"until grep -q {text} /run/slurm/conf/plugstack.conf; do sleep 0.1; done", on=node, timeout=20)
        assert done.status == 0, str(done)
