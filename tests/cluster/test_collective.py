"""Communicators in real steps: every MPI type, every layout, and a rank that is killed."""

import os
import pathlib
import re
import shutil

import pytest
from cluster import BUILD

CASES = "place misuse requests split"


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """The test program with its library, where every node and user can read them."""
    folder = pathlib.Path("/var/tmp") / f"aml-dist-collective-{os.getpid()}"
    folder.mkdir(mode=0o755)
    shutil.copy(BUILD / "tests/collective/program", folder)
    for library in (BUILD / "lib").glob("libamldist.so*"):
        shutil.copy(library, folder, follow_symlinks=False)
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


# The survivors end with their error, but what they print does not reach srun's output: seen with "Force Terminated". That
# Slurm ends the step too soon is the likely cause, not a proven one.
LOST_LINE = pytest.mark.xfail(strict=False, reason="under pmix a killed rank's step ends before the line is read")


@pytest.mark.parametrize("mpi, how", [("none", "die"), ("none", "late"), ("pmix", "late"),
                                      pytest.param("pmix", "die", marks=LOST_LINE)])
def test_the_missing_rank_is_named(request, cluster, program, mpi, how):
    if mpi == "pmix":
        request.getfixturevalue("pmix")
    done = cluster.run(f"{program.format(f'srun --mpi={mpi} -N4 -n4')} victim {how} 2 1000")
    assert done.status != 0
    said = [line for line in (done.out + done.err).splitlines() if line.startswith("aml-dist: rank")]
    assert len(said) == 1, str(done)
    assert said[0].startswith("aml-dist: rank 2 (node3) is missing in allreduce #"), said
