#include "os/whole_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "core/text.hpp"
#include "os/file_descriptor.hpp"

namespace amldist {
bool write_all(int descriptor, std::string_view content) noexcept {
  while (!content.empty()) {
    const ssize_t written = ::write(descriptor, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    content.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

namespace {

/// The first bytes of a regular file: `most`, and a piece more of a file that has more.
Result<std::string> read_beginning(const std::string& path, std::size_t most) {
  const auto refuse = [] {
    const bool missing = errno == ENOENT || errno == ENOTDIR;
    return Error{missing ? Errc::not_found : Errc::unavailable, std::strerror(errno)};
  };
  // O_NONBLOCK: a FIFO in its place must not hold anybody up.
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!file) return refuse();
  struct stat status = {};
  if (::fstat(file.get(), &status) != 0) return refuse();
  if (!S_ISREG(status.st_mode)) return Error{Errc::invalid_argument, "not a regular file"};
  std::string content;
  std::array<char, 16384> buffer{};
  while (content.size() <= most) {
    const ssize_t got = ::read(file.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return refuse();
    if (got == 0) break;
    content.append(buffer.data(), static_cast<std::size_t>(got));
  }
  return content;
}

}  // namespace

Result<std::string> read_whole_file(const std::string& path, std::size_t most) {
  auto content = read_beginning(path, most);
  if (content && content->size() > most)
    return Error{Errc::limit, text::concat({"over ", std::to_string(most), " bytes"})};
  return content;
}

std::string read_file_start(const std::string& path, std::size_t most) {
  auto content = read_beginning(path, most);
  if (!content) return {};
  content->resize(std::min(content->size(), most));
  return std::move(*content);
}

std::string first_line_of(const std::string& path) {
  constexpr std::size_t longest_line = 4096;
  const std::string content = read_file_start(path, longest_line);
  return content.substr(0, content.find('\n'));
}

bool write_whole_file(const std::string& path, std::string_view content) {
  const std::string beside = path + ".new." + std::to_string(::getpid());
  const FileDescriptor file(::open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!file) return false;
  if (write_all(file.get(), content) && ::rename(beside.c_str(), path.c_str()) == 0) return true;
  static_cast<void>(::unlink(beside.c_str()));
  return false;
}

bool append_line(const std::string& path, std::string_view line) {
  const FileDescriptor file(::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK));
  struct stat status = {};
  if (!file || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) return false;
  return ::write(file.get(), line.data(), line.size()) == static_cast<ssize_t>(line.size());
}

}  // namespace amldist
