#include "collective/node/channel/oversubscription.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <numeric>

#include "base/net/own_network.hpp"
#include "base/os/processor_place.hpp"
#include "base/os/whole_file.hpp"

namespace amldist::collective {

/// The id of the running kernel.
std::string own_machine() {
  const std::string identifier = first_line_of("/proc/sys/kernel/random/boot_id");
  return identifier.empty() ? own_host_name() : identifier;
}

/// The machine, a line end, and a bit for each processor.
std::string own_place() {
  std::string bits;
  for (const int processor : allowed_processors()) {
    bits.resize(static_cast<std::size_t>(processor) / 8 + 1);
    bits.back() = static_cast<char>(bits.back() | 1 << processor % 8);
  }
  return own_machine() + '\n' + bits;
}

bool are_oversubscribed(const calls::Pieces& places, std::size_t own) {
  const auto machine = [](const std::string& place) { return place.substr(0, place.find('\n') + 1); };
  const std::string here = machine(places[own]);
  std::string together;
  std::uint32_t ranks = 0;
  for (const calls::Pieces::Run& run : places.runs()) {
    if (machine(run.piece) != here) continue;
    const std::string bits = run.piece.substr(here.size());
    together.resize(std::max(together.size(), bits.size()));
    for (std::size_t i = 0; i < bits.size(); ++i) together[i] = static_cast<char>(together[i] | bits[i]);
    ranks += run.count;
  }
  const auto count = [](std::uint32_t sum, char byte) {
    return sum + static_cast<std::uint32_t>(std::popcount(static_cast<unsigned char>(byte)));
  };
  return std::accumulate(together.begin(), together.end(), std::uint32_t{0}, count) < ranks;
}

}  // namespace amldist::collective
