// The checks between nodes, run by a program's own processes. The leader of each node reads sysfs and writes over every
// judged port to the next node; the other ranks only take part in the exchanges. There are four, for any number of
// nodes:
//
//   1  each node's summary and the addresses of its ports
//   2  all nodes are connected
//   3  all nodes have written
//   4  the results
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/text/result.hpp"
#include "fabric/checks/check_request.hpp"
#include "fabric/checks/checks.hpp"

namespace amldist::fabric {

/// One process of a program.
struct WorldPlace {
  std::uint32_t rank = 0;
  std::uint32_t node = 0;  ///< in the order of the nodes' lowest ranks
  std::uint32_t nodes = 1;
  bool leads = true;  ///< it is the leader of its node: the lowest rank
  std::string host;
};

/// Sends this rank's text to all ranks and returns all texts by rank. All ranks call it equally often. Errors: those of
/// the transport; they end the verification.
using Exchange = std::function<Result<std::vector<std::string>>(const std::string& own)>;

/// The same on every rank.
struct WorldReport {
  std::string failure;                ///< empty if verified; else the first failed check with evidence and remedy
  std::vector<std::string> warnings;  ///< warnings that only the comparison of nodes shows
  Report report;
};

/// Verifies the fabric between the nodes. Every rank calls it, even if its own request is an error: then that error is
/// its node's failed check, and all ranks learn of it. Errors: those of the exchange; mismatch for malformed texts.
[[nodiscard]] Result<WorldReport> verify_world(const WorldPlace& place, const Result<CheckRequest>& request,
                                               const Roots& roots, const Exchange& exchange,
                                               std::chrono::milliseconds timeout = std::chrono::seconds(10));

}  // namespace amldist::fabric
