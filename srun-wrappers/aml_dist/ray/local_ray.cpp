#include "aml_dist/ray/local_ray.hpp"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/text/text.hpp"

namespace amldist::ray {
namespace {

using text::concat;

std::string how_it_ended(int status) {
  if (const int signal = signal_of(status)) return concat({"signal ", std::to_string(signal)});
  return concat({"exit status ", std::to_string(status)});
}

/// "  raylet [exit code=-9]": "raylet ended with signal 9". Empty for another line.
std::string dead_process_in(std::string_view line) {
  constexpr std::string_view mark = " [exit code=";
  constexpr int most = 255;
  const auto at = line.find(mark);
  if (at == std::string_view::npos || !line.ends_with(']')) return {};
  std::string_view code = line.substr(at + mark.size(), line.size() - at - mark.size() - 1);
  const bool by_signal = code.starts_with('-');
  if (by_signal) code.remove_prefix(1);
  if (!text::to_number(code, most)) return {};
  const std::string_view name = text::trim(line.substr(0, at));
  return concat({name.substr(name.rfind(' ') + 1), " ended with ", by_signal ? "signal " : "exit status ", code});
}

}  // namespace

std::string reason_in(std::string_view output) {
  std::string processes;
  std::string_view last;
  for (const std::string_view line : text::split(output, '\n')) {
    if (text::trim(line).empty()) continue;
    last = text::trim(line);
    if (const std::string process = dead_process_in(last); !process.empty()) {
      processes += concat({processes.empty() ? "" : ", ", process});
    }
  }
  return processes.empty() ? std::string(last) : processes;
}

Result<LocalRay> LocalRay::start(const std::vector<std::string>& command, std::vector<std::string> environment,
                                 tools::LockedFolder folder) {
  FileDescriptor output(::memfd_create("ray start", MFD_CLOEXEC));
  if (!output) return Error{Errc::unavailable, concat({"no memory for Ray's output: ", std::strerror(errno)})};
  Member member = {command, std::move(environment), output.get(), true};
  auto child = ray::start(member);
  if (!child) return child.error();
  return LocalRay(std::move(member), std::move(*child), std::move(output), std::move(folder));
}

std::string LocalRay::output() const {
  constexpr off_t most = off_t{1} << 20;
  struct stat facts = {};
  if (::fstat(output_.get(), &facts) != 0) return {};
  std::string text(static_cast<std::size_t>(std::min(facts.st_size, most)), '\0');
  const ssize_t count = ::pread(output_.get(), text.data(), text.size(), std::max<off_t>(0, facts.st_size - most));
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(0, count)));
  return text;
}

bool LocalRay::has_joined() {
  if (!has_joined_) has_joined_ = output().find("Ray runtime started.") != std::string::npos;
  return has_joined_;
}

bool LocalRay::try_again() {
  constexpr int most = 8;
  if (has_joined() || attempts_ == most) return false;
  ++attempts_;
  end_family(std::chrono::milliseconds(0));
  if (::ftruncate(output_.get(), 0) != 0 || ::lseek(output_.get(), 0, SEEK_SET) != 0) return false;
  auto child = ray::start(member_);
  if (!child) return false;
  child_ = std::move(*child);
  return true;
}

std::optional<std::string> LocalRay::end() {
  const auto status = child_.poll();
  if (!status) return stopped_.find();
  const std::string reason = reason_in(output());
  if (reason.find("timed out during startup") != std::string::npos && try_again()) return std::nullopt;
  if (signal_of(*status) == 0 && !reason.empty()) return reason;
  return concat({"'ray start' ended with ", how_it_ended(*status)});
}

}  // namespace amldist::ray
