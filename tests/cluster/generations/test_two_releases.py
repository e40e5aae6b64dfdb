"""Two releases of aml-dist beside each other, as in the middle of an upgrade, and two lines of plugstack.conf: right numbers, or a sentence.

The other release is 0.1.0, built from git's history (tests/build-earlier).
"""

import contextlib
import pathlib
import shutil
import subprocess

import pytest
from cluster import BUILD, READABLE, ROOT
from conftest import PLUGIN, RELEASE
from oracle import check_pytorch

BOTH = "-w node1,node2 -N2 -n4"
# Which machines are still at 0.1.0: the login machine, all nodes, rank 0's node, the other one.
BEHIND = [("login",), ("node1", "node2"), ("node1",), ("node2",)]


@pytest.fixture(scope="module")
def earlier() -> pathlib.Path:
    done = subprocess.run([ROOT / "tests/build-earlier", BUILD / "earlier", *([RELEASE] if RELEASE else [])], capture_output=True, text=True)
    if done.returncode == 3:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    return pathlib.Path(shutil.copy(done.stdout.strip(), READABLE / "earlier.so"))


@contextlib.contextmanager
def at_the_earlier(cluster, earlier, machines):
    """Over the plugin's file lies that of 0.1.0 there."""
    where = [None if machine == "login" else machine for machine in machines]
    try:
        for machine in where:
            assert cluster.run(f"mount --bind {earlier} {PLUGIN}", on=machine).status == 0
        yield
    finally:
        for machine in where:
            cluster.run(f"umount {PLUGIN}", on=machine)


@pytest.fixture(params=BEHIND, ids="+".join)
def mixed(cluster, earlier, request):
    """The machines that are behind; the cluster is so while a test has this."""
    with at_the_earlier(cluster, earlier, request.param):
        yield request.param


@pytest.mark.parametrize("steps", [f"{BOTH} --aml-dist=pytorch SHOW", "-w node1 -n2 --aml-dist=pytorch SHOW : -w node2 -n2 --aml-dist=pytorch SHOW"])
def test_right_numbers_or_a_sentence(cluster, mixed, steps):
    """0.1.0 does not report that a node has its plan: it cannot be told from no plugin."""
    behind = mixed == ("login",)
    done = cluster.run("srun " + steps.replace("SHOW", "sh -c 'echo $RANK/$WORLD_SIZE'" if behind else "sleep 60"))
    if behind:
        assert done.status == 0 and sorted(done.out.split()) == ["0/4", "1/4", "2/4", "3/4"], str(done)
    else:
        assert done.status != 0, str(done)
        assert any(mixed[0] in line and "tasks without aml-dist" in line for line in done.own_lines()), str(done)


def test_a_record_with_more_fields_is_refused_in_a_sentence(cluster, mixed):
    """How the nodes are named, which a tensorflow step of today's srun says."""
    done = cluster.run(f"srun {BOTH} --aml-dist=tensorflow,worker_count=4 bash -c 'echo $TF_CONFIG'")
    if mixed == ("login",):
        assert done.status == 0 and done.out.count('"cluster"') == 4, str(done)
    else:
        assert done.status != 0, str(done)
        assert any("SLURM_AMLDIST_LAUNCH cannot be read" in line for line in done.own_lines()), str(done)


def test_a_key_that_one_side_does_not_know_is_refused_in_a_sentence(cluster, mixed):
    done = cluster.run(f"srun {BOTH} --aml-dist=pytorch,trace true")
    assert done.status != 0 and any("unknown key 'trace'" in line for line in done.own_lines()), str(done)


def test_a_wrong_count_is_refused(cluster, mixed):
    done = cluster.run(f"srun {BOTH} --aml-dist=pytorch,process_count=3 true")
    assert done.status == 1 and any("process_count=3 but the step has 4 tasks" in line for line in done.own_lines()), str(done)


# ------------------------------------------------------------------------------------------------------------- two lines

@contextlib.contextmanager
def lines(cluster, *words: str):
    conf = pathlib.Path(cluster.devcluster("conf").out.strip()).parent / "plugstack.conf"
    conf.write_text("".join(f"required {each}\n" for each in words))
    try:
        yield
    finally:
        assert cluster.devcluster("plugin", PLUGIN).status == 0


@pytest.fixture
def twin(workdir) -> str:
    copy = workdir / pathlib.Path(PLUGIN).name
    copy.write_bytes(pathlib.Path(PLUGIN).read_bytes())
    copy.chmod(0o755)
    return str(copy)


@pytest.mark.parametrize("option", ["--aml-dist=pytorch", ""])
@pytest.mark.parametrize("same", [True, False], ids=["same-path", "two-paths"])
def test_of_two_copies_one_acts_and_srun_says_so(cluster, twin, same, option):
    """Without the option by a default of the partition, which both lines have."""
    first, second = PLUGIN, PLUGIN if same else twin
    with lines(cluster, *(f"{path} default.main=pytorch" for path in (first, second))):
        done = cluster.run(f"srun -N2 -n4 {option} bash -c 'echo $RANK/$WORLD_SIZE; if [ $RANK = 2 ]; then exit 7; fi'")
    assert done.status == 7 and sorted(done.out.split()) == ["0/4", "1/4", "2/4", "3/4"], str(done)
    told = [line for line in done.own_lines() if "twice" in line]
    assert told == [f"aml-dist: plugstack.conf loads this plugin twice, from {first} and from {second}: the second line does nothing; "
                    "keep one of them"], str(done)
    assert sum("first failure: rank 2" in line for line in done.own_lines()) == 1, str(done)


def test_an_earlier_release_in_the_first_line_is_in_charge(cluster, earlier, workdir):
    """It does not know of another; today's does."""
    first = workdir / pathlib.Path(PLUGIN).name
    first.write_bytes(earlier.read_bytes())
    with lines(cluster, str(first), PLUGIN):
        check_pytorch(cluster.tasks("-N2 -n4 --aml-dist=pytorch"))


def test_with_an_earlier_release_in_the_second_line_a_sentence_says_what_is_wrong(cluster, earlier, workdir):
    """It takes the way to srun for that of an outer step and removes it, so that no node can report."""
    second = workdir / pathlib.Path(PLUGIN).name
    second.write_bytes(earlier.read_bytes())
    with lines(cluster, PLUGIN, str(second)):
        done = cluster.run("srun -N2 -n4 --aml-dist=pytorch sleep 60")
    assert done.status != 0 and "provided by both" in done.err, str(done)
    assert f"aml-dist: plugstack.conf loads two releases of this plugin, from {PLUGIN} and from {second}, and the second one removes what " \
        "the first sends to the nodes: keep one of the lines" in done.own_lines(), str(done)
    assert not any("tasks without aml-dist" in line for line in done.own_lines()), str(done)
