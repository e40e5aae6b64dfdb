// How many files this process may open.
#pragma once

#include <string>

namespace amldist {

/// Raises the soft limit so that `more` descriptors can be opened beside those that are open, as far as the hard limit
/// allows. Every connection takes one descriptor.
void make_room_for_descriptors(std::size_t more) noexcept;

/// The text of an errno value; if it is a limit on open files, says which: "this process has as many files open as it
/// may: 1024 (ulimit -n); each connection takes one".
[[nodiscard]] std::string reason_of_errno(int problem);

}  // namespace amldist
