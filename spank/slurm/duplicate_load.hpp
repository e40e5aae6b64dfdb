// Detects two lines of plugstack.conf that load this plugin. Two active copies would each claim the port and set the
// environment.
#pragma once

#include <string>

namespace amldist::spank {

/// Paths under which this process has loaded the plugin twice.
struct DuplicateLoad {
  std::string first;  ///< empty if no copy was loaded before this one
  std::string own;
};

/// Whether a file of our name was loaded before the one that contains this code. The first one is active; the same rule
/// holds with an older release, which does not look.
[[nodiscard]] DuplicateLoad find_duplicate_load();

/// A sentence that tells the administrator what to do.
[[nodiscard]] std::string to_sentence(const DuplicateLoad& duplicate);

/// The sentence for a step whose record another copy has removed: one of an older release, loaded after this one, which
/// does not know that there is another. Empty if no such file is loaded.
[[nodiscard]] std::string describe_other_release();

}  // namespace amldist::spank
