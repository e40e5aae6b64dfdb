#include "aml_dist/ray/folder.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "base/text/text.hpp"

namespace amldist::ray {
namespace {

using text::concat;

constexpr std::string_view prefix = "aml-ray-";
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

/// Of steps that were killed with everything in them. A kept folder has no lock.
void remove_stale(const std::string& parent) {
  std::error_code status;
  for (const auto& entry : std::filesystem::directory_iterator(parent, status)) {
    const std::string path = entry.path().string();
    if (!entry.path().filename().string().starts_with(prefix) || !is_ours(path)) continue;
    const FileDescriptor lock(::open(lock_of(path).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
    if (lock && ::flock(lock.get(), LOCK_EX | LOCK_NB) == 0) remove_all(path);
  }
}

/// Ray says nothing of a full disk: it does not come up.
Result<void> check_room(const std::string& parent) {
  constexpr std::uint64_t least = 64;  // MiB
  struct statvfs facts = {};
  if (::statvfs(parent.c_str(), &facts) != 0) return {};
  const std::uint64_t room = std::uint64_t{facts.f_bavail} * facts.f_frsize >> 20U;
  if (room >= least) return {};
  return Error{Errc::unavailable,
               concat({parent, " has ", std::to_string(room), " MiB free, and Ray's logs and objects need at least ",
                       std::to_string(least), ": name another place with --temp-dir=FOLDER"})};
}

Error impossible(const std::string& path) {
  return {Errc::unavailable, concat({"the folder ", path, " cannot be made: ", std::strerror(errno),
                                     ": name another place with --temp-dir=FOLDER"})};
}

}  // namespace

Result<std::string> folder_path(const Place& place, const std::string& parent) {
  constexpr std::size_t characters = 6;
  // "/session_2026-11-27_01-49-46_123456_4194304/sockets/plasma_store.1"
  constexpr std::size_t sockets = ray_subfolder.size() + 67;
  constexpr std::size_t longest = sizeof(sockaddr_un::sun_path) - 1 - sockets;
  const world::Key key = place.credentials.key.derive(concat({"folder of Ray ", place.step}));
  std::string path =
      concat({parent, parent.ends_with('/') ? "" : "/", prefix, place.step, "-", key.to_hex().substr(0, characters)});
  if (path.size() <= longest) return path;
  return Error{Errc::limit,
               concat({"ray: ", path, " is too long for Ray's sockets: name a folder of at most ",
                       std::to_string(longest - (path.size() - parent.size())), " characters with --temp-dir"})};
}

Result<Folder> Folder::make(const std::string& path) {
  constexpr int attempts = 10;  // a sweep of another step may take the folder away before it is locked
  const std::string parent = std::filesystem::path(path).parent_path().string();
  remove_stale(parent);
  if (auto status = check_room(parent); !status) return status.error();
  for (int attempt = 0; attempt < attempts; ++attempt) {
    if (::mkdir(path.c_str(), 0700) != 0 && (errno != EEXIST || !is_ours(path))) return impossible(path);
    Folder folder;
    folder.path_ = path;
    folder.lock_ = FileDescriptor(::open(lock_of(path).c_str(), O_CREAT | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!folder.lock_ && errno == ENOENT) continue;
    if (!folder.lock_ || ::flock(folder.lock_.get(), LOCK_SH) != 0) return impossible(path);
    struct stat held = {};
    struct stat named = {};
    const bool same = ::fstat(folder.lock_.get(), &held) == 0 && ::stat(lock_of(path).c_str(), &named) == 0 &&
                      held.st_ino == named.st_ino;
    if (same) return folder;
  }
  return impossible(path);
}

void Folder::keep() {
  ::unlink(lock_of(path_).c_str());
  lock_ = FileDescriptor();
}

Folder::~Folder() {
  // Where nodes share the file system, the last one removes it.
  if (lock_ && ::flock(lock_.get(), LOCK_EX | LOCK_NB) == 0) remove_all(path_);
}

}  // namespace amldist::ray
