// What the kernel's log says that can end a task: processes killed for want of memory, and devices of the node that
// fail.
//
//   oom-kill:constraint=CONSTRAINT_MEMCG,...,task_memcg=/slurm/uid_0/job_1/step_0/task_0,task=python,pid=8123,uid=0
//   Memory cgroup out of memory: Killed process 8123 (python) total-vm:9kB, anon-rss:8kB, file-rss:0kB, shmem-rss:0kB
//   NVRM: Xid (PCI:0000:3b:00): 79, pid=8123, name=python, GPU has fallen off the bus.
//   nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 27 LTSSM Fault Up
//   mlx5_core 0000:01:00.0 ib0: Link down
//   EXT4-fs (sda1): Remounting filesystem read-only
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/os/file_descriptor.hpp"
#include "step/cause/cause.hpp"

namespace amldist::step {

/// A record of /dev/kmsg. Programs choose the names of processes in it, and nothing else.
struct KernelRecord {
  std::uint64_t time_us = 0;  ///< since boot, by the kernel's own clock
  std::string text;

  /// "6,1234,5678,-;text" and what follows in further lines. nullopt: not a record, or one that a program has written.
  [[nodiscard]] static std::optional<KernelRecord> parse(std::string_view record);
};

/// A process that the kernel killed for want of memory.
struct OomKill {
  std::uint32_t pid = 0;
  std::string name;         ///< as the process called itself; printable
  std::uint64_t bytes = 0;  ///< in memory
  std::string group = {};   ///< its cgroup; empty: not told
  bool is_of_node = false;  ///< the node's memory was used up, not a cgroup's
  std::uint64_t time_us = 0;
};

/// A device of the node that failed.
struct NodeEvent {
  enum class Kind : std::uint8_t { gpu, gpu_switch, memory, port, file_system };
  Kind kind = Kind::gpu;
  std::string device;  ///< "0000:3b:00.0", "mlx5_core 0000:01:00.0", "sda1"; printable
  std::string what;    ///< "Xid 79 for GPU 0000:3b:00.0 (fallen off the bus)"
  std::uint64_t time_us = 0;
};

/// From records in their order.
[[nodiscard]] std::vector<OomKill> find_oom_kills(std::span<const KernelRecord> records);
[[nodiscard]] std::vector<NodeEvent> find_node_events(std::span<const KernelRecord> records);

/// Microseconds since boot by the two clocks of which the log's is one.
[[nodiscard]] std::array<std::uint64_t, 2> kernel_clocks_us() noexcept;

/// Whether this process knows others by the numbers that the log has: not in a container.
[[nodiscard]] bool has_kernels_process_numbers() noexcept;

/// The kernel's log from the moment that it is opened. Reading never waits.
class KernelLog {
 public:
  /// Reads nothing where the log cannot be opened.
  [[nodiscard]] static KernelLog open_at_end(const char* path = "/dev/kmsg") noexcept;

  [[nodiscard]] bool is_open() const noexcept { return static_cast<bool>(file_); }
  /// The newest records since then that may matter, at most a few hundred.
  [[nodiscard]] const std::vector<KernelRecord>& read();

 private:
  FileDescriptor file_;
  std::vector<KernelRecord> records_;
};

}  // namespace amldist::step
