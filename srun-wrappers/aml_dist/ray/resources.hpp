// What of this node belongs to the step: Ray by itself would take the whole machine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/text/environment.hpp"

namespace amldist::ray {

struct Resources {
  std::uint32_t cpus = 1;
  std::uint32_t gpus = 0;
  std::uint64_t memory = 0;        ///< bytes for tasks and actors; 0: not known
  std::uint64_t object_store = 0;  ///< bytes; 0: Ray's own choice
  bool store_on_disk = false;      ///< /dev/shm is too small
};

/// The facts from which choose() decides, in bytes.
struct MachineFacts {
  std::uint32_t cpus_in_mask = 1;
  std::optional<std::uint64_t> cgroup_memory = std::nullopt;  ///< the least limit of the process's cgroups
  std::uint64_t memory = 0;                                   ///< of the machine
  std::uint64_t free_memory = 0;
  std::uint64_t free_shared_memory = 0;  ///< in /dev/shm; 0 also where it is missing
  bool has_nvidia_gpus = false;
};

/// Of the calling process.
[[nodiscard]] MachineFacts read_machine();

/// Ray's least object store.
inline constexpr std::uint64_t least_object_store = std::uint64_t{80} << 20;

/// Pure. `notes` gets a sentence for each thing that is less than the user may expect.
[[nodiscard]] Resources choose_resources(const MachineFacts& machine, const EnvironmentReader& environment,
                                         std::vector<std::string>& notes);

/// "512 MiB", "1.5 GiB".
[[nodiscard]] std::string in_words(std::uint64_t bytes);

}  // namespace amldist::ray
