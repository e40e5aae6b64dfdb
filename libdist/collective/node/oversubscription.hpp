// Whether the ranks of a communicator have a processor each. It decides how they wait.
#pragma once

#include <string>
#include <vector>

namespace amldist::collective {

/// This process's machine and the processors that it may use, as input for are_oversubscribed().
[[nodiscard]] std::string own_processors();

/// Whether more ranks run on this machine than they have processors. `places` has every rank's own_processors().
/// Containers of one machine share its processors.
[[nodiscard]] bool are_oversubscribed(const std::vector<std::string>& places, std::size_t own);

}  // namespace amldist::collective
