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

}  // namespace

std::string reason_in(std::string_view output) {
  constexpr std::string_view headline = "Some Ray subprocesses exited unexpectedly:";
  const auto at = output.find(headline);
  if (at != std::string_view::npos) {
    std::string processes;
    for (const std::string_view line : text::split(output.substr(at + headline.size() + 1), '\n')) {
      const auto process = text::trim(line);
      if (process.empty()) break;
      processes += concat({processes.empty() ? "" : ", ", process});
    }
    return processes + " ended";
  }
  std::string_view last;
  for (const std::string_view line : text::split(output, '\n')) {
    if (!text::trim(line).empty()) last = text::trim(line);
  }
  return std::string(last);
}

Result<LocalRay> LocalRay::start(const std::vector<std::string>& command, std::vector<std::string> environment,
                                 Folder folder) {
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
  const std::string how = how_it_ended(*status);
  return reason.empty() ? concat({"'ray start' ended with ", how}) : concat({reason, " ('ray start': ", how, ")"});
}

}  // namespace amldist::ray
