#include "aml_dist/common/locked_folder.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "base/text/text.hpp"

namespace amldist::tools {
namespace {

using text::concat;

constexpr std::string_view lock_name = "/lock";

std::string lock_of(const std::string& folder) { return concat({folder, lock_name}); }

bool is_ours(const std::string& path) {
  struct stat facts = {};
  return ::lstat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode) && facts.st_uid == ::getuid() &&
         (facts.st_mode & 0777) == 0700;
}

void remove_all(const std::string& path) noexcept {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

/// Of processes that were killed. A kept folder has no lock.
void remove_stale(const std::string& parent, std::string_view prefix) {
  std::error_code status;
  for (const auto& entry : std::filesystem::directory_iterator(parent, status)) {
    const std::string path = entry.path().string();
    if (!entry.path().filename().string().starts_with(prefix) || !is_ours(path)) continue;
    const FileDescriptor lock(::open(lock_of(path).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
    if (lock && ::flock(lock.get(), LOCK_EX | LOCK_NB) == 0) remove_all(path);
  }
}

Error impossible(const std::string& path) {
  return {Errc::unavailable, concat({"the folder ", path, " cannot be made: ", std::strerror(errno)})};
}

}  // namespace

Result<LockedFolder> LockedFolder::make(const std::string& path, std::string_view prefix) {
  constexpr int attempts = 10;  // a sweep of another process may take the folder away before it is locked
  remove_stale(std::filesystem::path(path).parent_path().string(), prefix);
  for (int attempt = 0; attempt < attempts; ++attempt) {
    if (::mkdir(path.c_str(), 0700) != 0 && (errno != EEXIST || !is_ours(path))) return impossible(path);
    LockedFolder folder;  // without its path until it is ours: what is there now may be another process's
    folder.lock_ = FileDescriptor(::open(lock_of(path).c_str(), O_CREAT | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!folder.lock_ && errno == ENOENT) continue;
    if (!folder.lock_ || ::flock(folder.lock_.get(), LOCK_SH) != 0) return impossible(path);
    struct stat held = {};
    struct stat named = {};
    const bool same = ::fstat(folder.lock_.get(), &held) == 0 && ::stat(lock_of(path).c_str(), &named) == 0 &&
                      held.st_ino == named.st_ino;
    if (!same) continue;
    folder.path_ = path;
    return folder;
  }
  return impossible(path);
}

void LockedFolder::keep() {
  ::unlink(lock_of(path_).c_str());
  lock_ = FileDescriptor();
}

LockedFolder::~LockedFolder() {
  // Where nodes share the file system, the last one removes it.
  if (lock_ && !path_.empty() && ::flock(lock_.get(), LOCK_EX | LOCK_NB) == 0) remove_all(path_);
}

}  // namespace amldist::tools
