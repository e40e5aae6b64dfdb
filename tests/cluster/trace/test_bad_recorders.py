"""Ranks that do odd things to their process or recorder: the right rank is named all the same, or nobody."""

import re

import pytest
from hang_sentences import OWN, hang_lines

PROGRAM = """import ctypes, glob, os, sys, time
from mpi4py import MPI
world, kind = MPI.COMM_WORLD, sys.argv[1]
own = f'/dev/shm/aml-dist-{os.getuid()}/{os.environ["SLURM_JOB_ID"]}.{os.environ["SLURM_STEP_ID"]}/'
for _ in range(5):
    world.barrier()
if kind == 'vanished' and world.rank == 1:
    for file in glob.glob(own + '*'):
        os.unlink(file)
if kind == 'lies' and world.rank == 1:
    with open(own + '1.mpi.trace', 'rb') as file:
        text = bytearray(file.read())
    text[4096:36864] = os.urandom(32768)
    with open(own + '77.mpi.trace', 'wb') as file:
        file.write(text)
if kind == 'two':
    ctypes.CDLL('libmpich.so.12', mode=ctypes.RTLD_LOCAL)
world.barrier()
if world.rank == 2:
    if kind == 'executes':
        os.execlp('sleep', 'sleep', '100')
    if kind == 'forks':
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
    if kind == 'secret':
        ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE
    time.sleep(100)
world.barrier()
"""
STEP = "env OMPI_MCA_mpi_yield_when_idle=1 timeout 60 srun --mpi=pmix -w node[1-2] -N2 -n4 --ntasks-per-node=2 --aml-dist=mpi,hang=4"
NAMED = {"executes": "(is dead|has not called it)", "forks": "has not called it", "secret": "has not called it", "lies": "has not called it",
         "two": "has not called it", "vanished": None}


@pytest.mark.parametrize("kind", NAMED)
def test_no_innocent_is_named(cluster, pmix, traced_libraries, workdir, kind):
    if cluster.run("/usr/bin/python3 -c 'import mpi4py'").status != 0:
        pytest.skip("no mpi4py")
    (workdir / "program.py").write_text(PROGRAM)
    done = cluster.run(f"cd {workdir} && {STEP} /usr/bin/python3 program.py {kind}", user="alice")
    lines = hang_lines(done)
    named = [rank for line in lines for rank in re.findall(r"rank (\d+) \(local \d+\)", line)]
    assert set(named) <= {"2"}, done
    if NAMED[kind]:
        assert done.status == 75 and len(lines) == 1 and re.search(rf"barrier #\d+: {re.escape(OWN)} {NAMED[kind]}", lines[0]), done
