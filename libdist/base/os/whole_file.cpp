#include "base/os/whole_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>

#include "base/os/file_descriptor.hpp"
#include "base/text/text.hpp"

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

/// Succeeds if the file belongs to `owner` and only `owner` may write to it.
Result<void> check_owner(const struct stat& file, uid_t owner) {
  if (file.st_uid != owner) {
    return Error{Errc::unavailable, text::concat({"it belongs to user ", std::to_string(file.st_uid), ", not to ",
                                                  owner == 0 ? "root" : std::to_string(owner)})};
  }
  if ((file.st_mode & (S_IWGRP | S_IWOTH)) == 0) return {};
  std::array<char, 8> mode{};
  std::snprintf(mode.data(), mode.size(), "%04o", static_cast<unsigned>(file.st_mode & 07777U));
  return Error{Errc::unavailable,
               text::concat({"users other than its owner may write to it: its mode is ", mode.data()})};
}

/// The first bytes of a regular file: `most`, and a few more if the file is larger. `owner`: the owner that is
/// required.
Result<std::string> read_beginning(const std::string& path, std::size_t most, std::optional<uid_t> owner = {}) {
  const auto refuse = [] {
    const bool missing = errno == ENOENT || errno == ENOTDIR;
    return Error{missing ? Errc::not_found : Errc::unavailable, std::strerror(errno)};
  };
  // O_NONBLOCK: opening a FIFO must not block.
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!file) return refuse();
  struct stat status = {};
  if (::fstat(file.get(), &status) != 0) return refuse();
  if (!S_ISREG(status.st_mode)) return Error{Errc::invalid_argument, "not a regular file"};
  if (owner) {
    if (auto ownership = check_owner(status, *owner); !ownership) return ownership.error();
  }
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

Result<std::string> with_limit(Result<std::string> content, std::size_t most) {
  if (content && content->size() > most)
    return Error{Errc::limit, text::concat({"over ", std::to_string(most), " bytes"})};
  return content;
}

}  // namespace

Result<std::string> read_whole_file(const std::string& path, std::size_t most) {
  return with_limit(read_beginning(path, most), most);
}

Result<std::string> read_whole_file_of(const std::string& path, std::size_t most, uid_t owner) {
  return with_limit(read_beginning(path, most, owner), most);
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

namespace {

Error write_error() { return {Errc::unavailable, std::strerror(errno)}; }

/// The path behind symbolic links, whether it exists or not. A link into /proc refers to a descriptor (/dev/stdout):
/// then empty, because that file must not be replaced.
std::optional<std::string> behind_links(std::string path) {
  constexpr int most_links = 32;
  std::array<char, 4096> target{};
  for (int i = 0; i < most_links; ++i) {
    const ssize_t length = ::readlink(path.c_str(), target.data(), target.size());
    if (length <= 0) return path;
    const std::string_view next(target.data(), static_cast<std::size_t>(length));
    if (next.starts_with("/proc/") || path.starts_with("/proc/")) return std::nullopt;
    path = next.starts_with('/') ? std::string(next) : path.substr(0, path.rfind('/') + 1) + std::string(next);
  }
  return path;
}

/// For devices, pipes and descriptors. O_NONBLOCK: a FIFO without a reader must not block.
Result<void> write_through(const std::string& path, std::string_view content) {
  const FileDescriptor file(::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!file) return write_error();
  const int flags = ::fcntl(file.get(), F_GETFL);
  if (flags >= 0) static_cast<void>(::fcntl(file.get(), F_SETFL, flags & ~O_NONBLOCK));
  if (!write_all(file.get(), content)) return write_error();
  return {};
}

/// Writes a file beside `path` and renames it. `old`: the present file, whose mode and owner are kept; nullptr if there
/// is no such file.
Result<void> replace_file(const std::string& path, std::string_view content, const struct stat* old) {
  const std::string beside = path + ".new." + std::to_string(::getpid());
  const FileDescriptor file(::open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!file) return write_error();
  if (old != nullptr) {
    static_cast<void>(::fchown(file.get(), old->st_uid, old->st_gid) == 0);
    static_cast<void>(::fchmod(file.get(), old->st_mode & 07777U));
  }
  if (write_all(file.get(), content) && ::rename(beside.c_str(), path.c_str()) == 0) return {};
  const Error error = write_error();
  static_cast<void>(::unlink(beside.c_str()));
  return error;
}

}  // namespace

Result<void> write_whole_file(const std::string& path, std::string_view content) {
  struct stat status = {};
  const bool exists = ::stat(path.c_str(), &status) == 0;
  if (!exists && errno != ENOENT) return write_error();
  if (exists && S_ISDIR(status.st_mode)) {
    errno = EISDIR;
    return write_error();
  }
  const auto target = behind_links(path);
  if (!target || (exists && !S_ISREG(status.st_mode))) return write_through(path, content);
  return replace_file(*target, content, exists ? &status : nullptr);
}

bool append_line(const std::string& path, std::string_view line) {
  const FileDescriptor file(
      ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK, 0600));
  struct stat status = {};
  if (!file || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) return false;
  const ssize_t written = ::write(file.get(), line.data(), line.size());
  if (written == static_cast<ssize_t>(line.size())) return true;
  if (written > 0) static_cast<void>(::ftruncate(file.get(), status.st_size) == 0);  // the disk is full
  return false;
}

}  // namespace amldist
