// A folder of a process's own, which goes with it, or, if it was killed, with the next one that makes such a folder.
#pragma once

#include <string>
#include <string_view>

#include "base/os/file_descriptor.hpp"
#include "base/text/result.hpp"

namespace amldist::tools {

/// Removes its folder at the end. Move-only.
class LockedFolder {
 public:
  /// Makes it, for its user alone, after it removed those beside it that dead processes of the user left: with the same
  /// prefix of their names, and a lock that nobody holds. Errors: unavailable.
  [[nodiscard]] static Result<LockedFolder> make(const std::string& path, std::string_view prefix);
  LockedFolder(LockedFolder&&) noexcept = default;
  LockedFolder& operator=(LockedFolder&&) noexcept = default;
  LockedFolder(const LockedFolder&) = delete;
  LockedFolder& operator=(const LockedFolder&) = delete;
  ~LockedFolder();

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// Leaves the folder where it is, for good.
  void keep();

 private:
  LockedFolder() = default;
  FileDescriptor lock_;  ///< held while a process uses the folder
  std::string path_;
};

}  // namespace amldist::tools
