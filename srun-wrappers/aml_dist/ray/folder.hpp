// The folder of one step's Ray on one node: sockets, logs, spilled objects. Its path is the same on each node, because
// a Ray before 2.53 has the head's everywhere.
#pragma once

#include <string>
#include <string_view>

#include "aml_dist/common/locked_folder.hpp"
#include "aml_dist/ray/place.hpp"
#include "base/text/result.hpp"

namespace amldist::ray {

/// What Ray has of the folder: it lets everybody into its own (mode 0777), and the one above stays closed.
inline constexpr std::string_view ray_subfolder = "/r";

/// "/tmp/aml-ray-12.3-0badca": short, for Ray's sockets are below it; not to be guessed by others. Errors: limit, if
/// the paths of the sockets would be longer than the kernel takes.
[[nodiscard]] Result<std::string> folder_path(const Place& place, const std::string& parent);

/// Makes it, after it removed those that dead steps of the user left beside it. Errors: unavailable.
[[nodiscard]] Result<tools::LockedFolder> make_folder(const std::string& path);

}  // namespace amldist::ray
