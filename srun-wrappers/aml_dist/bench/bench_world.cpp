#include "aml_dist/bench/bench_world.hpp"

#include <amldist/amldist.h>

#include "aml_dist/bench/programs/library_amldist.h"
#include "base/text/text.hpp"

namespace amldist::tools {
namespace {

/// Combines all ranks' results into one that all ranks get.
Result<bench_result> combine(amldist_comm* comm, const bench_result& own) {
  double slowest[2] = {own.microseconds, static_cast<double>(own.status)};
  std::uint64_t wrong = own.wrong;
  if (amldist_allreduce(comm, slowest, slowest, 2, AMLDIST_FLOAT64, AMLDIST_MAX) != AMLDIST_OK ||
      amldist_allreduce(comm, &wrong, &wrong, 1, AMLDIST_UINT64, AMLDIST_SUM) != AMLDIST_OK) {
    return library_error();
  }
  return bench_result{slowest[0], wrong, static_cast<int>(slowest[1])};
}

Result<bench_result> measure(amldist_comm* comm, const bench_request& request) {
  const bench_library library = bench_library_amldist(comm);
  const bench_result own = bench_measure(&library, &request);
  if (own.status == BENCH_FAILED) return library_error();
  const auto all = combine(comm, own);
  if (all && all->status == BENCH_NO_MEMORY) return Error{Errc::internal, "bench: no memory for the buffers"};
  return all;
}

}  // namespace

Error library_error() { return {Errc::unavailable, amldist_last_error()}; }

void World::Finalize::operator()(amldist_comm* comm) const noexcept { amldist_finalize(comm); }

Result<World> World::join() {
  World world;
  amldist_comm* comm = nullptr;
  if (amldist_init(&comm, 0) != AMLDIST_OK) return library_error();
  world.comm_.reset(comm);
  return world;
}

int World::rank() const noexcept { return amldist_rank(comm_.get()); }
int World::size() const noexcept { return amldist_size(comm_.get()); }

std::string World::trust() const {
  for (const std::string_view part : text::split(amldist_provenance(comm_.get()), ';')) {
    const std::string_view word = text::trim(part);
    if (word == "authenticated" || word == "unproven" || word == "open") return std::string(word);
  }
  return {};
}

Result<bool> World::told_by_rank_0(bool own) const {
  std::int32_t word = own ? 1 : 0;
  if (amldist_broadcast(comm_.get(), &word, 1, AMLDIST_INT32, 0) != AMLDIST_OK) return library_error();
  return word == 1;
}

MeasuredLibrary World::library() const {
  return {"amldist", size(), [comm = comm_.get()](const bench_request& request) { return measure(comm, request); }};
}

int World::serve(const std::string& socket) const {
  const bench_library library = bench_library_amldist(comm_.get());
  return bench_serve(&library, socket.c_str());
}

}  // namespace amldist::tools
