// The command lines of `ray start`. Pure.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "aml_dist/ray/place.hpp"
#include "aml_dist/ray/program.hpp"
#include "aml_dist/ray/resources.hpp"
#include "base/text/result.hpp"

namespace amldist::ray {

/// What the user asked for.
struct Wishes {
  std::vector<std::string> head_arguments;    ///< of `ray start` on the head
  std::vector<std::string> worker_arguments;  ///< and on the other nodes
  std::optional<std::uint16_t> dashboard;     ///< its port; 0: the step's
};

/// What the whole command line of `aml-dist ray` says.
struct Options {
  Wishes wishes;
  std::vector<std::string> command;  ///< the driver's
  std::string parent = "/tmp";       ///< of the step's folder
  bool keep_on_failure = false;
  std::chrono::seconds patience{300};  ///< until all nodes have joined
  std::chrono::seconds grace{20};      ///< from a signal that ends the step to SIGKILL
};

/// Errors: invalid_argument for a flag that aml-dist sets itself, with what to use instead.
[[nodiscard]] Result<void> check_arguments(const std::vector<std::string>& arguments);

/// `ray start` for this node, which stays in front of the processes that it starts. `folder`: the step's, on this
/// node. The user's words come last, and a size that they name replaces ours.
[[nodiscard]] std::vector<std::string> start_command(const Program& program, const Place& place, const Ipv4& own,
                                                     const Resources& resources, const Wishes& wishes,
                                                     const std::string& folder);

/// The port of the dashboard, if there is one.
[[nodiscard]] std::optional<std::uint16_t> dashboard_port(const Place& place, const Wishes& wishes);

}  // namespace amldist::ray
