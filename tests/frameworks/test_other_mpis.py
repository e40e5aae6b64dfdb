"""MPIs from PyPI under `trace` and `hang=` on the real cluster: `tests/frameworks/install --mpis` installs them.

The program is that of tests/cluster/trace/test_hang.py, which does the same with Debian's Open MPI 4.1.
"""

from __future__ import annotations

import os
import pathlib
import random
import re
import shutil
import time

import pytest
from conftest import FOLDER, ROOT, VENV, need, readable_copy
from hang_sentences import OWN, SENTENCES, hang_lines
from other_mpis import MPIS, compile_for, is_installed, variables_of

SEED = int(os.environ.get("AMLDIST_HANG_SEED", time.strftime("%Y%m%d")))
LIBRARIES = pathlib.Path(os.environ.get("AMLDIST_TRACE_LIBRARIES", ROOT / "build-development/lib/aml-dist"))
STEP = "-w node[1-2] -N2 -n4 --ntasks-per-node=2"
#: One trial of each for each MPI; the hundreds of trials are those of Open MPI 4.1. No circle of sends and no other root or
#: count: some of these MPIs take in a megabyte that nobody has asked for, and the program ends well.
KINDS = ("late", "stopped", "skipped", "finalize", "communicator", "operation", "message", "gather", "serve", "file", "ahead", "persistent",
         "prepared", "unprepared")


@pytest.fixture(scope="module")
def tracing(cluster):
    """The plugin knows where the libraries that record are."""
    if not (LIBRARIES / "libamldist-mpitrace-preload.so").is_file():
        pytest.skip("the libraries that record MPI were not built")
    folder = pathlib.Path(f"/var/tmp/aml-dist-other-mpis-{os.getpid()}")
    (folder / "lib").mkdir(parents=True)
    for each in LIBRARIES.glob("libamldist-mpitrace-*.so"):
        shutil.copy(each, folder / "lib")
    plugin = os.environ.get("AMLDIST_PLUGIN", ROOT / "build-development/lib/slurm/spank_aml_dist.so")
    assert cluster.devcluster("plugin", str(readable_copy(pathlib.Path(plugin))), f"trace_libraries={folder}/lib").status == 0
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module", params=MPIS)
def launch(request, tracing):
    """launch(KIND, SEED, ROUNDS): srun's command for the program that is compiled with this MPI."""
    name = request.param
    if not is_installed(name, FOLDER):
        pytest.skip(f"{name} is not installed: tests/frameworks/install --mpis")
    program = tracing / f"mpi_faults-{name}"
    compile_for(name, FOLDER, ROOT / "tests/cluster/mpi_faults.c", program)
    return lambda hang, kind, seed, rounds: (f"{variables_of(name, FOLDER)} timeout 80 srun --mpi={MPIS[name].pmi} {STEP} "
                                             f"--aml-dist=mpi,hang={hang} {program} {kind} {seed} {rounds}")


@pytest.fixture
def workdir():
    folder = pathlib.Path(f"/var/tmp/aml-dist-other-mpis-work-{os.getpid()}")
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("kind", KINDS)
def test_the_right_rank_is_named_and_the_step_ended(cluster, launch, workdir, kind):
    seed = random.Random(f"{SEED} {kind}").randrange(1 << 30)
    done = cluster.run(f"cd {workdir} && {launch(1, kind, seed, 5)}")
    lines = hang_lines(done)
    assert len(lines) == 1 and done.status == 75, f"seed {seed}: {done}"
    said = re.fullmatch(r"aml-dist: hang: (.*); its stack is in (aml-dist-hang-\d+\.\d+\.txt)", lines[0])
    assert said and re.fullmatch(SENTENCES[kind], said[1]), f"seed {seed}: {lines[0]}"


def test_nobody_is_named_in_a_healthy_run_with_pauses(cluster, launch, workdir):
    done = cluster.run(f"cd {workdir} && {launch(3, 'none', SEED, 20)}")
    assert done.status == 0 and not hang_lines(done), done
    assert not list(workdir.iterdir())


MPI4PY = """import sys, time
from mpi4py import MPI
world = MPI.COMM_WORLD
half = world.Split(world.rank % 2)
for _ in range(3):
    assert world.allreduce(1) == 4 and world.allgather('x' * world.rank) == ['', 'x', 'xx', 'xxx']
    half.barrier()
if world.rank == 2:
    time.sleep(1000)
world.barrier()
"""


def test_mpi4py_of_pypi_is_traced(cluster, workdir, tracing):
    """Its wheel looks for the calls with large counts, which Open MPI 5 does not have: our names must not mislead it."""
    need("mpi4py")
    (workdir / "late.py").write_text(MPI4PY)
    for name in ("openmpi", "mpich", "impi"):
        if not is_installed(name, FOLDER):
            pytest.skip(f"{name} is not installed: tests/frameworks/install --mpis")
        line = (f"{variables_of(name, FOLDER)} MPI4PY_MPIABI={'openmpi' if name == 'openmpi' else 'mpich'} timeout 80 "
                f"srun --mpi={MPIS[name].pmi} {STEP} --aml-dist=mpi,hang=1 {VENV}/bin/python late.py")
        done = cluster.run(f"cd {workdir} && {line}")
        lines = hang_lines(done)
        assert done.status == 75 and len(lines) == 1 and "barrier #" in lines[0] and f": {OWN} has not called it" in lines[0], done
