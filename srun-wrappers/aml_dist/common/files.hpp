// Files that the subcommands write.
#pragma once

#include <string>
#include <string_view>

#include "base/text/result.hpp"

namespace amldist::tools {

/// Whether a file of that name can probably be written; changes nothing.
[[nodiscard]] Result<void> check_writable(const std::string& path);
/// Writes or replaces a file (base/os/whole_file.hpp). Errors: unavailable, in a sentence with the path.
[[nodiscard]] Result<void> write_file(const std::string& path, std::string_view content);

}  // namespace amldist::tools
