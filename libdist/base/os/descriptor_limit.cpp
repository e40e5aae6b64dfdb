#include "base/os/descriptor_limit.hpp"

#include <dirent.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/text/text.hpp"

namespace amldist {
namespace {

std::size_t open_descriptors() noexcept {
  DIR* const folder = ::opendir("/proc/self/fd");
  if (folder == nullptr) return 0;
  std::size_t count = 0;
  while (::readdir(folder) != nullptr) ++count;
  ::closedir(folder);
  return count;
}

}  // namespace

void make_room_for_descriptors(std::size_t more) noexcept {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  const rlim_t wanted = open_descriptors() + more;
  if (limit.rlim_cur >= wanted) return;
  limit.rlim_cur = std::min(wanted, limit.rlim_max);
  static_cast<void>(::setrlimit(RLIMIT_NOFILE, &limit));
}

std::string reason_of_errno(int problem) {
  if (problem == ENFILE) return "this machine has as many files open as it may (fs.file-max)";
  if (problem != EMFILE) return std::strerror(problem);
  rlimit limit = {};
  static_cast<void>(::getrlimit(RLIMIT_NOFILE, &limit));
  return text::concat({"this process has as many files open as it may: ", std::to_string(limit.rlim_cur),
                       " (ulimit -n); each connection takes one"});
}

}  // namespace amldist
