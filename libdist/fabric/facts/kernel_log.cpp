#include "fabric/facts/kernel_log.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "base/os/file_descriptor.hpp"
#include "base/text/text.hpp"

namespace amldist::fabric {
namespace {

constexpr std::size_t longest_log = std::size_t{8} << 20;
constexpr std::size_t longest_record = 8192;  // enough for any record of /dev/kmsg according to the kernel

/// The text after the semicolon of "6,1234,5678,-;mlx5_core 0000:01:00.0: ..."; the whole line if it has no semicolon.
std::string_view message_of(std::string_view record) {
  const auto semicolon = record.find(';');
  const bool has_header = semicolon != std::string_view::npos && record.find(',') < semicolon &&
                          record.substr(0, semicolon).find(' ') == std::string_view::npos;
  return has_header ? record.substr(semicolon + 1) : record;
}

}  // namespace

Result<std::vector<std::string>> read_kernel_log(const std::string& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  if (!file) return Error{Errc::unavailable, text::concat({path, ": ", std::strerror(errno)})};
  std::string content;
  std::array<char, longest_record> buffer{};
  while (content.size() < longest_log) {
    const ssize_t got = ::read(file.get(), buffer.data(), buffer.size());
    if (got < 0 && (errno == EPIPE || errno == EINTR)) continue;  // EPIPE: records were overwritten meanwhile
    if (got < 0 && errno == EAGAIN) break;                        // no more for now
    if (got < 0) return Error{Errc::unavailable, text::concat({path, ": ", std::strerror(errno)})};
    if (got == 0) break;
    content.append(buffer.data(), static_cast<std::size_t>(got));
  }
  std::vector<std::string> lines;
  for (const std::string_view line : text::split(content, '\n')) {
    if (!line.empty()) lines.emplace_back(message_of(line));
  }
  return lines;
}

}  // namespace amldist::fabric
