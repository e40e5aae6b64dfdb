"""An srun that checks nothing, which any user can build: Slurm's own without our plugin, under the user's own plugstack.conf. What it
sends to the nodes is whatever the user likes. No node is drained (conftest.py looks after each test), no slurmstepd crashes, and a step
of another user's on the same nodes is as if alone."""

import pathlib
import re

import pytest
from cluster import Cluster
from conftest import NAME, PLUGIN, RELEASE
from test_faults import Background, wait_until

#: The form in which Slurm passes options to the nodes, for an srun that does not know them.
OPTION = "_SLURM_SPANK_OPTION_aml_dist_aml_dist"
RECORD = "1;step=1.0;addr=10.0.0.1;ports=20000-29999;map=(vector,(0,1,2))"


@pytest.fixture(scope="module")
def cluster():
    """A cluster of its own, on which credentials live for two minutes, as is Slurm's default: of ten thousand variables srun and
    slurmstepd compare each with each other before a task starts, which takes two seconds of a processor without our plugin."""
    name = f"{NAME}-hs"[-16:].lstrip("-")
    own = Cluster(name, 2)
    started = own.devcluster("start", "--nodes", "2", "--restart", "--plugin", PLUGIN, *(["--release", RELEASE] if RELEASE else []),
                             "--conf", f"AuthInfo=socket=/run/aml-devcluster/{name}/munge/socket,cred_expire=120")
    assert started.status == 0, str(started)
    yield own
    assert own.devcluster("stop").status == 0


@pytest.fixture
def hostile(cluster: Cluster, workdir) -> str:
    """A shell line's beginning: srun without the plugin."""
    theirs = pathlib.Path(cluster.devcluster("conf").out.strip())
    (workdir / "plugstack.conf").write_text("")
    lines = [line for line in theirs.read_text().splitlines() if not line.lower().startswith("plugstackconfig")]
    (workdir / "slurm.conf").write_text("\n".join([*lines, f"PlugStackConfig={workdir}/plugstack.conf"]) + "\n")
    return f"export SLURM_CONF={workdir}/slurm.conf; "


@pytest.fixture
def bystander(cluster: Cluster, workdir):
    """bob's step on the same nodes: it ends well, and says nothing of ours."""
    folder = workdir / "bob"
    folder.mkdir()
    folder.chmod(0o777)
    step = Background(cluster, folder, "setpriv --reuid=bob --regid=bob --init-groups srun --overcommit -w node[1-2] -N2 -n2 "
                                       f"--aml-dist=pytorch bash -c \"echo up; until [ -e {workdir}/done ]; do sleep 0.2; done; echo $RANK well\"")
    wait_until(lambda: step.text().count("up\n") == 2)
    yield step
    (workdir / "done").touch()
    text = step.wait()
    assert "status 0" in text and text.count("well") == 2 and "aml-dist: " not in text, text


def crashes(cluster: Cluster) -> list[str]:
    logs = pathlib.Path(f"/run/aml-devcluster/{cluster.name}/log")
    return [line for log in logs.glob("node*.log") for line in log.read_text(errors="replace").splitlines()
            if re.search(r"slurmstepd.*(signal 11|signal 6|Segmentation|terminate called)|Aborted", line)]


LONG = "x" * 100_000
SENT = {
    "an option of 100 kB": {OPTION: LONG},
    "an option with control characters": {OPTION: "pytorch,master_addr=\x1b[31m\x07"},
    "an unknown kind": {OPTION: "pytorhc"},
    "no record": {OPTION: "pytorch"},
    "a record of another step": {OPTION: "pytorch", "SLURM_AMLDIST_LAUNCH": RECORD},
    "a record of 100 kB": {OPTION: "pytorch", "SLURM_AMLDIST_LAUNCH": "1;" + LONG},
    "a map of four billion tasks": {OPTION: "pytorch", "SLURM_AMLDIST_LAUNCH": RECORD.replace("(0,1,2)", "(0,65535,65535)")},
    "a stranger's port": {OPTION: "pytorch", "SLURM_AMLDIST_REPORT": "2;port=53;token=" + "0" * 32},
    "hangs that nobody hears of": {OPTION: "mpi,trace,hang=1", "SLURM_AMLDIST_REPORT": "2;port=9;token=" + "1" * 32},
    "no srun": {OPTION: "pytorch", "SLURM_AMLDIST_LAUNCH": "no-srun", "SLURM_AMLDIST_REPORT": "2;port=9;token=" + "2" * 32},
    "no srun, an end record through a link": {OPTION: "pytorch,master_port=22", "SLURM_AMLDIST_LAUNCH": "no-srun",
                                              "AMLDIST_END_RECORD": "LINK", "SLURM_AMLDIST_REPORT": "2;port=9;token=" + "3" * 32},
    "a secret that is none": {OPTION: "pytorch", "SLURM_AMLDIST_SECRET": LONG[:70_000]},
    "servers for ever": {OPTION: "tensorflow,worker_count=1,parameter_server_count=1", "SLURM_AMLDIST_REPORT": "2;port=9;token=" + "4" * 32},
}


