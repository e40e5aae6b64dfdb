#include "base/os/process_tree.hpp"

#include <dirent.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>

#include "base/os/whole_file.hpp"
#include "base/text/text.hpp"

namespace amldist {
namespace {

// The same on all machines; older headers do not have them.
constexpr long pidfd_send_signal = 424;
constexpr long pidfd_open = 434;

/// A field of /proc/ID/stat behind the command, where the state is number 1; nullopt if it is no number up to `most`.
std::optional<std::uint64_t> number_at(const std::vector<std::string_view>& fields, std::size_t index,
                                       std::uint64_t most) {
  return index < fields.size() ? text::to_number(fields[index], most) : std::nullopt;
}

}  // namespace

std::optional<ProcessStat> parse_process_stat(std::string_view stat) {
  constexpr std::uint64_t most_processes = std::numeric_limits<pid_t>::max();
  const auto id = text::to_number(stat.substr(0, std::min(stat.find(' '), stat.size())), most_processes);
  stat.remove_prefix(std::min(stat.rfind(')') + 1, stat.size()));
  const auto fields = text::split(stat, ' ');
  const auto parent = number_at(fields, 2, most_processes);
  if (!id || !parent || fields[1].size() != 1) return std::nullopt;
  ProcessStat process{static_cast<pid_t>(*id), static_cast<pid_t>(*parent), fields[1].front()};
  constexpr std::size_t first_time = 12;  // utime, stime, cutime, cstime
  constexpr std::uint64_t longest_time = 1ULL << 50;
  for (std::size_t field = first_time; field < first_time + 4; ++field)
    process.cpu_ticks += number_at(fields, field, longest_time).value_or(0);
  return process;
}

ProcessTable::ProcessTable(std::vector<ProcessStat> processes) : processes_(std::move(processes)) {
  std::ranges::stable_sort(processes_, {}, &ProcessStat::parent);
  by_id_.resize(processes_.size());
  std::iota(by_id_.begin(), by_id_.end(), std::size_t{0});
  std::ranges::sort(by_id_, {}, [this](std::size_t place) { return processes_[place].id; });
}

ProcessTable ProcessTable::read() {
  std::vector<ProcessStat> processes;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc"), &::closedir);
  while (const dirent* const entry = folder ? ::readdir(folder.get()) : nullptr) {
    if (entry->d_name[0] < '0' || entry->d_name[0] > '9') continue;
    const auto process = parse_process_stat(read_file_start(text::concat({"/proc/", entry->d_name, "/stat"}), 512));
    if (process) processes.push_back(*process);
  }
  return ProcessTable(std::move(processes));
}

const ProcessStat* ProcessTable::find(pid_t id) const noexcept {
  const auto id_at = [this](std::size_t place) { return processes_[place].id; };
  const auto found = std::ranges::lower_bound(by_id_, id, {}, id_at);
  return found != by_id_.end() && id_at(*found) == id ? &processes_[*found] : nullptr;
}

std::vector<ProcessStat> ProcessTable::family_of(pid_t root) const {
  std::vector<ProcessStat> family;
  if (const ProcessStat* const found = find(root)) family.push_back(*found);
  // Numbers may have been used again while /proc was read, so parents may seem to go round in a circle.
  for (std::size_t next = 0; next < family.size() && family.size() <= processes_.size(); ++next) {
    const pid_t parent = family[next].id;
    auto child = std::ranges::lower_bound(processes_, parent, {}, &ProcessStat::parent);
    for (; child != processes_.end() && child->parent == parent; ++child) {
      if (child->id != root) family.push_back(*child);
    }
  }
  return family;
}

FileDescriptor open_process(pid_t id) noexcept {
  return FileDescriptor(static_cast<int>(::syscall(pidfd_open, id, 0)));  // closed on exec by itself
}

void send_signal(const FileDescriptor& handle, int signal) noexcept {
  static_cast<void>(::syscall(pidfd_send_signal, handle.get(), signal, nullptr, 0));
}

void signal_descendants(int signal) {
  std::vector<std::pair<pid_t, FileDescriptor>> family;
  for (const pid_t id : descendants()) family.emplace_back(id, open_process(id));
  // Whose number belonged to a descendant after it got its handle, is one, or has ended.
  const std::vector<pid_t> still = descendants();
  for (const auto& [id, handle] : family) {
    if (std::ranges::find(still, id) == still.end()) continue;
    if (handle) send_signal(handle, signal);
    else static_cast<void>(::kill(id, signal));
  }
}

std::vector<pid_t> descendants() {
  std::vector<pid_t> ids;
  for (const ProcessStat& each : ProcessTable::read().family_of(::getpid())) ids.push_back(each.id);
  if (!ids.empty()) ids.erase(ids.begin());
  return ids;
}

}  // namespace amldist
