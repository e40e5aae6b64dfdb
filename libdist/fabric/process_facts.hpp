// What one process can do with its node's devices: with its own user, limits, cgroup and mounts. Root's view is
// another.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fabric/node_facts.hpp"

namespace amldist::fabric {

/// One try at /dev/infiniband/uverbsN. libibverbs would say ENOENT where the kernel says EACCES, so we open ourselves.
struct DeviceNodeFacts {
  std::string device;  ///< "mlx5_0"
  std::string path;
  int error = 0;  ///< errno of open(O_RDWR); 0: opened
  bool is_device = true;
};

/// RLIMIT_MEMLOCK, and whether it binds this process (CAP_IPC_LOCK passes it).
struct MemlockFacts {
  std::uint64_t soft = 0;
  std::uint64_t hard = 0;
  bool unlimited = false;
  bool exempt = false;
};

/// What came of trying the verbs on one device.
struct VerbsDeviceFacts {
  std::string device;
  int error = 0;                ///< errno of `stage`
  std::string stage;            ///< the call that failed ("ibv_reg_mr"); empty: all went well
  bool dmabuf = false;          ///< ibv_reg_dmabuf_mr(fd=-1) says EBADF: supported
  bool registered = false;      ///< memory could be registered
  bool wrote = false;           ///< loopback: an RDMA write arrived with the right bytes
  std::uint32_t wc_status = 0;  ///< completion's status, if that is what failed
};

struct VerbsFacts {
  bool tried = false;
  std::string reason;               ///< not tried, or not usable at all: why
  bool verbs_missing = false;       ///< libibverbs cannot be loaded
  std::vector<std::string> listed;  ///< ibv_get_device_list()
  std::vector<VerbsDeviceFacts> devices;
  bool timed_out = false;
  std::string stage_at_timeout;
};

/// Everything that needs the task's own context.
struct ProcessFacts {
  std::optional<std::string> not_device_nodes;  ///< why device nodes were not tried
  std::vector<DeviceNodeFacts> nodes;
  MemlockFacts memlock;
  VerbsFacts verbs;
};

/// Bytes that the verbs part registers: beyond the usual wrong limits (64 KiB, 8 MiB), and quick to pin.
inline constexpr std::size_t registered_bytes = std::size_t{32} << 20;

/// Limits and device nodes; no verbs, no waiting.
[[nodiscard]] ProcessFacts read_process(const NodeFacts& node);

}  // namespace amldist::fabric
