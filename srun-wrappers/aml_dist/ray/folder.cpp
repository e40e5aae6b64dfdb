#include "aml_dist/ray/folder.hpp"

#include <sys/statvfs.h>
#include <sys/un.h>

#include <filesystem>

#include "base/text/text.hpp"

namespace amldist::ray {
namespace {

using text::concat;

constexpr std::string_view prefix = "aml-ray-";

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

Result<tools::LockedFolder> make_folder(const std::string& path) {
  if (auto status = check_room(std::filesystem::path(path).parent_path().string()); !status) return status.error();
  auto folder = tools::LockedFolder::make(path, prefix);
  if (folder) return folder;
  return Error{folder.error().code, concat({folder.error().message, ": name another place with --temp-dir=FOLDER"})};
}

}  // namespace amldist::ray
