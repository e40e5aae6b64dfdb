// Whole files: read with a limit and without waiting, and replaced so that a reader never sees half of one.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "base/text/result.hpp"

namespace amldist {

/// Reads a regular file of at most `most` bytes, without waiting: a FIFO or a device in its place is refused. Errors:
/// not_found, invalid_argument (no regular file), limit, unavailable; the message is the reason alone.
[[nodiscard]] Result<std::string> read_whole_file(const std::string& path, std::size_t most);

/// The same for a file that decides what root does: it belongs to `owner`, and nobody else may write to it. Errors:
/// also unavailable where that is not so.
[[nodiscard]] Result<std::string> read_whole_file_of(const std::string& path, std::size_t most, uid_t owner);

/// The first `most` bytes of a regular file; "" if it cannot be read. For files of the kernel (/proc, /sys) and others
/// for which missing is as good as empty.
[[nodiscard]] std::string read_file_start(const std::string& path, std::size_t most);

/// The same, for the first line without its newline, of which 4 KiB count.
[[nodiscard]] std::string first_line_of(const std::string& path);

/// Writes everything to a descriptor, with waiting. False: it does not take it (the other end of a pipe is closed).
bool write_all(int descriptor, std::string_view content) noexcept;

/// The one writer of files that users name. A regular file is replaced as a whole, with its mode and owner; behind a
/// symbolic link that is the link's target, and the link stays. Anything else (a device, a pipe, /dev/stdout) is
/// written through. Errors: unavailable, with the reason alone; then a regular file is as it was.
[[nodiscard]] Result<void> write_whole_file(const std::string& path, std::string_view content);

/// Adds a line, which brings its newline, at the end of a regular file that is there already; links are not followed.
/// Several processes may do so at once. false: it was not written.
[[nodiscard]] bool append_line(const std::string& path, std::string_view line);

}  // namespace amldist
