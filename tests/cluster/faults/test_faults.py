"""Faults of a cluster while a step starts or runs: the step ends, reports why, and leaves nothing behind."""

import os
import pathlib
import re
import shutil
import subprocess
import time

import pytest
from cluster import Cluster
from oracle import check_pytorch
from soak import STEPS, ask_node, run_steps
from test_batch import script
from test_first_failure import by_rank, first_failure

PLUGIN = os.environ["AMLDIST_PLUGIN"]
SERVERS = "tensorflow,worker_count=2,parameter_server_count=2"


def wait_until(happened, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(0.2)


@pytest.fixture(autouse=True)
def nothing_is_left(cluster: Cluster):
    nodes = [f"node{number}" for number in range(1, cluster.nodes + 1)]
    # Flight recorders of dead steps stay; so do leases of clusters that were stopped in the middle of a step, and their
    # namespaces' numbers, by which leases are told apart, are given out again.
    before = {node: at_rest(cluster, node) for node in nodes}
    yield
    # Of every user: a slurmctld that was killed may remember jobs that had ended.
    cluster.run("squeue -h -o %A | xargs -r scancel --quiet; while squeue -h | grep -q .; do sleep 0.2; done", timeout=40)
    for node in nodes:
        left = at_rest(cluster, node)
        for what in ("leases", "shared memory"):
            assert left[what] == before[node][what], (node, what, before[node], left)


def at_rest(cluster: Cluster, node: str) -> dict[str, int]:
    """Counts on a node after its last step has gone, which takes a while after srun has ended."""
    wait_until(lambda: ask_node(cluster, node)["steps' processes"] == 0, 90)  # Slurm's own patience with slurmctld
    return ask_node(cluster, node)


class Background:
    """A shell line that runs in the cluster meanwhile; its lines as they come."""

    def __init__(self, cluster: Cluster, workdir: pathlib.Path, command: str) -> None:
        self.cluster, self.log = cluster, workdir / "background"
        cluster.run(f"setsid -f timeout 180 bash -c '{{ {command}; }} >{self.log} 2>&1; echo status $? >>{self.log}' "
                    "</dev/null >/dev/null 2>&1")

    def text(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def wait(self, seconds: float = 60) -> str:
        wait_until(lambda: self.text().rstrip().rpartition("\n")[2].startswith("status "), seconds)
        return self.text()

    def says(self, words: str, seconds: float = 20) -> None:
        wait_until(lambda: words in self.text(), seconds)


def wait_until_saved(cluster: Cluster) -> None:
    """slurmctld writes down the jobs that it knows some seconds after a change. One that is killed before gives the number
    of the lost job to the next one, which the nodes then end in the lost one's place."""
    state = pathlib.Path(f"/run/aml-devcluster/{cluster.name}/ctl/job_state")
    now = time.time()
    # The last change may be in the file already, and nothing else would be written for minutes.
    cluster.run("squeue -h -o %A | xargs -r -I@ scontrol update JobId=@ Comment=saved")
    wait_until(lambda: state.exists() and state.stat().st_mtime > now)


def signal_srun(cluster: Cluster, name: str) -> None:
    done = cluster.run(f"pkill -{name} -x srun")
    assert done.status == 0, str(done)


def test_a_node_dies_while_the_step_is_launched(cluster, workdir):
    cluster.run("pkill -STOP -x slurmd", on="node4")  # it has the connection, and does not answer
    try:
        step = Background(cluster, workdir, "srun -w node[1-4] -N4 -n4 --aml-dist=pytorch sleep 30")
        wait_until(lambda: "node" in cluster.run("squeue -h -t R -o %N").out)
        assert cluster.devcluster("break", "node4", "down").status == 0
        assert "status 0" not in step.wait()
    finally:
        assert cluster.devcluster("heal", "all").status == 0
    check_pytorch(cluster.tasks("-w node4 -N1 -n2 --aml-dist=pytorch"))


def test_a_cable_is_cut_while_steps_run(cluster, workdir):
    """The node is declared down after SlurmdTimeout (30 s here), which ends both steps; srun names it, and we say at most
    that Slurm lost a node: no rank is blamed. With the cable back the node takes steps again."""
    plain = Background(cluster, workdir, "srun -w node[1-4] -N4 -n4 --overcommit --aml-dist=pytorch bash -c \"echo runs; sleep 75\"")
    plain.says("runs")
    (workdir / "servers").mkdir(mode=0o777)
    servers = Background(cluster, workdir / "servers", f"srun -w node[3-4] -N2 -n4 --overcommit --aml-dist={SERVERS} "
                         "bash -c \"echo runs; exec sleep 75\"")
    servers.says("runs")
    assert cluster.devcluster("break", "node4", "link").status == 0
    try:
        for step in (plain, servers):
            text = step.wait(70)
            assert "status 0" not in text and "node4" in text, text
            own = {line for line in text.splitlines() if "aml-dist: " in line}
            assert own <= {"aml-dist: ended by Slurm: a node of the job does not answer any more, or could not be started"}, text
    finally:
        assert cluster.devcluster("heal", "all").status == 0
    check_pytorch(cluster.tasks("-w node[1-4] -N4 -n4 --aml-dist=pytorch"))


def test_a_cable_is_loose(cluster, workdir):
    """For six seconds: a step continues, and a task that fails meanwhile ends it with its status."""
    task = by_rank(r1="echo runs; sleep 3; exit 7", other="sleep 9").replace("'", '"').replace("$RANK", "\\$RANK")
    step = Background(cluster, workdir, f"srun -w node[3-4] -N2 -n2 --aml-dist=pytorch {task}")
    step.says("runs")
    assert cluster.devcluster("break", "node4", "link").status == 0
    try:
        time.sleep(6)
    finally:
        assert cluster.devcluster("heal", "all").status == 0
    text = step.wait()
    assert "status 7" in text and text.count("aml-dist: ") <= 1, text


def test_slurmctld_is_away_while_a_task_fails(cluster, workdir):
    """srun asks it about the job before it says who failed; without an answer the line comes all the same."""
    until_away = f"until [ -e {workdir}/away ]; do sleep 0.1; done"
    task = by_rank(r1=f"echo runs; {until_away}; sleep 1; exit 7", other=f"{until_away}; sleep 2")
    step = Background(cluster, workdir, f"srun -N2 -n2 --aml-dist=pytorch {task}".replace("'", '"').replace("$", "\\$"))
    step.says("runs")
    wait_until_saved(cluster)
    assert cluster.devcluster("break", "ctl", "down").status == 0
    (workdir / "away").touch()
    try:
        step.says("aml-dist: first failure: rank 1", 40)
    finally:
        assert cluster.devcluster("heal", "ctl").status == 0
    text = step.wait()
    assert "status 7" in text and text.count("aml-dist: ") == 1, text


def test_slurmctld_is_away_when_srun_starts(cluster, workdir):
    """Slurm waits for it or gives up; with an answer in time every task has its environment, and without one none runs."""
    job = script(workdir, "echo begins", f"until [ -e {workdir}/away ]; do sleep 0.1; done",
                 "srun --aml-dist=pytorch bash -c 'echo rank $RANK of $WORLD_SIZE'")
    step = Background(cluster, workdir, f"salloc --quiet -N2 -n2 {job}")
    step.says("begins")
    wait_until_saved(cluster)
    assert cluster.devcluster("break", "ctl", "down").status == 0
    (workdir / "away").touch()
    time.sleep(3)
    assert cluster.devcluster("heal", "ctl").status == 0
    text = step.wait(150)  # srun asks slurmctld again after a minute
    ranks = sorted(line for line in text.splitlines() if line.startswith("rank "))
    assert ranks == (["rank 0 of 2", "rank 1 of 2"] if "status 0" in text else []), text


def test_a_plugin_for_another_slurm_on_one_node(cluster, workdir):
    """Slurm itself refuses it there; nothing runs without its environment."""
    source = workdir / "other.c"
    source.write_text('const char plugin_name[] = "aml_dist"; const char plugin_type[] = "spank";\n'
                      "const unsigned plugin_version = 0x130200; const unsigned spank_plugin_version = 1;\n")
    other = workdir / "other.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", other, source], check=True)
    assert cluster.run(f"mount --bind {other} {PLUGIN}", on="node4").status == 0
    try:
        done = cluster.run("srun -w node[3-4] -N2 -n2 --aml-dist=pytorch echo runs", timeout=60)
        assert re.search("launch failed: (Plugin initialization failed|Unspecified error)", done.err), str(done)  # 26.05: the latter
        assert done.status == 1 and "runs" not in done.out, str(done)
        assert "aml-dist: node4 started its tasks without aml-dist, or could not start them" in done.err, str(done)
    finally:
        assert cluster.run(f"umount {PLUGIN}", on="node4").status == 0


