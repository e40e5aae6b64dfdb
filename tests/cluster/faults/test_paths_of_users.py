"""In slurmstepd no call of the kernel as root takes a path that holds anything of the user's: such a call would tell the
user what only root can see, and wait for a file system that the user controls."""

import os
import pathlib
import re
import shutil
import subprocess
import time

import causes
import pytest
from cluster import BUILD, DEVCLUSTER
from conftest import PLUGIN
from system_calls import of_slurmstepd, recorded

HERE = pathlib.Path(__file__).resolve().parents[1]
LIBRARIES = pathlib.Path(os.environ.get("AMLDIST_TRACE_LIBRARIES", BUILD / "lib/aml-dist"))
ALICE = 20001
#: In every path and name that the user chooses below.
MARK = "users-own"
OURS = (MARK, f"aml-dist-{ALICE}")  # below /dev/shm and /tmp: the user's, too
VARIABLES = ("AMLDIST_TRACE_DIR AMLDIST_END_RECORD AMLDIST_STOP_FILE NCCL_PROFILER_PLUGIN AMLDIST_NCCL_PROFILER LD_LIBRARY_PATH "
             "NCCL_IB_HCA UCX_NET_DEVICES NCCL_SOCKET_IFNAME GLOO_SOCKET_IFNAME AMLDIST_RDMA_SKU AMLDIST_SKU_FILE "
             "AMLDIST_SYSFS_ROOT AMLDIST_CONFIG HOME TMPDIR XDG_RUNTIME_DIR PYTHONPATH TORCHELASTIC_ERROR_FILE").split()
KINDS = ["pytorch", "pytorch,launch=per-node", "mpi", "jax", "tensorflow,worker_count=1,parameter_server_count=1"]

pytestmark = pytest.mark.skipif(shutil.which("strace") is None, reason="no strace (contrib/setup/install-packages test)")


@pytest.fixture
def own(workdir):
    """The user's folder, with a program that is found by PATH and ends well, or badly as rank 1."""
    folder = workdir / MARK
    (folder / "bin").mkdir(parents=True)
    (folder / "trace").mkdir()
    (folder / "bin/users-own-program").write_text('#!/bin/sh\nsleep 3; [ "${SLURM_PROCID-}" != 1 ]\n')
    (folder / "bin/users-own-program").chmod(0o755)
    for each in (folder, *folder.iterdir()):
        shutil.chown(each, ALICE)
    return folder


def settings(own) -> str:
    chosen = " ".join(f"{name}={own}/trace" for name in VARIABLES)
    return f"cd {own} && export {chosen} PATH={own}/bin:$PATH; "


def by_root_about_users(log: pathlib.Path) -> set[str]:
    return {call.shape() for call in of_slurmstepd(log.read_text(errors="replace"))
            if call.user == 0 and any(mark in call.text for mark in OURS)}


@pytest.fixture
def of_slurm(cluster, workdir, own):
    """What Slurm itself does as root with a step of this user."""
    log = workdir / "slurm.log"
    with recorded(cluster, "node1", log):
        cluster.run(f"{settings(own)} srun -w node1 -N1 -n2 -O users-own-program", user="alice")
    calls = of_slurmstepd(log.read_text(errors="replace"))
    assert any(call.user == ALICE and MARK in call.text for call in calls), "strace did not see the step"
    return by_root_about_users(log)


@pytest.mark.parametrize("kind", KINDS)
def test_no_path_of_the_users_is_looked_up_by_root(cluster, workdir, own, of_slurm, kind):
    log = workdir / "ours.log"
    tasks = "-N1 -n1" if "per-node" in kind else "-N1 -n2 -O"
    with recorded(cluster, "node1", log):
        done = cluster.run(f"{settings(own)} srun -w node1 {tasks} --aml-dist={kind},trace,hang=1,rdma=prefer,health=prefer "
                           "users-own-program", user="alice")
    assert "invalid" not in done.err and "unknown" not in done.err, str(done)
    assert by_root_about_users(log) - of_slurm == set(), str(done)


@pytest.fixture
def mpi_faults(cluster, pmix, workdir):
    if cluster.run("command -v mpicc").status != 0 or not (LIBRARIES / "libamldist-mpitrace-preload.so").is_file():
        pytest.skip("no mpicc, or the libraries that record were not built")
    for source in (HERE / "mpi_faults.c", HERE / "idle_yield.c", *LIBRARIES.glob("libamldist-mpitrace-*.so")):
        shutil.copy(source, workdir)
    built = cluster.run(f"cd {workdir} && mpicc -O1 -rdynamic -o mpi_faults mpi_faults.c idle_yield.c", timeout=60)
    assert built.status == 0, str(built)
    subprocess.run(["chmod", "-R", "a+rX", workdir], check=True)
    assert cluster.devcluster("plugin", PLUGIN, f"trace_libraries={workdir}").status == 0
    yield f"{workdir}/mpi_faults"
    assert cluster.devcluster("plugin", PLUGIN).status == 0


@pytest.mark.parametrize("fault", ["late", "exited", "none"])
def test_recorders_are_looked_up_as_the_user(cluster, mpi_faults, workdir, own, of_slurm, fault):
    """A hang, for which each node sends the states and stacks of its ranks; a rank that leaves without MPI_Finalize; and
    a step that ends well."""
    log = workdir / "ours.log"
    with recorded(cluster, "node1", log):
        done = cluster.run(f"{settings(own)} export OMPI_MCA_mpi_yield_when_idle=1; srun --mpi=pmix -w node1 -N1 -n4 -O "
                           f"--aml-dist=mpi,hang=1 {mpi_faults} {fault} 1 5", user="alice")
    assert ("aml-dist: hang: " in done.err) == (fault == "late"), str(done)
    assert by_root_about_users(log) - of_slurm == set(), str(done)


