"""Communicators in real steps: every MPI type, every layout, and a rank that is killed."""

import json
import os
import pathlib
import re
import shutil

import pytest
from cluster import BUILD, ROOT

CASES = "place misuse requests crossing relay split"
AGAINST_MPI = BUILD / "tests/collective/mpi/against_mpi"


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """The test program with its library, where every node and user can read them."""
    folder = pathlib.Path("/var/tmp") / f"aml-dist-collective-{os.getpid()}"
    folder.mkdir(mode=0o755)
    shutil.copy(BUILD / "tests/collective/program", folder)
    for library in (BUILD / "lib").glob("libamldist.so*"):
        shutil.copy(library, folder, follow_symlinks=False)
    if AGAINST_MPI.is_file():
        shutil.copy(AGAINST_MPI, folder)
        shutil.copytree(BUILD / "lib/aml-dist", folder / "aml-dist")
    yield f"env LD_LIBRARY_PATH={folder} timeout 60 {{}} {folder}/program"
    shutil.rmtree(folder)


def places(done) -> dict[int, str]:
    lines = re.findall(r"^rank (\d+) of \d+, (.*)$", done.out, re.MULTILINE)
    return {int(rank): rest for rank, rest in lines}


@pytest.mark.parametrize("options", [
    "--mpi=none -N4 -n7", "--mpi=pmix -N4 -n7", "--mpi=pmi2 -N2 -n4 -m cyclic", "--mpi=none -N3 -n7 -m plane=2",
    "--mpi=pmix -N1 -n3", "--mpi=none -N1 -n1", "--aml-dist=pytorch -N4 -n8", "--aml-dist=mpi --mpi=pmix -N2 -n5",
])
def test_a_world_without_set_up(request, cluster, program, options):
    if "pmix" in options:
        request.getfixturevalue("pmix")
    done = cluster.run(f"{program.format('srun ' + options)} {CASES}")
    assert done.status == 0, str(done)
    size = int(re.search(r"-n(\d+)", options)[1])
    found = places(done)
    assert sorted(found) == list(range(size)), str(done)
    hosts = {rank: re.search(r"host (\S+),", rest)[1] for rank, rest in found.items()}
    for rank, rest in found.items():
        mates = [other for other in sorted(hosts) if hosts[other] == hosts[rank]]
        assert f"local {mates.index(rank)} of {len(mates)}," in rest


@pytest.mark.parametrize("example", ["collective_hello", "collective_train", "allreduce.py"])
def test_the_examples_as_they_are(cluster, program, pmix, example):
    """C, C++ (a training that compares its weights with the true ones) and Python through ctypes."""
    folder = program.split("LD_LIBRARY_PATH=")[1].split()[0]
    if example.endswith(".py"):
        shutil.copy(ROOT / "contrib/examples/collective" / example, folder)
        command = f"/usr/bin/python3 {folder}/{example}"
    else:
        shutil.copy(BUILD / "tests/collective" / example, folder)
        command = f"{folder}/{example}"
    done = cluster.run(f"env LD_LIBRARY_PATH={folder} AMLDIST_LIBRARY={folder}/libamldist.so.0 timeout 60 "
                       f"srun -N4 --ntasks-per-node=2 --mpi=pmix {command}")
    assert done.status == 0, str(done)
    assert done.out.strip(), str(done)


def test_the_pairs_of_a_step_are_measured(cluster):
    """By `aml-dist bench --topology`, within a node and between nodes, with a group for each node's ranks."""
    done = cluster.run("timeout 90 srun --aml-dist=pytorch -N2 --ntasks-per-node=2 "
                       f"{BUILD}/bin/aml-dist bench --topology --json")
    assert done.status == 0, str(done)
    found = json.loads(done.out)
    hosts = [each["host"] for each in found["ranks"]]
    assert hosts[0] == hosts[1] != hosts[2] == hosts[3]
    latency = found["latency_ns"]
    assert all(latency[a][b] > 0 for a in range(4) for b in range(4) if a != b)
    assert sorted(rank for group in found["groups"] for rank in group) == [0, 1, 2, 3]