def test_the_plugins_file_is_replaced_while_a_step_runs(cluster, workdir):
    """As packages do: the new file takes the old one's name. What runs keeps the old one."""
    step = Background(cluster, workdir, "srun -N2 -n4 -K --aml-dist=pytorch bash -c \"echo runs; sleep 3; exit 5\"")
    step.says("runs")
    old = workdir / "old.so"
    shutil.copy(PLUGIN, old)
    try:
        for content in (b"no plugin at all", old.read_bytes()):
            (workdir / "new.so").write_bytes(content)
            os.replace(shutil.copy(workdir / "new.so", f"{PLUGIN}.new"), PLUGIN)
            time.sleep(0.5)
        os.chmod(PLUGIN, 0o755)
        text = step.wait()
    finally:
        os.replace(shutil.copy(old, f"{PLUGIN}.new"), PLUGIN)
        os.chmod(PLUGIN, 0o755)
    assert text.count("aml-dist: first failure") == 1 and "exit status 5" in text and "status 0" not in text, text
    check_pytorch(cluster.tasks("-N2 -n4 --aml-dist=pytorch"))


@pytest.mark.parametrize("spoil", ["mount -t tmpfs -o size=4k,nr_inodes=2 full /run/aml-dist && mkdir /run/aml-dist/ports",
                                   "mount -t tmpfs full /run/aml-dist && mount -o remount,ro /run/aml-dist",
                                   "mount -t tmpfs file /run/aml-dist && touch /run/aml-dist/ports"])
