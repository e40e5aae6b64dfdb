// The descendants of a process, and signals that reach no other process.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/os/file_descriptor.hpp"

namespace amldist {

/// What /proc/ID/stat says about a process.
struct ProcessStat {
  pid_t id = 0;
  pid_t parent = 0;
  char state = '?';             ///< R, S, D, T, t, Z, ... (proc(5))
  std::uint64_t cpu_ticks = 0;  ///< its own, and those of its children that it has waited for (sysconf(_SC_CLK_TCK))
};

/// The text of /proc/ID/stat, "ID (COMMAND) STATE PARENT ..."; nullopt if malformed. A command may contain anything,
/// even parentheses and newlines. Without times, cpu_ticks is 0.
[[nodiscard]] std::optional<ProcessStat> parse_process_stat(std::string_view stat);

/// The processes of one moment.
class ProcessTable {
 public:
  explicit ProcessTable(std::vector<ProcessStat> processes);
  /// As /proc shows them now. Empty without /proc.
  [[nodiscard]] static ProcessTable read();

  /// nullptr if there is no such process.
  [[nodiscard]] const ProcessStat* find(pid_t id) const noexcept;
  /// `root` and its descendants, parents first; empty if there is no such process. Work: the family's size, times a
  /// logarithm.
  [[nodiscard]] std::vector<ProcessStat> family_of(pid_t root) const;

 private:
  std::vector<ProcessStat> processes_;  ///< by parent
  std::vector<std::size_t> by_id_;      ///< places in processes_
};

/// A handle of the process that has this number now (pidfd_open(2)); empty if no process has it, or before Linux 5.4.
[[nodiscard]] FileDescriptor open_process(pid_t id) noexcept;

/// Sends a signal to the process of a handle; to nobody if it has ended.
void send_signal(const FileDescriptor& handle, int signal) noexcept;

/// Sends a signal to every process below this one, and to no other, even where one ends meanwhile and its number is in
/// use again.
void signal_descendants(int signal);

/// All descendants of this process, parents first, as /proc shows them now. Empty without /proc.
[[nodiscard]] std::vector<pid_t> descendants();

}  // namespace amldist
