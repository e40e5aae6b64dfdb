// The folder of one step's Ray on one node: sockets, logs, spilled objects. Its path is the same on each node, because
// a Ray before 2.53 has the head's everywhere.
#pragma once

#include <string>
#include <string_view>

#include "aml_dist/ray/place.hpp"
#include "base/os/file_descriptor.hpp"
#include "base/text/result.hpp"

namespace amldist::ray {

/// What Ray has of the folder: it lets everybody into its own (mode 0777), and the one above stays closed.
inline constexpr std::string_view ray_subfolder = "/r";

/// "/tmp/aml-ray-12.3-0badca": short, for Ray's sockets are below it; not to be guessed by others. Errors: limit, if
/// the paths of the sockets would be longer than the kernel takes.
[[nodiscard]] Result<std::string> folder_path(const Place& place, const std::string& parent);

/// Removes its folder at the end. Move-only.
class Folder {
 public:
  /// Makes it, for its user alone, after it removed those that dead steps of the user left beside it. Errors:
  /// unavailable.
  [[nodiscard]] static Result<Folder> make(const std::string& path);
  Folder(Folder&&) noexcept = default;
  Folder& operator=(Folder&&) noexcept = default;
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder();

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// Leaves the folder where it is, for good.
  void keep();

 private:
  Folder() = default;
  FileDescriptor lock_;  ///< held while a process of the step uses the folder
  std::string path_;
};

}  // namespace amldist::ray
