// Every rank says who it is to MPI, to PMIx and to its environment; all three must agree. Then the ranks are summed.
//
//   mpicxx -o ranks ranks.cpp && srun --mpi=pmix -N2 -n4 --aml-dist=mpi ./ranks
//
// Exit status 1: a rank, a size or a local rank differs, or the sum is wrong.
#include <mpi.h>

#include <cstdio>
#include <cstdlib>

namespace {

int disagreements = 0;

/// Compares a number of MPI's with a variable of the environment.
void compare(const char* variable, int rank, int value) {
  const char* const text = std::getenv(variable);
  if (text != nullptr && std::atoi(text) == value) return;
  std::printf("rank %d: MPI says %d but %s is %s\n", rank, value, variable, text != nullptr ? text : "not set");
  ++disagreements;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm node = MPI_COMM_NULL;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
  int local_rank = 0;
  int local_size = 0;
  MPI_Comm_rank(node, &local_rank);
  MPI_Comm_size(node, &local_size);

  for (const char* const name : {"RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID"})
    compare(name, rank, rank);
  for (const char* const name : {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"}) compare(name, rank, size);
  for (const char* const name : {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"}) compare(name, rank, local_rank);
  for (const char* const name : {"LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"}) compare(name, rank, local_size);

  int sum = 0;
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  int all_disagreements = 0;
  MPI_Allreduce(&disagreements, &all_disagreements, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  const bool good = sum == size * (size - 1) / 2 && all_disagreements == 0;
  if (rank == 0) {
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    MPI_Get_library_version(version, &length);
    for (char* at = version; *at != '\0'; ++at) {
      if (*at == ',' || *at == '"' || *at == '\n') *at = '\0';  // the first words say which MPI this is
    }
    std::printf(
        "result: {\"framework\": \"mpi\", \"version\": \"%s\", \"world_size\": %d, \"rank_sum\": %d, "
        "\"disagreements\": %d, \"good\": %s}\n",
        version, size, sum, all_disagreements, good ? "true" : "false");
  }
  MPI_Finalize();
  return good ? 0 : 1;
}