@pytest.mark.parametrize("what", SENT)
def test_whatever_srun_sends_no_node_suffers(cluster, workdir, hostile, bystander, what):
    before = crashes(cluster)
    trap = workdir / "trap"
    trap.symlink_to("/etc/aml-dist-trap")
    exports = "".join(f"export {name}={value.replace('LINK', str(trap))!r}; " for name, value in SENT[what].items())
    script = workdir / "hostile"
    script.write_text(f"{hostile}{exports}timeout -k 5 40 srun --overcommit -w node[1-2] -N2 -n2 sleep 1\n")
    done = cluster.run(f"bash {script}", user="alice")
    assert done.status != 137, str(done)
    assert all(re.search(r"aml-dist: [\x20-\x7e]+$", line) and len(line) < 2000 for line in done.own_lines()), str(done)
    assert len(done.own_lines()) <= 4, str(done)
    assert not pathlib.Path("/etc/aml-dist-trap").exists() and crashes(cluster) == before


def test_an_environment_of_ten_thousand_lines(cluster, workdir, hostile, bystander):
    lines = "export " + " ".join(f"AMLDIST_LINE_{number}={number}" for number in range(10_000))
    (workdir / "lines").write_text(lines + "\n")
    for beginning in (hostile, ""):
        fill = f"ulimit -s 65536; . {workdir}/lines; "
        done = cluster.run(f"{fill}{beginning}srun --overcommit -w node[1-2] -N2 -n2 {'' if beginning else '--aml-dist=pytorch'} bash -c 'echo ran'",
                           user="alice", timeout=240)
        assert done.status == 0 and done.out.count("ran") == 2, done.err


def test_two_users_with_the_same_name_folder_and_second(cluster, workdir):
    """A batch job each: same job name, working folder, output pattern and end record, at the same moment."""
    job = workdir / "job"
    job.write_text("#!/bin/bash\nsrun --overcommit --aml-dist=pytorch bash -c 'echo $RANK $MASTER_PORT >>" f"{workdir}/$USER; [ $RANK = 0 ] || exit 7'\n")
    job.chmod(0o755)
    submit = (f"cd {workdir}; export AMLDIST_END_RECORD={workdir}/record; sbatch --wait --overcommit -J same -o {workdir}/out-%u -w node[1-2] -N2 -n2 job")
    cluster.run(f"for user in alice bob; do setpriv --reuid=$user --regid=$user --init-groups env USER=$user bash -c '{submit}' & done; wait", timeout=80)
    ports = []
    for user in ("alice", "bob"):
        said = (workdir / f"out-{user}").read_text()
        assert said.count("first failure: rank 1 ") == 1, said
        lines = dict(line.split() for line in (workdir / user).read_text().splitlines())
        assert set(lines) == {"0", "1"} and len(set(lines.values())) == 1, lines
        ports.append(lines["0"])
    assert ports[0] != ports[1]
    assert (workdir / "record").read_text().count('"cause":"rank_exit"') == 1, "the other's file is not written to"
    assert sum("record" in (workdir / f"out-{user}").read_text() for user in ("alice", "bob")) == 1, "who could not write is told"


def ends_of_steps(cluster: Cluster) -> int:
    """Requests to end a step that slurmctld has had."""
    done = cluster.run("sdiag")
    return sum(int(count) for count in re.findall(r"REQUEST_(?:CANCEL_JOB_STEP|KILL_JOB)\s.*?count:(\d+)", done.out))


def test_a_refusal_of_all_nodes_is_one_request(cluster, workdir):
    """No node can listen on the port that the user names, or have the device that the user asks for; both say so."""
    before = ends_of_steps(cluster)
    done = cluster.run("timeout -k 5 40 srun --overcommit -w node[1-2] -N2 -n8 --aml-dist=pytorch,rdma=require sleep 20", user="alice")
    assert done.status not in (0, 124, 137), str(done)
    assert ends_of_steps(cluster) - before <= 1, cluster.run("sdiag").out
