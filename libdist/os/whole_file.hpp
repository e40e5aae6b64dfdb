// Files that are replaced as a whole: a reader never sees half of one.
#pragma once

#include <string>
#include <string_view>

#include "core/result.hpp"

namespace amldist {

/// Reads a regular file of at most `most` bytes, without waiting. Errors: not_found, limit, unavailable; the message is
/// the reason alone.
[[nodiscard]] Result<std::string> read_whole_file(const std::string& path, std::size_t most);

/// Writes beside the file and renames; false if that fails, and then the old file is as it was.
[[nodiscard]] bool write_whole_file(const std::string& path, std::string_view content);

/// Adds a line, which brings its newline, at the end of a regular file that is there already; links are not followed.
/// Several processes may do so at once. false: it was not written.
[[nodiscard]] bool append_line(const std::string& path, std::string_view line);

}  // namespace amldist