def test_no_lease_can_be_kept(cluster, spoil):
    """A disk that is full or read-only, or a file in the folder's place. The port has still been tried."""
    assert cluster.run(f"mkdir -p /run/aml-dist; {spoil}", on="node1").status == 0
    try:
        done = cluster.run("srun -w node1 -N1 -n2 --aml-dist=pytorch bash -c 'echo $MASTER_PORT'")
        assert done.status == 0 and len(set(done.out.split())) == 1 and done.said == "", str(done)
        taken = cluster.run("srun -w node1 -N1 -n1 --aml-dist=pytorch,master_port=6818 true")  # slurmd's
        assert taken.status != 0 and len(taken.own_lines()) == 1 and "6818" in taken.own_lines()[0], str(taken)
    finally:
        assert cluster.run("umount /run/aml-dist", on="node1").status == 0


def test_a_spool_that_is_read_only(cluster):
    """Only Slurm writes there. However Slurm reacts, the step ends."""
    spool = cluster.run("scontrol show config | sed -n 's/^SlurmdSpoolDir *= //p'").out.strip().replace("%n", "node2")
    assert cluster.run(f"mount --bind {spool} {spool} && mount -o remount,ro,bind {spool}", on="node2").status == 0
    try:
        done = cluster.run("srun -w node2 -N1 -n2 --aml-dist=pytorch,process_count=2 bash -c 'exit 3'", timeout=60)
        assert done.status != 0, str(done)
    finally:
        assert cluster.run(f"umount {spool}", on="node2").status == 0
    check_pytorch(cluster.tasks("-w node2 -N1 -n2 --aml-dist=pytorch"))


