// What a process can do with its node's devices, given its own user, limits, cgroup and mounts. Root's result would
// differ.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fabric/facts/node_facts.hpp"

namespace amldist::fabric {

/// Result of opening /dev/infiniband/uverbsN. We open it ourselves because libibverbs reports ENOENT even if the kernel
/// returns EACCES.
struct DeviceNodeFacts {
  std::string device;  ///< "mlx5_0"
  std::string path;
  int error = 0;  ///< errno of open(O_RDWR); 0: opened
  bool is_device = true;
  bool is_named = true;  ///< sysfs has the class infiniband_verbs, or names the node below the device
};

/// RLIMIT_MEMLOCK, and whether it applies to this process (CAP_IPC_LOCK overrides it).
struct MemlockFacts {
  std::uint64_t soft = 0;
  std::uint64_t hard = 0;
  bool unlimited = false;
  bool exempt = false;
};

/// Result of trying the verbs on one device.
struct VerbsDeviceFacts {
  std::string device;
  int error = 0;                ///< errno of `stage`
  std::string stage;            ///< the call that failed ("ibv_reg_mr"); empty: success
  bool dmabuf = false;          ///< ibv_reg_dmabuf_mr(fd=-1) fails with EBADF: supported
  bool registered = false;      ///< memory could be registered
  bool wrote = false;           ///< loopback: an RDMA write arrived with the right bytes
  std::uint32_t wc_status = 0;  ///< status of the completion, if that failed
};

struct VerbsFacts {
  bool tried = false;
  std::string reason;               ///< why verbs were not tried or cannot be used
  bool verbs_missing = false;       ///< libibverbs cannot be loaded
  std::string library;              ///< the file that was loaded, which tells its version: "libibverbs.so.1.14.44.0"
  std::vector<std::string> listed;  ///< ibv_get_device_list()
  std::vector<VerbsDeviceFacts> devices;
  bool timed_out = false;
  std::string ended;       ///< "by signal 11": a probe that ended too early, as when the library crashes
  std::string last_stage;  ///< what it did when it was given up, or ended: "opening mlx5_0"
};

/// Everything that must be read in the task's own context.
struct ProcessFacts {
  std::optional<std::string> not_device_nodes;  ///< why device nodes were not tried
  std::vector<DeviceNodeFacts> nodes;
  MemlockFacts memlock;
  VerbsFacts verbs;
};

/// How many bytes the verbs part registers: above the usual wrong limits (64 KiB, 8 MiB), and quick to pin.
inline constexpr std::size_t registered_bytes = std::size_t{32} << 20;

/// Reads limits and device nodes. No verbs, no waiting.
[[nodiscard]] ProcessFacts read_process(const NodeFacts& node);

}  // namespace amldist::fabric
