#include "step/messages/stop_files.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "base/os/file_descriptor.hpp"
#include "base/os/whole_file.hpp"
#include "base/text/text.hpp"
#include "trace/record/record_folder.hpp"

namespace amldist::step {
namespace {

using text::concat;

Result<void> write_new(const std::string& path, std::string_view content) {
  const FileDescriptor file(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600));
  if (file && write_all(file.get(), content)) return {};
  return Error{Errc::unavailable, concat({path, ": ", std::strerror(errno)})};
}

bool is_since(const std::string& path, std::chrono::system_clock::time_point time) {
  using std::chrono::nanoseconds;
  struct stat status = {};
  if (::lstat(path.c_str(), &status) != 0) return false;
  return std::chrono::seconds(status.st_mtim.tv_sec) + nanoseconds(status.st_mtim.tv_nsec) >= time.time_since_epoch();
}

}  // namespace

Result<StopFiles> StopFiles::of_step(std::string_view step) {
  const auto folder = trace::make_user_folder();
  if (!folder) return folder.error();
  return StopFiles{concat({*folder, "/stop-", step}), concat({*folder, "/may-stop-", step})};
}

Result<void> StopFiles::begin(int signal, std::chrono::system_clock::time_point came) const {
  if (!is_since(stop, came)) static_cast<void>(::unlink(stop.c_str()));
  return write_new(may_stop, std::to_string(signal));
}

Result<void> StopFiles::raise() const { return write_new(stop, ""); }

std::optional<int> StopFiles::signal() const {
  constexpr std::size_t most = 16;
  const auto text = read_whole_file(may_stop, most);
  const auto number = text ? text::to_number(*text, static_cast<std::uint64_t>(SIGRTMAX)) : std::nullopt;
  return number ? std::optional(static_cast<int>(*number)) : std::nullopt;
}

void StopFiles::remove() const noexcept {
  static_cast<void>(::unlink(stop.c_str()));
  static_cast<void>(::unlink(may_stop.c_str()));
}

}  // namespace amldist::step
