#include "world/wireup/secret_file.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sodium.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>

#include "base/os/whole_file.hpp"
#include "base/text/hex.hpp"
#include "base/text/text.hpp"

namespace amldist::world {
namespace {

using text::concat;

// The folder may be the one that all programs of the user share.
constexpr std::string_view prefix = "aml-dist-secret-";
constexpr const char* lock_name = "aml-dist-secrets.lock";
constexpr mode_t others = 077;

Error no_file(const std::string& path, std::string_view why) {
  return {Errc::unavailable, concat({"cannot keep a secret in ", text::quote(path), ": ", why})};
}

/// A folder that only this user can access.
Result<FileDescriptor> private_folder(const std::string& path) {
  FileDescriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  struct stat status = {};
  if (!folder || ::fstat(folder.get(), &status) != 0) return no_file(path, std::strerror(errno));
  if (status.st_uid != ::geteuid()) return no_file(path, "it belongs to another user");
  if ((status.st_mode & others) != 0) return no_file(path, "other users may access it (its mode should be 0700)");
  return folder;
}

Result<FileDescriptor> choose_folder(const EnvironmentReader& environment) {
  const std::string runtime = environment("XDG_RUNTIME_DIR").value_or("");
  if (runtime.starts_with('/')) {
    auto folder = private_folder(runtime);
    if (folder) return folder;
  }
  const std::string path = concat({"/tmp/aml-dist-", std::to_string(::geteuid())});
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return no_file(path, std::strerror(errno));
  return private_folder(path);
}

/// A regular file that belongs to this user alone. `flags`: as for open().
FileDescriptor open_own(const FileDescriptor& folder, const std::string& name, int flags) {
  FileDescriptor file(::openat(folder.get(), name.c_str(), flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600));
  struct stat status = {};
  const bool is_own = file && ::fstat(file.get(), &status) == 0 && S_ISREG(status.st_mode) &&
                      status.st_uid == ::geteuid() && (status.st_mode & others) == 0 && status.st_nlink == 1;
  return is_own ? std::move(file) : FileDescriptor();
}

/// Whether a living process uses it. The folder is locked, so that no other process can start to.
bool is_in_use(const FileDescriptor& file) { return ::flock(file.get(), LOCK_EX | LOCK_NB) != 0; }

std::optional<Key> read_key(const FileDescriptor& file) {
  std::string digits(2 * key_bytes, '\0');
  const bool whole = ::pread(file.get(), digits.data(), digits.size(), 0) == static_cast<ssize_t>(digits.size());
  auto key = whole ? Key::from_hex(digits) : std::nullopt;
  ::sodium_memzero(digits.data(), digits.size());
  return key;
}

Result<Key> write_key(const FileDescriptor& file, const std::string& name) {
  if (!file) return no_file(name, std::strerror(errno));
  auto key = Key::random();
  if (!key) return key;
  std::string digits = key->to_hex();
  const bool written = write_all(file.get(), digits);
  ::sodium_memzero(digits.data(), digits.size());
  if (!written) return no_file(name, std::strerror(errno));
  return key;
}

/// Retries after a signal: a program may handle signals without SA_RESTART, as Python does.
bool lock_whole(const FileDescriptor& file, int how) noexcept {
  int status = 0;
  do status = ::flock(file.get(), how);
  while (status != 0 && errno == EINTR);
  return status == 0;
}

/// Removes files of processes that were killed, and anything that is not a file of ours.
void sweep(const FileDescriptor& folder) {
  const int copy = ::openat(folder.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(copy >= 0 ? ::fdopendir(copy) : nullptr, ::closedir);
  if (!entries) {
    if (copy >= 0) ::close(copy);
    return;
  }
  while (const dirent* const entry = ::readdir(entries.get())) {
    if (!std::string_view(entry->d_name).starts_with(prefix)) continue;
    const FileDescriptor file = open_own(folder, entry->d_name, O_RDONLY);
    if (!file || !is_in_use(file)) static_cast<void>(::unlinkat(folder.get(), entry->d_name, 0));
  }
}

}  // namespace

Result<SecretFile> SecretFile::open(std::string_view purpose, const EnvironmentReader& environment) {
  auto folder = choose_folder(environment);
  if (!folder) return folder.error();
  const FileDescriptor lock = open_own(*folder, lock_name, O_RDWR | O_CREAT);
  if (!lock || !lock_whole(lock, LOCK_EX)) return no_file(lock_name, std::strerror(errno));
  sweep(*folder);
  std::string name(prefix);
  for (const unsigned char byte : hash_of(purpose)) append_hex(name, byte);
  FileDescriptor file = open_own(*folder, name, O_RDWR);
  auto key = file ? read_key(file) : std::nullopt;
  if (!key) {
    static_cast<void>(::unlinkat(folder->get(), name.c_str(), 0));
    file = open_own(*folder, name, O_RDWR | O_CREAT | O_EXCL);
    const auto written = write_key(file, name);
    if (!written) return written.error();
    key = *written;
  }
  static_cast<void>(lock_whole(file, LOCK_SH));
  return SecretFile(std::move(*folder), std::move(file), std::move(name), *key);
}

void SecretFile::remove_unless_used() const noexcept {
  const FileDescriptor lock = open_own(folder_, lock_name, O_RDWR | O_CREAT);
  if (!lock || !lock_whole(lock, LOCK_EX)) return;
  if (!is_in_use(file_)) static_cast<void>(::unlinkat(folder_.get(), name_.c_str(), 0));
}

}  // namespace amldist::world
