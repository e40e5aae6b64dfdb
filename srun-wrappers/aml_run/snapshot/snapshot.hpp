// --snapshot: the code folder as it was when the job was submitted.
#pragma once

#include <string>

#include "base/text/result.hpp"

namespace amldist::run {

/// Copies the folder `from` to `to`, which must not exist: files as copies that share their blocks if the file system
/// can (reflink), never as links, so that no edit reaches them; symbolic links as they are. Leaves out what .amlignore
/// lists, or .gitignore if that is missing, and `to` itself. Errors: unavailable.
[[nodiscard]] Result<void> take_snapshot(const std::string& from, const std::string& to);

}  // namespace amldist::run
