// Whether the ranks of a communicator have a processor each: how a wait is best spent depends on it.
#pragma once

#include <string>
#include <vector>

namespace amldist::collective {

/// Which machine this process is on, and which of its processors it may use: for are_oversubscribed() on the others.
[[nodiscard]] std::string own_processors();

/// Whether the ranks on the own machine are more than the processors that they may use together. `places` has every
/// rank's own_processors(). Nodes that are containers of one machine share its processors.
[[nodiscard]] bool are_oversubscribed(const std::vector<std::string>& places, std::size_t own);

}  // namespace amldist::collective
