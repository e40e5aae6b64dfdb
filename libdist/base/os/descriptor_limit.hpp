// How many files this process may open.
#pragma once

#include <string>

namespace amldist {

/// Raises the soft limit so that `more` descriptors can be opened beside those that are open, as far as the hard limit
/// allows: every connection of a process takes one.
void make_room_for_descriptors(std::size_t more) noexcept;

/// What a failure with this errno means where it is the limit: "this process may open 1024 files (ulimit -n), and has
/// them open"; else the system's text.
[[nodiscard]] std::string reason_of_errno(int problem);

}  // namespace amldist
