#include "trace/record/record_folder.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <memory>

#include "base/os/file_descriptor.hpp"
#include "base/text/text.hpp"
#include "trace/record/settings.hpp"

namespace amldist::trace {
namespace {

using text::concat;

constexpr std::size_t longest_name = 100;

bool is_name_character(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
}

Error no_place(const std::string& path, std::string_view why) {
  return {Errc::unavailable,
          concat({"no flight recorder in ", text::quote(path), ": ", why, "; name another folder with ",
                  variable::trace_folder, ", or switch it off with ", variable::trace_folder, "=off"})};
}

/// A folder that only this user can access, created if it is missing. `given`: the user named it and decides who may
/// read it.
Result<FileDescriptor> own_folder(int parent, const std::string& name, const std::string& path, bool given) {
  if (::mkdirat(parent, name.c_str(), 0700) != 0 && errno != EEXIST) return no_place(path, std::strerror(errno));
  const int follow = given ? 0 : O_NOFOLLOW;
  FileDescriptor folder(::openat(parent, name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | follow));
  struct stat status = {};
  if (!folder || ::fstat(folder.get(), &status) != 0) return no_place(path, std::strerror(errno));
  if (given) return folder;
  if (status.st_uid != ::geteuid()) return no_place(path, "it belongs to another user");
  if ((status.st_mode & 077) != 0) return no_place(path, "other users may access it (its mode should be 0700)");
  return folder;
}

struct CloseFolder {
  void operator()(DIR* folder) const noexcept { ::closedir(folder); }
};
using Folder = std::unique_ptr<DIR, CloseFolder>;

Folder open_folder(int parent, const char* name) {
  const int descriptor = ::openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
  DIR* const folder = descriptor >= 0 ? ::fdopendir(descriptor) : nullptr;
  if (folder == nullptr && descriptor >= 0) ::close(descriptor);
  return Folder(folder);
}

std::vector<std::string> names_in(DIR* folder) {
  std::vector<std::string> names;
  while (const dirent* const entry = ::readdir(folder)) {
    if (is_trace_name(entry->d_name)) names.emplace_back(entry->d_name);
  }
  return names;
}

/// Whether a living process still writes this file: it holds a lock on it.
bool is_written(int folder, const std::string& name) {
  const FileDescriptor file(::openat(folder, name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct flock lock = {};
  lock.l_type = F_RDLCK;
  lock.l_whence = SEEK_SET;
  return file && ::fcntl(file.get(), F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

/// The space that a step's files occupy.
std::uint64_t bytes_in(int root, const std::string& step) {
  constexpr std::uint64_t block = 512;  // the unit of st_blocks
  std::uint64_t bytes = 0;
  const Folder folder = open_folder(root, step.c_str());
  if (folder == nullptr) return bytes;
  for (const std::string& name : names_in(folder.get())) {
    struct stat status = {};
    if (::fstatat(::dirfd(folder.get()), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) continue;
    bytes += static_cast<std::uint64_t>(status.st_blocks) * block;
  }
  return bytes;
}

/// Removes a step's files and folder, unless a process still writes one of them.
void remove_if_dead(int root, const std::string& step) {
  const Folder folder = open_folder(root, step.c_str());
  if (folder == nullptr) return;
  const int descriptor = ::dirfd(folder.get());
  const auto names = names_in(folder.get());
  if (std::ranges::any_of(names, [&](const std::string& name) { return is_written(descriptor, name); })) return;
  for (const std::string& name : names) {
    if (name.ends_with(".trace") || name.ends_with(".stack")) ::unlinkat(descriptor, name.c_str(), 0);
  }
  ::unlinkat(root, step.c_str(), AT_REMOVEDIR);
}

Result<std::string> make_in(const std::string& root, std::string_view step, bool given) {
  auto folder = own_folder(AT_FDCWD, root, root, given);
  if (!folder) return folder.error();
  if (!given) prune_steps(root, step);
  std::string path = concat({root, "/", step});
  auto inner = own_folder(folder->get(), std::string(step), path, false);
  if (!inner) return inner.error();
  return path;
}

}  // namespace

void prune_steps(const std::string& root, std::string_view own_step) {
  const Folder folder = open_folder(AT_FDCWD, root.c_str());
  if (folder == nullptr) return;
  const int descriptor = ::dirfd(folder.get());
  struct Step {
    timespec changed;
    std::uint64_t bytes;
    std::string name;
  };
  std::vector<Step> steps;
  for (const std::string& name : names_in(folder.get())) {
    struct stat status = {};
    if (name == own_step || ::fstatat(descriptor, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (S_ISDIR(status.st_mode)) steps.push_back({status.st_mtim, bytes_in(descriptor, name), name});
  }
  std::ranges::sort(steps, [](const Step& a, const Step& b) {
    return std::pair(a.changed.tv_sec, a.changed.tv_nsec) > std::pair(b.changed.tv_sec, b.changed.tv_nsec);
  });
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    bytes += steps[i].bytes;
    if (i + 1 >= kept_steps || bytes > kept_bytes) remove_if_dead(descriptor, steps[i].name);
  }
}

std::vector<std::string> trace_roots(const std::string& given, unsigned user) {
  if (given == "off" || given == "none") return {};
  if (!given.empty()) return {given};
  const std::string own = concat({"/aml-dist-", std::to_string(user)});
  return {"/dev/shm" + own, "/tmp" + own};
}

std::vector<std::string> believed_roots(std::vector<std::string> roots) {
  const auto shared = trace_roots({}, ::geteuid());
  std::erase_if(roots, [&](const std::string& root) {
    if (std::ranges::find(shared, root) == shared.end()) return false;
    struct stat status = {};
    return ::lstat(root.c_str(), &status) != 0 || !S_ISDIR(status.st_mode) || status.st_uid != ::geteuid() ||
           (status.st_mode & (S_IWGRP | S_IWOTH)) != 0;
  });
  return roots;
}

bool is_trace_name(std::string_view name) noexcept {
  return !name.empty() && name.size() <= longest_name && name.front() != '.' &&
         std::ranges::all_of(name, is_name_character);
}

std::string trace_name(std::string_view text) {
  std::string name(text.substr(0, longest_name));
  std::ranges::replace_if(
      name, [](char c) { return !is_name_character(c); }, '_');
  if (name.empty() || name.front() == '.') name.insert(name.begin(), '_');
  name.resize(std::min(name.size(), longest_name));
  return name;
}

Result<std::string> make_user_folder() {
  std::optional<Error> first;
  for (const std::string& root : trace_roots({}, ::geteuid())) {
    const auto folder = own_folder(AT_FDCWD, root, root, false);
    if (folder) return root;
    if (!first) first = folder.error();
  }
  return *first;
}

Result<std::optional<std::string>> make_trace_folder(const std::string& given, std::string_view step) {
  if (!is_trace_name(step)) {
    return Error{Errc::invalid_argument, concat({text::quote(step), " cannot name a step's flight recorders"})};
  }
  std::optional<Error> first;
  for (const std::string& root : trace_roots(given, ::geteuid())) {
    auto folder = make_in(root, step, !given.empty());
    if (folder) return std::optional(std::move(*folder));
    if (!first) first = folder.error();
  }
  if (first) return *first;
  return std::optional<std::string>();
}

}  // namespace amldist::trace
