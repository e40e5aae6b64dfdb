#include "base/os/process_tree.hpp"

#include <dirent.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <limits>
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

struct Process {
  pid_t id;
  pid_t parent;
};

std::optional<pid_t> parent_of(std::string_view id) {
  return parent_in_stat(read_file_start(text::concat({"/proc/", id, "/stat"}), 512));
}

std::vector<Process> all_processes() {
  std::vector<Process> processes;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc"), &::closedir);
  while (const dirent* const entry = folder ? ::readdir(folder.get()) : nullptr) {
    const auto id = text::to_number(entry->d_name, std::numeric_limits<pid_t>::max());
    const auto parent = id ? parent_of(entry->d_name) : std::nullopt;
    if (parent) processes.push_back({static_cast<pid_t>(*id), *parent});
  }
  return processes;
}

}  // namespace

std::optional<pid_t> parent_in_stat(std::string_view stat) {
  stat.remove_prefix(std::min(stat.rfind(')') + 1, stat.size()));
  const auto fields = text::split(stat, ' ');
  constexpr std::size_t parent_field = 2;  // index after the command's end, where the state is field 1
  if (fields.size() <= parent_field) return std::nullopt;
  const auto parent = text::to_number(fields[parent_field], std::numeric_limits<pid_t>::max());
  return parent ? std::optional(static_cast<pid_t>(*parent)) : std::nullopt;
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
  const std::vector<Process> processes = all_processes();
  std::vector<pid_t> family{::getpid()};
  for (std::size_t next = 0; next < family.size() && family.size() <= processes.size(); ++next) {
    const pid_t parent = family[next];
    for (const Process& each : processes) {
      if (each.parent == parent && each.id != parent) family.push_back(each.id);
    }
  }
  family.erase(family.begin());
  return family;
}

}  // namespace amldist
