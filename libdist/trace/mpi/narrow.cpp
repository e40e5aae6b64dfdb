#include "trace/mpi/narrow.hpp"

#include <mutex>
#include <set>

namespace amldist::trace::mpi {
namespace {

int number_by(const char* name, MPI_Comm comm) noexcept {
  auto* const ask = find_real_as<int(MPI_Comm, int*)>(name);
  int number = 0;
  return ask != nullptr && ask(comm, &number) == 0 ? number : 0;
}

#ifdef AMLDIST_MPI_HANDLES_ARE_NUMBERS
constexpr int graph = 1;
constexpr int cartesian = 2;
#else
constexpr int cartesian = 1;
constexpr int graph = 2;
#endif
constexpr int distributed_graph = 3;

}  // namespace

Lengths Lengths::of_members(MPI_Comm comm) noexcept {
  const bool has_two_groups = number_by("PMPI_Comm_test_inter", comm) != 0;
  const int members = number_by(has_two_groups ? "PMPI_Comm_remote_size" : "PMPI_Comm_size", comm);
  return {members, members};
}

Lengths Lengths::of_own_group(MPI_Comm comm) noexcept {
  const int members = number_by("PMPI_Comm_size", comm);
  return {members, members};
}

Lengths Lengths::of_neighbors(MPI_Comm comm) noexcept {
  const int topology = number_by("PMPI_Topo_test", comm);
  if (topology == cartesian) {
    const int neighbors = 2 * number_by("PMPI_Cartdim_get", comm);
    return {neighbors, neighbors};
  }
  if (topology == graph) {
    auto* const ask = find_real_as<int(MPI_Comm, int, int*)>("PMPI_Graph_neighbors_count");
    int neighbors = 0;
    if (ask == nullptr || ask(comm, number_by("PMPI_Comm_rank", comm), &neighbors) != 0) return {};
    return {neighbors, neighbors};
  }
  if (topology != distributed_graph) return {};
  auto* const ask = find_real_as<int(MPI_Comm, int*, int*, int*)>("PMPI_Dist_graph_neighbors_count");
  int in = 0;
  int out = 0;
  int weighted = 0;
  if (ask == nullptr || ask(comm, &in, &out, &weighted) != 0) return {};
  return {out, in};
}

const int* Narrow::keep(std::vector<int> numbers) {
  static std::mutex mutex;
  static auto* const kept = new std::set<std::vector<int>>;  // never destroyed: requests may outlive static objects
  const std::lock_guard lock(mutex);
  return kept->insert(std::move(numbers)).first->data();
}

}  // namespace amldist::trace::mpi
