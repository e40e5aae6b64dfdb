#include "aml_run/owned_folder.hpp"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "base/os/whole_file.hpp"
#include "base/text/text.hpp"
#include "shared/exit_status.hpp"
#include "shared/shell.hpp"
#include "shared/terminal.hpp"

namespace amldist::run {
namespace {

namespace fs = std::filesystem;
using shell::quote_path;
using text::concat;

constexpr mode_t others_write = S_IWGRP | S_IWOTH;

bool is_own(const struct stat& info) { return info.st_uid == ::geteuid() || info.st_uid == 0; }

Error failed(const std::string& path, std::string_view what, int number) {
  return {number == ENOENT ? Errc::not_found : Errc::unavailable,
          concat({quote_path(path), " cannot be ", what, ": ", std::strerror(number)})};
}

/// Why files below a place cannot be protected from other users.
std::optional<Error> check_place(const std::string& path, const struct stat& info) {
  const bool all_replace = (info.st_mode & S_IWOTH) != 0 && (info.st_mode & S_ISVTX) == 0;
  if (!all_replace) return std::nullopt;
  return Error{Errc::unavailable, concat({"any user can replace the files in ", quote_path(path),
                                          ": set its sticky bit (chmod +t), as /tmp has"})};
}

std::optional<Error> check_component(const std::string& path, const struct stat& info) {
  if (!is_own(info)) {
    return Error{Errc::unavailable, concat({quote_path(path), " belongs to user ", std::to_string(info.st_uid),
                                            ", who can change its files: remove it, or use another folder"})};
  }
  if ((info.st_mode & others_write) == 0) return std::nullopt;
  return Error{Errc::unavailable,
               concat({"other users can change the files in ", quote_path(path), ": chmod go-w it"})};
}

/// The content of `file`, if it is a regular file that belongs to the user or root.
Result<std::string> read_regular(const FileDescriptor& file, const std::string& path, std::size_t limit) {
  struct stat info {};
  if (!file || ::fstat(file.get(), &info) != 0) return failed(path, "read", errno);
  if (!S_ISREG(info.st_mode)) return Error{Errc::not_found, concat({quote_path(path), " is not a regular file"})};
  if (!is_own(info)) return *check_component(path, info);
  std::string out;
  std::array<char, 65536> buffer{};
  for (;;) {
    const ssize_t count = ::read(file.get(), buffer.data(), buffer.size());
    if (count == 0) return out;
    if (count < 0 && errno != EINTR) return failed(path, "read", errno);
    if (count > 0) out.append(buffer.data(), static_cast<std::size_t>(count));
    if (out.size() > limit) {
      return Error{Errc::limit, concat({quote_path(path), " is longer than ", std::to_string(limit / 1024),
                                        " KiB, the most that is read"})};
    }
  }
}

constexpr int reading = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY;

std::string random_suffix() {
  std::uint64_t number = 0;
  if (::getrandom(&number, sizeof number, 0) != sizeof number) number = static_cast<std::uint64_t>(::getpid());
  return concat({".", std::to_string(number)});  // O_EXCL refuses a name that is taken
}

}  // namespace

Result<OwnedFolder> OwnedFolder::open(const std::string& place, std::string_view below, Missing missing) {
  std::error_code wrong;
  if (missing == Missing::is_made) fs::create_directories(place, wrong);
  FileDescriptor folder(::open(place.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct stat info {};
  if (!folder || ::fstat(folder.get(), &info) != 0) return failed(place, "opened", errno);
  if (auto error = check_place(place, info)) return std::move(*error);
  return OwnedFolder(place, std::move(folder)).enter(below, missing);
}

Result<OwnedFolder> OwnedFolder::open(const std::string& folder, Missing missing) {
  std::size_t end = folder.rfind("/aml-runs/");
  if (end == std::string::npos) end = folder.rfind('/');
  if (end == std::string::npos)
    return Error{Errc::invalid_argument, concat({quote_path(folder), " is not a whole path"})};
  return open(end == 0 ? "/" : folder.substr(0, end), std::string_view(folder).substr(end + 1), missing);
}

Result<OwnedFolder> OwnedFolder::enter(std::string_view below, Missing missing) const {
  OwnedFolder out(path_, FileDescriptor(::fcntl(folder_.get(), F_DUPFD_CLOEXEC, 0)));
  for (const std::string_view name : text::split(below, '/')) {
    if (name.empty() || name == ".") continue;
    if (name == "..")
      return Error{Errc::invalid_argument, concat({quote_path(below), " leads out of ", quote_path(path_)})};
    auto next = out.enter_one(std::string(name), missing);
    if (!next) return next;
    out = std::move(*next);
  }
  return out;
}

Result<OwnedFolder> OwnedFolder::enter_one(const std::string& name, Missing missing) const {
  std::string path = concat({path_ == "/" ? "" : path_, "/", name});
  if (missing == Missing::is_made && ::mkdirat(folder_.get(), name.c_str(), 0755) != 0 && errno != EEXIST)
    return failed(path, "made", errno);
  FileDescriptor folder(::openat(folder_.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!folder && (errno == ELOOP || errno == ENOTDIR))
    return Error{Errc::unavailable,
                 concat({quote_path(path), " is not a folder, and links are not followed there: remove it"})};
  struct stat info {};
  if (!folder || ::fstat(folder.get(), &info) != 0) return failed(path, "opened", errno);
  if (auto error = check_component(path, info)) return std::move(*error);
  return OwnedFolder(std::move(path), std::move(folder));
}

Result<OwnedFolder> OwnedFolder::make(const std::string& name) const {
  if (::mkdirat(folder_.get(), name.c_str(), 0755) == 0) return enter_one(name, Missing::fails);
  const std::string path = concat({path_, "/", name});
  if (errno != EEXIST) return failed(path, "made", errno);
  return Error{Errc::invalid_argument, concat({quote_path(path), " exists already: start again"})};
}

bool OwnedFolder::has(const std::string& name) const {
  return ::faccessat(folder_.get(), name.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

Result<std::string> OwnedFolder::read(const std::string& name, std::size_t limit) const {
  return read_regular(FileDescriptor(::openat(folder_.get(), name.c_str(), reading)), concat({path_, "/", name}),
                      limit);
}

Result<void> OwnedFolder::write(const std::string& name, std::string_view content) const {
  const std::string temporary = name + random_suffix();
  if (!create(temporary, content)) return failed(concat({path_, "/", name}), "written", errno);
  if (::renameat(folder_.get(), temporary.c_str(), folder_.get(), name.c_str()) == 0) return {};
  const int number = errno;
  remove(temporary);
  return failed(concat({path_, "/", name}), "written", number);
}

bool OwnedFolder::create(const std::string& name, std::string_view content) const {
  const FileDescriptor file(::openat(folder_.get(), name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!file) return false;
  if (write_all(file.get(), content)) return true;
  const int number = errno;
  remove(name);
  errno = number;
  return false;
}

void OwnedFolder::remove(const std::string& name) const { ::unlinkat(folder_.get(), name.c_str(), 0); }

int begin_record(const std::string& path, const std::string& line) {
  const auto refuse = [&](std::string_view why) {
    commands::say(concat({"how the job ends is not recorded in ", quote_path(path), ": ", why}));
    return commands::exit_failed;
  };
  const std::string parent = fs::path(path).parent_path().string();
  struct stat info {};
  if (::stat(parent.empty() ? "." : parent.c_str(), &info) == 0) {
    if (const auto error = check_place(parent, info)) return refuse(error->message);
  }
  const FileDescriptor file(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY, 0644));
  if (!file || ::fstat(file.get(), &info) != 0) return refuse(std::strerror(errno));
  const bool is_usable = S_ISREG(info.st_mode) && info.st_uid == ::geteuid() && info.st_nlink == 1;
  if (!is_usable) return refuse("there is a file that is not yours");
  const bool written = ::ftruncate(file.get(), 0) == 0 && write_all(file.get(), line + "\n");
  return written ? commands::exit_done : refuse(std::strerror(errno));
}

std::optional<std::string> read_own_file(const std::string& path, std::size_t limit) {
  const FileDescriptor file(::open(path.c_str(), reading));
  auto content = read_regular(file, path, limit);
  return content ? std::optional(std::move(*content)) : std::nullopt;
}

}  // namespace amldist::run
