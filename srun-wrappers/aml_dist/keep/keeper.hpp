// `aml-dist keep`: starts a step, decides what follows from its end, and starts it again.
#pragma once

#include <string>
#include <vector>

#include "aml_dist/keep/keep_policy.hpp"
#include "aml_dist/keep/node_health.hpp"
#include "aml_dist/keep/srun_line.hpp"

namespace amldist::keep {

struct KeepOptions {
  std::vector<std::string> words = {};  ///< after "--"
  Limits limits = {};
  std::uint32_t spares = 0;
  std::chrono::seconds grace{0};
  std::string checkpoints = {};  ///< a folder
  std::string progress = {};     ///< a file or a command
  HealthCheck health = HealthCheck::quick;
  bool json = false;
};

/// The exit status of the command.
[[nodiscard]] int keep_alive(KeepOptions options);

}  // namespace amldist::keep
