// A secret for plain processes of one user on one machine: a file that only this user can read. Whoever of them comes
// first makes it; rank 0 removes it when all have come. Each process locks it while it needs it: what nobody has locked
// was left by processes that were killed, and the next start of this user's removes it.
#pragma once

#include <string>
#include <string_view>

#include "core/environment.hpp"
#include "core/result.hpp"
#include "os/file_descriptor.hpp"
#include "wireup/key.hpp"

namespace amldist::wireup {

class SecretFile {
 public:
  /// Opens or makes the file. `purpose` tells one world's file from another's. It is in XDG_RUNTIME_DIR, or in
  /// /tmp/aml-dist-UID where that is not a folder of this user's alone. Errors: unavailable with the reason, such as a
  /// folder that belongs to somebody else.
  [[nodiscard]] static Result<SecretFile> open(std::string_view purpose, const EnvironmentReader& environment);

  [[nodiscard]] const Key& key() const noexcept { return key_; }
  /// Removes the file: all have read it, or will not come.
  void remove() const noexcept;

 private:
  SecretFile(FileDescriptor folder, FileDescriptor file, std::string name, const Key& key)
      : folder_(std::move(folder)), file_(std::move(file)), name_(std::move(name)), key_(key) {}

  FileDescriptor folder_;
  FileDescriptor file_;  ///< locked
  std::string name_;
  Key key_;
};

}  // namespace amldist::wireup
