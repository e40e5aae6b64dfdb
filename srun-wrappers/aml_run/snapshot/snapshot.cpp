#include "aml_run/snapshot/snapshot.hpp"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include <filesystem>

#include "aml_run/owned_folder.hpp"
#include "aml_run/snapshot/ignore_list.hpp"
#include "base/os/file_descriptor.hpp"
#include "base/text/text.hpp"
#include "shared/programs.hpp"

namespace amldist::run {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t longest_ignore_file = std::size_t{1024} * 1024;

std::string ignore_text(const std::string& folder) {
  for (const char* const name : {"/.amlignore", "/.gitignore"}) {
    if (auto text = commands::read_file(folder + name, longest_ignore_file)) return std::move(*text);
  }
  return {};
}

/// Shares the blocks of the file. false if this file system does not, or not these two.
bool clone_file(const fs::path& from, const fs::path& to, mode_t mode) {
  const FileDescriptor source(::open(from.c_str(), O_RDONLY | O_CLOEXEC));
  const FileDescriptor copy(::open(to.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
  return source && copy && ::ioctl(copy.get(), FICLONE, source.get()) == 0;
}

class Copier {
 public:
  Copier(const std::string& from, const std::string& to) : to_(to), ignored_(ignore_text(from)) {}

  Result<void> copy_folder(const fs::path& from, const std::string& relative) {
    std::error_code wrong;
    fs::create_directories(fs::path(to_) / relative, wrong);
    if (wrong) return failed(fs::path(to_) / relative, wrong);
    fs::directory_iterator entries(from, wrong);
    if (wrong) return failed(from, wrong);
    for (const fs::directory_entry& entry : entries) {
      const std::string name = entry.path().filename().string();
      const std::string path = relative.empty() ? name : text::concat({relative, "/", name});
      const auto status = entry.symlink_status(wrong);
      const bool is_folder = fs::is_directory(status);
      const bool is_own = is_folder && (name == ".git" || name == "aml-runs");
      if (is_own || ignored_.matches(path, is_folder)) continue;
      auto done = is_folder ? copy_folder(entry.path(), path) : copy_one(entry.path(), path, status);
      if (!done) return done;
    }
    return {};
  }

 private:
  static Error failed(const fs::path& path, const std::error_code& why) {
    return {Errc::unavailable,
            text::concat({"the code folder cannot be copied: ", path.string(), ": ", why.message()})};
  }

  Result<void> copy_one(const fs::path& from, const std::string& relative, const fs::file_status& status) const {
    const fs::path to = fs::path(to_) / relative;
    std::error_code wrong;
    if (fs::is_symlink(status)) {
      fs::copy_symlink(from, to, wrong);
    } else if (fs::is_regular_file(status)) {
      const auto mode = static_cast<mode_t>(status.permissions()) & 0777U;
      if (!clone_file(from, to, mode)) {
        fs::remove(to, wrong);  // what was made to clone to: of a read-only file only root could write to it
        fs::copy_file(from, to, wrong);
      }
    }
    return wrong ? Result<void>(failed(from, wrong)) : Result<void>();
  }

  const std::string& to_;
  IgnoreList ignored_;
};

}  // namespace

Result<void> take_snapshot(const std::string& from, const std::string& to) {
  if (auto status = OwnedFolder::open(to, OwnedFolder::Missing::is_made); !status) return status.error();
  return Copier(from, to).copy_folder(from, "");
}

}  // namespace amldist::run