def test_a_name_service_that_never_answers(cluster):
    """Slurm knows its nodes' addresses, so no name is looked up."""
    step = "-w node[1-2] -N2 -n4 --aml-dist=pytorch"
    began = time.monotonic()
    cluster.tasks(step)
    usual = time.monotonic() - began
    for machine in ("login", "node1", "node2"):
        assert cluster.devcluster("break", machine, "slow-dns").status == 0
    try:
        began = time.monotonic()
        check_pytorch(cluster.tasks(step))
        assert time.monotonic() - began < usual + 8, "one look-up takes ten seconds"
    finally:
        assert cluster.devcluster("heal", "all").status == 0
        assert cluster.devcluster("heal", "login").status == 0


def test_srun_is_killed(cluster, workdir):
    """No process waits for it, and scancel ends everything."""
    step = Background(cluster, workdir, f"srun -w node[1-2] -N2 -n4 --aml-dist={SERVERS},master_port=23555 bash -c \"echo runs; exec sleep 60\"")
    step.says("runs")
    signal_srun(cluster, "KILL")
    assert "status 137" in step.wait()
    cluster.run("scancel --user root; while squeue -h | grep -q .; do sleep 0.2; done", timeout=40)
    check_pytorch(cluster.tasks("-w node[1-2] -N2 -n4 --aml-dist=pytorch,master_port=23555"))


def test_srun_is_stopped_while_workers_end(cluster, workdir):
    """One ends while srun cannot hear, one afterwards, both on one node; the servers end all the same."""
    task = by_rank(r0="echo runs; sleep 1", r1="sleep 5", other="exec sleep 60").replace("'", '"').replace("$RANK", "\\$SLURM_PROCID")
    step = Background(cluster, workdir, f"srun -w node1 -N1 -n4 --overcommit --aml-dist={SERVERS} {task}")
    step.says("runs")
    signal_srun(cluster, "STOP")
    time.sleep(3)
    signal_srun(cluster, "CONT")
    assert "status 0" in step.wait(20)


def test_srun_is_stopped_while_a_task_fails(cluster, workdir):
    task = by_rank(r2="echo runs; sleep 1; exit 9", other="sleep 6").replace("'", '"').replace("$RANK", "\\$RANK")
    step = Background(cluster, workdir, f"srun -N2 -n4 --aml-dist=pytorch {task}")
    step.says("runs")
    signal_srun(cluster, "STOP")
    time.sleep(2.5)
    signal_srun(cluster, "CONT")
    text = step.wait(20)
    assert first_failure(text)["end"] == "exit status 9" and "status 9" in text.splitlines()[-1], text


def test_a_refused_step_does_not_block_its_job(cluster):
    """Slurm would keep such a step and its CPUs until the job ends: it was created but never launched."""
    wrong = "srun --aml-dist=pytorch,process_count=77 echo started </dev/null; echo status $?"
    done = cluster.run(f"salloc --quiet -N2 -n4 bash -c '{wrong}; timeout 20 srun --aml-dist=pytorch echo right </dev/null'")
    assert done.status == 0 and done.out.count("right") == 4, str(done)
    assert "started" not in done.out and "status 1" in done.out and len(done.own_lines()) == 1, str(done)
    assert "task_init() failed" not in done.err, "Slurm's own lines would hide ours: " + str(done)


def test_many_steps_leave_nothing(cluster):
    """The long form is tests/cluster/soak.py --steps 1000."""
    nodes = ("node1", "node2")
    before = {node: at_rest(cluster, node) for node in nodes}
    assert run_steps(cluster, 2 * len(STEPS), "-w node[1-2]") == []

    def nothing_more(node: str) -> bool:  # less is possible: a connection of slurmd's that was open before
        return all(number <= before[node][what] for what, number in ask_node(cluster, node).items())

    wait_until(lambda: all(nothing_more(node) for node in nodes))
