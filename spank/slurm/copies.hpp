// Two lines of plugstack.conf that load this plugin. Two that act would each claim the port and set the environment.
#pragma once

#include <string>

namespace amldist::spank {

/// Paths of one plugin that this process has loaded twice.
struct Copies {
  std::string first;  ///< empty: there is no other before this one
  std::string own;
};

/// Whether a file of our name was loaded before the one that this code is from. The first of the two is in charge; so
/// it is with an older release, which does not look.
[[nodiscard]] Copies look_for_copies();

/// What the administrator should do, as a sentence.
[[nodiscard]] std::string duplicate_load(const Copies& copies);

}  // namespace amldist::spank
