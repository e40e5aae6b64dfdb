// Whether the ranks of a communicator have a processor each. It decides how they wait.
#pragma once

#include <string>

#include "calls/pieces.hpp"

namespace amldist::collective {

/// A name of this machine: the same in all its containers.
[[nodiscard]] std::string own_machine();

/// This process's machine and the processors that it may use, as input for are_oversubscribed().
[[nodiscard]] std::string own_place();

/// Whether more ranks run on this machine than they have processors. `places` has own_place() of every rank of the
/// machine, and perhaps of others. Containers of one machine share its processors.
[[nodiscard]] bool are_oversubscribed(const calls::Pieces& places, std::size_t own);

}  // namespace amldist::collective