@pytest.fixture(params=["", "taken"], ids=["not taken", "taken"])
def dead_folder(cluster, workdir, request):
    """A folder on node1 whose file system never answers anybody, or only about the folder itself."""
    folder = workdir / "dead"
    folder.mkdir()
    command = [str(DEVCLUSTER), "run", "--name", cluster.name, "--on", "node1", "--", str(HERE / "faults/dead_file_system"),
               str(folder), str(ALICE), *request.param.split()]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if server.stdout.readline() != "mounted\n":
        pytest.skip(f"no FUSE here: {server.communicate()[1]}")
    yield folder
    cluster.run("pkill -f dead_file_system", on="node1")  # what waits for it gets an error now
    server.communicate(timeout=20)
    assert cluster.run(f"umount {folder}", on="node1").status == 0


# strace would wait for who waits in the kernel.
only_not_taken = pytest.mark.parametrize("dead_folder", [""], indirect=True)
only_taken = pytest.mark.parametrize("dead_folder", ["taken"], indirect=True)


def check_that_slurmstepds_end(cluster) -> None:
    """But for copies that wait in the kernel for an answer, and that no signal ends."""
    gone = cluster.run("for i in $(seq 100); do ps -C slurmstepd -o stat=,pid= | grep -v '^D' || exit 0; sleep 0.1; done >&2; exit 1", on="node1")
    assert gone.status == 0, str(gone)


@only_not_taken
def test_a_file_system_that_never_answers_is_asked_less_and_less_often(cluster, workdir, dead_folder):
    """Each look is a process that is killed after five seconds: without a back-off there would be seven in this time."""
    log = workdir / "ours.log"
    with recorded(cluster, "node1", log):
        done = cluster.run(f"export AMLDIST_TRACE_DIR={dead_folder}; srun -w node1 -N1 -n1 --aml-dist=mpi,hang=1 sleep 45", user="alice")
    assert done.status == 0, str(done)
    looks = [call for call in of_slurmstepd(log.read_text(errors="replace")) if str(dead_folder) in call.text]
    of_the_watch = [call for call in looks if ".trace" in call.text]
    assert 2 <= len(of_the_watch) <= 4 and {call.user for call in looks} == {ALICE}, looks
    assert len(looks) <= len(of_the_watch) + 1, "one when the task has ended"


@pytest.mark.parametrize("kind", ["mpi", "pytorch,rdma=prefer,health=prefer"])
def test_a_file_system_that_never_answers_holds_up_no_slurmstepd(cluster, workdir, dead_folder, kind):
    """The recorders' folder is there. The program itself does not look."""
    step = f"srun -w node1 -N1 -n2 -O --aml-dist={kind},hang=1 sh -c 'sleep 4; exit $SLURM_PROCID'"
    began = time.monotonic()
    done = cluster.run(f"export AMLDIST_TRACE_DIR={dead_folder}; {step}", user="alice")
    assert done.status == 1 and "aml-dist: first failure: rank 1 " in done.err, str(done)
    check_that_slurmstepds_end(cluster)
    assert time.monotonic() - began < 30


@only_taken
@pytest.mark.parametrize("place", ["export AMLDIST_TRACE_DIR={}/trace", "cd {}", "export HOME={0} XDG_RUNTIME_DIR={0}/run", "export AMLDIST_END_RECORD={}/end.json",
                                   "export TORCHELASTIC_ERROR_FILE={}/error.json", "cd {0} && export AMLDIST_END_RECORD=end.json AMLDIST_TRACE_DIR=trace"])
def test_wherever_it_is_the_step_ends(cluster, dead_folder, place):
    """srun is on the node, too. A rank fails; who did is said, and what could not be written."""
    began = time.monotonic()
    done = cluster.run(f"{place.format(dead_folder)}; srun -w node1 -N1 -n2 -O --aml-dist=mpi,hang=1 /bin/sh -c 'sleep 4; exit $SLURM_PROCID'",
                       user="alice", on="node1", timeout=60)
    told = ["the record of this step's end is not written: its file system does not answer"] if "END_RECORD" in place else []
    assert done.status == 1 and "aml-dist: first failure: rank 1 " in done.err, str(done)
    assert [line for line in told if f"aml-dist: {line}" not in done.err] == [], str(done)
    check_that_slurmstepds_end(cluster)
    assert time.monotonic() - began < 40


HANG = """import time, amldist
comm = amldist.init()
if comm.rank == 1:
    time.sleep(100)
comm.barrier()
"""


@only_taken
def test_a_step_that_hangs_there_is_ended(cluster, workdir, dead_folder):
    """As where the file system is why it hangs: neither the report nor the record can be written beside the program's files."""
    if not causes.LIBRARY.is_file():
        pytest.skip("libamldist was not built")
    causes.prepare(workdir)
    shutil.copytree(causes.ROOT / "libdist/api/python/amldist", workdir / "amldist")
    (workdir / "hang.py").write_text(HANG)
    began = time.monotonic()
    done = cluster.run(f"cd {dead_folder}; export AMLDIST_END_RECORD={dead_folder}/end.json AMLDIST_LIBRARY={workdir}/libamldist.so.0 PYTHONPATH={workdir}; "
                       f"srun -w node1 -N1 -n2 -O --aml-dist=pytorch,hang=1 /usr/bin/python3 {workdir}/hang.py", user="alice", on="node1", timeout=60)
    assert done.status == 75 and re.search("aml-dist: hang: barrier #.*; its stack is in /tmp/aml-dist-hang-", done.err), str(done)
    assert "the record of this step's end is not written" in done.err, str(done)
    check_that_slurmstepds_end(cluster)
    assert time.monotonic() - began < 50
