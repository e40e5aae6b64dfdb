// Whole files: read with a limit and without blocking, and replaced so that a reader never sees half of one.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "base/text/result.hpp"

namespace amldist {

/// Reads a regular file of at most `most` bytes, without waiting: a FIFO or a device in its place is refused. Errors:
/// not_found, invalid_argument (no regular file), limit, unavailable; the message is the reason alone.
[[nodiscard]] Result<std::string> read_whole_file(const std::string& path, std::size_t most);

/// The same for a file that decides what root does: it must belong to `owner`, and nobody else may write to it. Errors:
/// also unavailable if that is not so.
[[nodiscard]] Result<std::string> read_whole_file_of(const std::string& path, std::size_t most, uid_t owner);

/// The first `most` bytes of a regular file; "" if it cannot be read. For files such as those in /proc and /sys for
/// which missing and empty mean the same.
[[nodiscard]] std::string read_file_start(const std::string& path, std::size_t most);

/// The first line of a file without its newline, at most 4 KiB of it.
[[nodiscard]] std::string first_line_of(const std::string& path);

/// Writes everything to a descriptor, waiting as long as needed. False if the other end of a pipe is closed.
bool write_all(int descriptor, std::string_view content) noexcept;

/// Writes a file that a user names. A regular file is replaced atomically, keeping its mode and owner; behind a
/// symbolic link the target is replaced and the link stays. Anything else (a device, a pipe, /dev/stdout) is written to
/// directly. Errors: unavailable, with the reason alone; a regular file is then unchanged.
[[nodiscard]] Result<void> write_whole_file(const std::string& path, std::string_view content);

/// Adds a line, which brings its newline, at the end of a regular file, which is made where it is not there; links are
/// not followed. Several processes may do so at once. false: it was not written.
[[nodiscard]] bool append_line(const std::string& path, std::string_view line);

}  // namespace amldist
