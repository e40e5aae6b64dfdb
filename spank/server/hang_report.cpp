#include "spank/server/hang_report.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "base/os/file_descriptor.hpp"
#include "base/os/whole_file.hpp"
#include "base/text/text.hpp"

namespace amldist::spank {
namespace {

/// Writes a new file: STEM.txt, or STEM-2.txt, STEM-3.txt and so on if a name is taken by a file of any type. Returns
/// its path; empty if it cannot be written.
std::string write_new_file(const std::string& stem, const std::string& text) {
  constexpr int most_names = 100;
  for (int number = 1; number <= most_names; ++number) {
    std::string path = text::concat({stem, number == 1 ? "" : text::concat({"-", std::to_string(number)}), ".txt"});
    // O_EXCL does not follow links either; O_NOFOLLOW and O_NONBLOCK help on a file system that ignores that.
    constexpr int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
    const FileDescriptor file(::open(path.c_str(), flags, 0600));
    if (!file && errno == EEXIST) continue;
    if (file && write_all(file.get(), text)) return path;
    if (file) static_cast<void>(::unlink(path.c_str()));  // half a report
    return {};
  }
  return {};
}

}  // namespace

std::string write_hang_report(const std::string& folder, const std::string& step, const std::string& report) {
  return write_new_file(text::concat({folder, "aml-dist-hang-", step}), report);
}

}  // namespace amldist::spank
