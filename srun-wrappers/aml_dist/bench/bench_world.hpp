// This process as a rank of a step that a launcher started (srun, mpirun), or alone.
#pragma once

#include <memory>
#include <string>

#include "aml_dist/bench/bench_plan.hpp"
#include "base/text/result.hpp"

struct amldist_comm;

namespace amldist::tools {

/// libamldist's world, through its public C interface.
class World {
 public:
  [[nodiscard]] static Result<World> join();

  [[nodiscard]] amldist_comm* comm() const noexcept { return comm_.get(); }
  [[nodiscard]] int rank() const noexcept;
  [[nodiscard]] int size() const noexcept;
  /// "authenticated", "unproven" or "open"; empty for a world of one rank.
  [[nodiscard]] std::string trust() const;

  /// Collective: returns rank 0's value.
  [[nodiscard]] Result<bool> told_by_rank_0(bool own) const;

  /// Every rank gets the same result: the slowest time, the sum of wrong elements.
  [[nodiscard]] MeasuredLibrary library() const;

  /// Serves requests on a socket: the other side of LocalRanks.
  [[nodiscard]] int serve(const std::string& socket) const;

 private:
  struct Finalize {
    void operator()(amldist_comm* comm) const noexcept;
  };
  std::unique_ptr<amldist_comm, Finalize> comm_;
};

/// The sentence of libamldist's last failed call.
[[nodiscard]] Error library_error();

}  // namespace amldist::tools
