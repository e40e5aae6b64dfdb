#include "base/os/process_tree.hpp"

#include <dirent.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string_view>

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

std::vector<ProcessStat> all_processes() {
  std::vector<ProcessStat> processes;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc"), &::closedir);
  while (const dirent* const entry = folder ? ::readdir(folder.get()) : nullptr) {
    if (entry->d_name[0] < '0' || entry->d_name[0] > '9') continue;
    const auto process = parse_process_stat(read_file_start(text::concat({"/proc/", entry->d_name, "/stat"}), 512));
    if (process) processes.push_back(*process);
  }
  return processes;
}

std::vector<ProcessStat> family_of(pid_t root, std::span<const ProcessStat> processes) {
  std::multimap<pid_t, const ProcessStat*> children;
  std::vector<ProcessStat> family;
  for (const ProcessStat& each : processes) {
    if (each.id == root) family.push_back(each);
    else children.emplace(each.parent, &each);
  }
  for (std::size_t next = 0; next < family.size(); ++next) {
    const auto [first, last] = children.equal_range(family[next].id);
    for (auto child = first; child != last; ++child) family.push_back(*child->second);
    children.erase(first, last);
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
  for (const ProcessStat& each : family_of(::getpid(), all_processes())) ids.push_back(each.id);
  if (!ids.empty()) ids.erase(ids.begin());
  return ids;
}

}  // namespace amldist
