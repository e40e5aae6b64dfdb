// The checks between nodes, made by the processes of a program themselves: one of each node reads sysfs and writes over
// every judged port to the next node; the others only listen. Four exchanges, for any number of nodes.
//
//   1  each node's summary, and where its ports can be written to
//   2  everybody is connected
//   3  everybody has written
//   4  what came of it
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/result.hpp"
#include "fabric/checks.hpp"
#include "fabric/question.hpp"

namespace amldist::fabric {

/// One process among all of a program.
struct WorldPlace {
  std::uint32_t rank = 0;
  std::uint32_t node = 0;  ///< in the order of the nodes' lowest ranks
  std::uint32_t nodes = 1;
  bool leads = true;  ///< it speaks for its node: its lowest rank
  std::string host;
};

/// Gives this rank's text to all, and returns everybody's by rank. Called by all ranks equally often. Errors: those of
/// whoever carries the texts; they end the verification.
using Exchange = std::function<Result<std::vector<std::string>>(const std::string& own)>;

/// The same on every rank.
struct WorldVerdict {
  std::string failure;                ///< empty: verified; else the first failed check with evidence and remedy
  std::vector<std::string> warnings;  ///< what only shows between nodes, and fails nothing
  Report report;
};

/// Verifies the fabric between the nodes. Every rank calls it, also one without a question of its own: its error is
/// then its node's failed check, which all hear of. Errors: those of the exchange; mismatch when the ranks' texts are
/// no verification.
[[nodiscard]] Result<WorldVerdict> verify_world(const WorldPlace& place, const Result<Question>& question,
                                                const Roots& roots, const Exchange& exchange,
                                                std::chrono::milliseconds timeout = std::chrono::seconds(10));

}  // namespace amldist::fabric
