// A secret for plain processes of one user on one machine: a file that only this user can read. The first process makes
// it. Each process locks it while it joins a world, rank 0 until the world's end, so that a process that comes when the
// world is complete can prove that it belongs to this user, and is told that it is too late. A file that no process has
// locked was left by killed processes; the user's next start removes it.
#pragma once

#include <string>
#include <string_view>

#include "base/os/file_descriptor.hpp"
#include "base/text/environment.hpp"
#include "base/text/result.hpp"
#include "world/wireup/key.hpp"

namespace amldist::world {

class SecretFile {
 public:
  /// Opens or makes the file. `purpose` tells one world's file from another's. It is in XDG_RUNTIME_DIR, or in
  /// /tmp/aml-dist-UID if that is not a folder of this user's alone. Errors: unavailable with the reason, such as a
  /// folder that belongs to another user.
  [[nodiscard]] static Result<SecretFile> open(std::string_view purpose, const EnvironmentReader& environment);

  [[nodiscard]] const Key& key() const noexcept { return key_; }
  /// Removes the file, unless another process has locked it, because it is joining the next world.
  void remove_unless_used() const noexcept;

 private:
  SecretFile(FileDescriptor folder, FileDescriptor file, std::string name, const Key& key)
      : folder_(std::move(folder)), file_(std::move(file)), name_(std::move(name)), key_(key) {}

  FileDescriptor folder_;
  FileDescriptor file_;  ///< locked
  std::string name_;
  Key key_;
};

}  // namespace amldist::world
