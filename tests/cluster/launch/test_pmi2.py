"""Kind mpi over Slurm's own PMI-2, for a Slurm without PMIx (Debian's 26.05): programs of MPICH, unmodified."""

import pathlib
import shutil
import tempfile

import pytest
from cluster import READABLE

# MPI_Finalize of Debian 12's MPICH 4.0 does not always return beside programs that compute, without the plugin as well.
PROGRAM = """
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int argc, char** argv) {
  int rank, size, sum, dies = argc > 1 ? atoi(argv[1]) : -1;
  char version[MPI_MAX_LIBRARY_VERSION_STRING];
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Get_library_version(version, &sum);
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == dies) exit(7);
  printf("%d of %d sum %d, %s of %s, %s\\n", rank, size, sum, getenv("OMPI_COMM_WORLD_RANK"), getenv("OMPI_COMM_WORLD_SIZE"),
         strncmp(version, "MPICH", 5) == 0 ? "MPICH" : version);
  fflush(stdout);
  if (dies >= 0) MPI_Barrier(MPI_COMM_WORLD);
  _exit(0);
}
"""


@pytest.fixture(scope="module")
def program(cluster):
    if cluster.run("command -v mpicc.mpich").status != 0:
        pytest.skip("MPICH is not installed in the root of this Slurm (libmpich-dev)")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="aml-dist-pmi2-", dir="/var/tmp"))
    folder.chmod(0o755)
    (folder / "program.c").write_text(PROGRAM)
    done = cluster.run(f"mpicc.mpich -o {folder}/program {folder}/program.c")
    assert done.status == 0, str(done)
    yield folder / "program"
    shutil.rmtree(folder)


@pytest.mark.parametrize("layout", ["-N1 -n3", "-N2 -n4", "-N2 -n4 -m cyclic", "-N4 -n7"])
def test_a_program_of_mpich_and_its_environment_agree(cluster, program, layout):
    tasks = int(layout.split("-n")[1].split()[0])
    # UCX prints a line where a rank that is late connects to one that is ending; MPICH goes on without that connection.
    done = cluster.run(f"UCX_LOG_LEVEL=fatal srun --mpi=pmi2 {layout} --aml-dist=mpi {program}")
    total = sum(range(tasks))
    assert done.status == 0 and not done.own_lines(), str(done)
    assert sorted(done.out.splitlines()) == [f"{rank} of {tasks} sum {total}, {rank} of {tasks}, MPICH" for rank in range(tasks)], str(done)


@pytest.mark.parametrize("flags, hosts", [
    ("-ppn 2 -hosts node1,node2 -n 6", [1, 1, 2, 2, 1, 1]), ("-hosts node2:1,node1:2 -n 4", [2, 1, 1, 2]), ("-rr -hosts node1,node3 -n 3", [1, 3, 1]),
    ("-ppn 2 -hosts node1,node2 -n 8", [1, 1, 2, 2, 1, 1, 2, 2]), ("-ppn 1 -n 2 --slurm=--nodelist=node1,node2", [1, 2])])
def test_hydras_command_line_runs_the_program_where_hydra_would(cluster, program, flags, hosts):
    show = f"sh -c '{program}; echo place $RANK $SLURMD_NODENAME $GREETING'"
    done = cluster.run(f"UCX_LOG_LEVEL=fatal {READABLE}/aml-mpirun {flags} -genv GREETING=hello --slurm=--overcommit {show}")
    assert done.status == 0 and not done.own_lines(), str(done)
    assert sum(f"of {len(hosts)} sum {sum(range(len(hosts)))}" in line for line in done.out.splitlines()) == len(hosts), str(done)
    places = sorted(line.split()[1:] for line in done.out.splitlines() if line.startswith("place "))
    assert places == [[str(rank), f"node{host}", "hello"] for rank, host in enumerate(hosts)], str(done)


def test_the_first_failure_is_told(cluster, program):
    done = cluster.run(f"srun --mpi=pmi2 -K -N2 -n4 --aml-dist=mpi {program} 2")
    assert done.status != 0 and any("first failure: rank 2" in line and "exit status 7" in line for line in done.own_lines()), str(done)


def test_without_it_there_is_advice(cluster, program):
    done = cluster.run(f"srun --mpi=none -N2 -n2 --aml-dist=mpi {program}")
    assert any("this step has no PMI" in line for line in done.own_lines()), str(done)
