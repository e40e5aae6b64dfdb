"""A plugin that cannot work fails the job with a message and never the node."""

import os
import pathlib
import re
import subprocess

import pytest
import ways
from oracle import check_pytorch


def test_a_node_without_the_plugin(cluster):
    """Slurm's own slurmstepd refuses the launch there and says so, though srun's status may be 0 (22.05); the node and
    the others stay usable."""
    assert cluster.devcluster("break", "node4", "no-plugin").status == 0
    try:
        done = cluster.run("srun -w node[3-4] -N2 -n2 --aml-dist=pytorch true", timeout=60)
        # 26.05 says "Unspecified error" there; slurmd's log has the reason. With PrologFlags=Contain the node is not ready.
        says = "launch failed: (Plugin initialization failed|Unspecified error)|still not ready"
        # That flag also starts a step of Slurm's own on each node: then the job may end before ours, without a word.
        assert re.search(says, done.err) or (ways.STEPS and done.status != 0), str(done)
        check_pytorch(cluster.tasks("-w node[1-2] -N2 -n2 --aml-dist=pytorch"))
    finally:
        assert cluster.devcluster("heal", "all").status == 0
    check_pytorch(cluster.tasks("-w node[3-4] -N2 -n2 --aml-dist=pytorch"))


def test_a_forged_launch_record_is_overwritten_by_srun(cluster):
    forged = "1;step=1.0;addr=evil;ports=1-2;map=(vector,(0,1,2))"
    tasks = cluster.tasks("-N2 -n2 --aml-dist=pytorch", env={"SLURM_AMLDIST_LAUNCH": forged})
    assert all(task.env["MASTER_ADDR"] != "evil" for task in tasks)


def test_plugstack_mistakes_stop_nothing(cluster):
    plugin = os.environ["AMLDIST_PLUGIN"]
    assert cluster.devcluster("plugin", plugin, "prot_range=1-2 port_range=junk rdma=maybe").status == 0
    try:
        check_pytorch(cluster.tasks("-N2 -n4 --aml-dist=pytorch"))
        done = cluster.run("srun -N1 -n1 true")
        assert done.status == 0 and done.said == "", str(done)
    finally:
        assert cluster.devcluster("plugin", plugin).status == 0


def test_the_sites_port_range_is_kept(cluster):
    plugin = os.environ["AMLDIST_PLUGIN"]
    assert cluster.devcluster("plugin", plugin, "port_range=15000-15099").status == 0
    try:
        tasks = cluster.tasks("-N2 -n4 --aml-dist=pytorch")
        assert 15000 <= tasks[0].number("MASTER_PORT") <= 15099
    finally:
        assert cluster.devcluster("plugin", plugin).status == 0


def test_switched_off_by_file(cluster, workdir):
    plugin = os.environ["AMLDIST_PLUGIN"]
    config = workdir / "aml-dist.conf"
    config.write_text("# maintenance\ndisabled\n")
    assert cluster.devcluster("plugin", plugin, f"config={config}").status == 0
    try:
        done = cluster.run("srun -N2 -n2 --aml-dist=pytorch bash -c 'echo ${RANK:-unset}'")
        assert done.status == 0 and done.out.split() == ["unset"] * 2, str(done)
        assert len(done.own_lines()) == 1 and "switched off by the administrator" in done.own_lines()[0]
        config.write_text("port_range=15000-15099\n")
        check_pytorch(cluster.tasks("-N2 -n4 --aml-dist=pytorch"))
    finally:
        assert cluster.devcluster("plugin", plugin).status == 0


FAULTS = {
    "missing": ("rm {}", "No such file or directory"),
    "fifo": ("rm {0}; mkfifo {0}", "not a regular file"),
    "folder": ("rm {0}; mkdir {0}", "not a regular file"),
    "of a user": ("chown 1000 {}", "it belongs to user 1000, not to root"),
    "writable": ("chmod 666 {}", "users other than its owner may write to it"),
    "too long": ("head -c 70000 /dev/zero | tr '\\0' '#' >{}", "over 65536 bytes"),
    "wrong": ("echo rmda=require >>{}", "line 2, 'rmda=require', is unknown (did you mean 'rdma'?)"),
}


@pytest.mark.parametrize("on_one_node", [False, True])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_the_sites_file_refuses_steps(cluster, workdir, fault, on_one_node):
    """In one sentence, also where only a node sees it; the node stays up and logs it once, and other steps run."""
    plugin = os.environ["AMLDIST_PLUGIN"]
    command, words = FAULTS[fault]
    site, other = workdir / "site", workdir / "other"
    for folder in (site, other):
        folder.mkdir()
        (folder / "aml-dist.conf").write_text("secret=require\n")
    assert cluster.devcluster("plugin", plugin, f"config={site}/aml-dist.conf").status == 0
    logged = log_of("node2", cluster).count("no step with --aml-dist starts")
    try:
        check_pytorch(cluster.tasks("-w node[1-2] -N2 -n2 --aml-dist=pytorch"))
        subprocess.run(command.format((other if on_one_node else site) / "aml-dist.conf"), shell=True, check=True)
        if on_one_node:
            assert cluster.run(f"mount --bind {other} {site}", on="node2").status == 0
        refused = cluster.run("srun -w node[1-2] -N2 -n4 --aml-dist=pytorch bash -c 'sleep 30 && echo started'", timeout=40)
        assert refused.status not in (0, 124) and "started" not in refused.out, str(refused)
        said = refused.own_lines()
        assert len(said) == 1 and words in said[0] and "no step with --aml-dist starts" in said[0], str(refused)
        assert ("on node node2" in said[0]) == on_one_node, said
        untouched = cluster.run("srun -w node[1-2] -N2 -n2 bash -c 'echo ${RANK:-unset}'")
        assert untouched.status == 0 and untouched.out.split() == ["unset"] * 2 and not untouched.own_lines(), str(untouched)
        assert "drain" not in cluster.run("sinfo -h -o %T").out
        if on_one_node:
            assert log_of("node2", cluster).count("no step with --aml-dist starts") == logged + 1
    finally:
        if on_one_node:
            assert cluster.run(f"umount {site}", on="node2").status == 0
        assert cluster.devcluster("plugin", plugin).status == 0


def log_of(node: str, cluster) -> str:
    return pathlib.Path(f"/run/aml-devcluster/{cluster.name}/log/{node}.log").read_text()


def test_a_file_that_may_be_absent(cluster):
    plugin = os.environ["AMLDIST_PLUGIN"]
    assert cluster.devcluster("plugin", plugin, "config_optional=/etc/aml-dist-no-such-file.conf").status == 0
    try:
        check_pytorch(cluster.tasks("-N2 -n4 --aml-dist=pytorch"))
    finally:
        assert cluster.devcluster("plugin", plugin).status == 0


def test_optional_is_warned_about(cluster):
    plugin = os.environ["AMLDIST_PLUGIN"]
    assert cluster.devcluster("plugin", "--mode", "optional", plugin).status == 0
    try:
        done = cluster.run("srun -N1 -n1 --aml-dist=pytorch true")
        assert len(done.own_lines()) == 1 and "ask the administrator for 'required'" in done.own_lines()[0], str(done)
        assert not cluster.run("srun -N1 -n1 true").own_lines()
    finally:
        assert cluster.devcluster("plugin", "--mode", "required", plugin).status == 0
