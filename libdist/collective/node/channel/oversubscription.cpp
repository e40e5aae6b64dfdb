#include "collective/node/channel/oversubscription.hpp"

#include <sched.h>

#include <algorithm>
#include <cstring>

#include "base/net/own_network.hpp"
#include "base/os/whole_file.hpp"

namespace amldist::collective {

/// The id of the running kernel.
std::string own_machine() {
  const std::string identifier = first_line_of("/proc/sys/kernel/random/boot_id");
  return identifier.empty() ? own_host_name() : identifier;
}

std::string own_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  static_cast<void>(::sched_getaffinity(0, sizeof set, &set));
  return std::string(reinterpret_cast<const char*>(&set), sizeof set) + own_machine();
}

bool are_oversubscribed(const calls::Pieces& places, std::size_t own) {
  const auto machine = [](const std::string& place) { return place.substr(std::min(place.size(), sizeof(cpu_set_t))); };
  cpu_set_t together;
  CPU_ZERO(&together);
  int ranks = 0;
  for (const calls::Pieces::Run& run : places.runs()) {
    const std::string& place = run.piece;
    if (machine(place) != machine(places[own])) continue;
    cpu_set_t set;
    CPU_ZERO(&set);
    std::memcpy(&set, place.data(), std::min(sizeof set, place.size()));
    CPU_OR(&together, &together, &set);
    ranks += static_cast<int>(run.count);
  }
  return CPU_COUNT(&together) < ranks;
}

}  // namespace amldist::collective
