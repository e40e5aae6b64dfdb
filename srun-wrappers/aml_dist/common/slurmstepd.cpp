#include "aml_dist/common/slurmstepd.hpp"

#include <dirent.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <memory>

#include "base/os/process_tree.hpp"
#include "base/os/whole_file.hpp"
#include "base/text/text.hpp"
#include "shared/programs.hpp"

namespace amldist::tools {
namespace {

using std::chrono::milliseconds;

/// The time since a process began, from the text of /proc/ID/stat.
std::optional<milliseconds> age_of(std::string_view stat) {
  constexpr std::size_t start_time = 19;  // among the fields behind the name, which may contain anything
  const auto name_end = stat.rfind(") ");
  if (name_end == std::string_view::npos) return std::nullopt;
  const auto fields = text::split(stat.substr(name_end + 2), ' ');
  const auto ticks = fields.size() > start_time ? text::to_number(fields[start_time], INT64_MAX / 1000) : std::nullopt;
  timespec now = {};
  const auto per_second = static_cast<std::uint64_t>(std::max(::sysconf(_SC_CLK_TCK), 1L));
  if (!ticks || ::clock_gettime(CLOCK_BOOTTIME, &now) != 0) return std::nullopt;
  const milliseconds up(std::int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000);
  return up - milliseconds(static_cast<std::int64_t>(*ticks * 1000 / per_second));
}

/// Anybody can give a process of theirs that name.
bool is_of_root_or_own(const std::string& process) {
  struct stat status = {};
  return ::stat(process.c_str(), &status) == 0 && (status.st_uid == 0 || status.st_uid == ::geteuid());
}

}  // namespace

std::optional<milliseconds> age_of_step(std::string_view step) {
  constexpr std::size_t most = 1024;
  const std::string title = text::concat({"slurmstepd: [", step, "]"});
  const std::unique_ptr<DIR, int (*)(DIR*)> processes(::opendir("/proc"), &::closedir);
  while (const dirent* const entry = processes ? ::readdir(processes.get()) : nullptr) {
    const std::string process = text::concat({"/proc/", entry->d_name});
    if (!text::to_number(entry->d_name, INT32_MAX) || first_line_of(process + "/comm") != "slurmstepd") continue;
    const std::string line = read_file_start(process + "/cmdline", most);
    const std::string_view words = std::string_view(line).substr(0, line.find('\0'));
    if (text::trim(words) == title && is_of_root_or_own(process))
      return age_of(read_file_start(process + "/stat", most));
  }
  return std::nullopt;
}

Slurmstepd::Slurmstepd() {
  const ProcessTable table = ProcessTable::read();
  const ProcessStat* process = table.find(::getpid());
  constexpr int most = 64;  // numbers used again while /proc is read may make a circle
  for (int above = 0; process != nullptr && above < most; ++above, process = table.find(process->parent)) {
    if (first_line_of(text::concat({"/proc/", std::to_string(process->id), "/comm"})) != "slurmstepd") continue;
    handle_ = open_process(process->id);
    return;
  }
}

bool Slurmstepd::has_ended() const noexcept {
  pollfd file = {handle_.get(), POLLIN, 0};
  return handle_ && ::poll(&file, 1, 0) == 1;
}

void cancel_step(const std::string& step) { static_cast<void>(commands::run_program({"scancel", "--quiet", step})); }

}  // namespace amldist::tools