NAMED = r"aml-dist: allreduce #\d+ \(.*\): rank 2 \(local 0\) on node3 (is dead|has not called it)"


def lines_of(done, beginning: str) -> list[str]:
    return [line for line in (done.out + done.err).splitlines() if line.startswith("aml-dist: " + beginning)]


@pytest.mark.parametrize("mpi, how", [("none", "die"), ("none", "late"), ("pmix", "late")])
def test_the_missing_rank_is_named(request, cluster, program, mpi, how):
    if mpi == "pmix":
        request.getfixturevalue("pmix")
    done = cluster.run(f"{program.format(f'srun --mpi={mpi} -N4 -n4')} victim {how} 2 1000")
    assert done.status != 0
    said = lines_of(done, "allreduce #")
    assert len(said) == 1, str(done)
    assert re.match(NAMED, said[0]), said


# Under pmix Slurm kills a step as soon as one of its tasks is killed: the survivors may not live to say who is missing, or
# what they say may not reach srun. The plugin says it then, from the flight recorder and the order of deaths.
@pytest.mark.parametrize("kind", ["pytorch", "mpi"])
@pytest.mark.usefixtures("pmix")
def test_the_killed_rank_is_named_where_slurm_kills_the_step(cluster, program, kind):
    done = cluster.run(f"{program.format(f'srun --mpi=pmix --aml-dist={kind} -N4 -n4')} victim die 2 1000")
    assert done.status != 0
    first = lines_of(done, "first failure")
    assert len(first) == 1, str(done)
    assert re.match(r"aml-dist: first failure: rank 2 \(local 0\) on node3: signal 9 \(SIGKILL\), .*"
                    r"after allreduce #5 \(1000 float32, 4000 bytes\)", first[0]), first[0]
    assert all(re.match(NAMED, line) for line in lines_of(done, "allreduce #"))


# A program that has MPI initialised meets, and moves its data, over that.
@pytest.mark.parametrize("options, carrier", [("--mpi=pmix -N2 -n4", "mpi between 2 nodes"),
                                              ("--mpi=pmix -N4 -n7 -m cyclic", "mpi between 4 nodes"),
                                              ("--mpi=pmix --aml-dist=mpi -N3 -n3", "mpi between 3 nodes")])
@pytest.mark.usefixtures("pmix")
def test_a_program_of_mpi(cluster, program, options, carrier):
    if not AGAINST_MPI.is_file():
        pytest.skip("built without Open MPI")
    line = program.format("srun " + options).replace("/program", "/against_mpi")
    # On a busy machine ranks of MPI that wait for each other without a pause need minutes.
    done = cluster.run(f"env OMPI_MCA_mpi_yield_when_idle=1 {line} 11 200 '{carrier}'")
    assert done.status == 0, str(done)


# mpirun's daemons on other nodes are a step of Slurm of their own, which has no secret of its own kind's.
@pytest.mark.parametrize("flags, comes", [("", False), ("-x AMLDIST_STEP_SECRET", True)])
def test_mpirun_inside_a_step(cluster, program, flags, comes):
    if shutil.which("mpirun") is None:
        pytest.skip("no mpirun")
    ranks = program.format("").replace(" timeout 60 ", " AMLDIST_TEST_INIT_MS=5000 ")
    line = f"mpirun --allow-run-as-root --oversubscribe {flags} -n 2 --map-by node {ranks} place"
    inner = f'[ "$SLURM_PROCID" != 0 ] || exec timeout 40 {line}'
    done = cluster.run("timeout 80 salloc -N2 srun --overlap -N2 --ntasks-per-node=1 --aml-dist=mpi,launch=per-node "
                       f"bash -c '{inner}'")
    if comes:
        assert done.status == 0, str(done)
        assert len(re.findall(r"^rank [01] of 2, .*; authenticated", done.out, re.MULTILINE)) == 2, str(done)
    else:
        said = done.out + done.err
        for has in ("", "no "):
            hint = f"this process has {has}AMLDIST_STEP_SECRET, which mpirun passes to other nodes with -x AMLDIST_STEP_SECRET only"
            assert hint in said, str(done)
