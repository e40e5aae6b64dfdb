// What the command line of `aml-dist ray` says.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "aml_dist/ray/arguments.hpp"

namespace amldist::ray {

struct Options {
  Wishes wishes;
  std::vector<std::string> command;  ///< the driver's
  std::string parent = "/tmp";       ///< of the step's folder
  bool keep_on_failure = false;
  std::chrono::seconds patience{300};  ///< until all nodes have joined
  std::chrono::seconds grace{20};      ///< from a signal that ends the step to SIGKILL
};

}  // namespace amldist::ray
