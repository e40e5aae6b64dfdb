#include "launch/rendezvous/step_port.hpp"

#include <numeric>
#include <string_view>

#include "base/text/text.hpp"

namespace amldist::launch {
namespace {

/// FNV-1a over bytes. Separators keep ("ab", 1) and ("a", "b1") apart.
class Fnv1a {
 public:
  void add(std::string_view bytes) noexcept {
    for (const char c : bytes) mix(static_cast<unsigned char>(c));
    mix(0xff);
  }
  void add(std::uint32_t number) noexcept {
    for (int shift = 0; shift < 32; shift += 8) mix(static_cast<unsigned char>(number >> shift));
  }
  [[nodiscard]] std::uint64_t value() const noexcept { return hash_; }

 private:
  void mix(unsigned char byte) noexcept { hash_ = (hash_ ^ byte) * 0x100000001b3ULL; }
  std::uint64_t hash_ = 0xcbf29ce484222325ULL;
};

/// Distance between the ports of consecutive steps.
constexpr std::uint32_t ports_per_step = 64;

constexpr bool has_room_for_steps(std::uint32_t count) noexcept { return count > 2 * ports_per_step; }

/// The smallest stride >= ports_per_step that has no factor in common with `count`, so that `count` consecutive steps
/// get `count` different ports.
std::uint32_t stride_for(std::uint32_t count) noexcept {
  std::uint32_t stride = has_room_for_steps(count) ? ports_per_step : 1;
  while (std::gcd(stride, count) != 1) ++stride;
  return stride;
}

/// Offset of a purpose's ports from the master's. A small set of ports is divided in the same order.
std::uint32_t offset_of(PortPurpose purpose, std::uint32_t count) noexcept {
  const bool roomy = has_room_for_steps(count);
  switch (purpose) {
    case PortPurpose::master:
      return 0;
    case PortPurpose::bootstrap:
      return roomy ? 48 : count / 2;
    case PortPurpose::fabric_check:
      return roomy ? 56 : count * 3 / 4;
  }
  return 0;
}

std::uint64_t hash_of(const JobName& job) noexcept {
  Fnv1a hash;
  hash.add(job.cluster);
  hash.add(job.job_id);
  hash.add(job.restarts);
  return hash.value();
}

}  // namespace

std::uint16_t step_port(const PortRanges& ports, const JobName& job, std::uint32_t step_id,
                        PortPurpose purpose) noexcept {
  const std::uint32_t count = ports.size();
  const std::uint64_t start = hash_of(job) % count;
  const std::uint64_t stride = stride_for(count);
  return ports.at(static_cast<std::uint32_t>((start + stride * step_id + offset_of(purpose, count)) % count));
}

std::uint16_t step_port_block(const PortRanges& ports, const JobName& job, std::uint32_t step_id,
                              std::uint32_t length) noexcept {
  const std::uint32_t blocks = ports.size() / length;
  for (std::uint32_t attempt = 0; attempt < blocks; ++attempt) {
    const auto block = static_cast<std::uint32_t>((hash_of(job) % blocks + step_id % blocks + attempt) % blocks);
    const std::uint16_t first = ports.at(block * length);
    if (ports.at(block * length + length - 1) - first == static_cast<int>(length) - 1) return first;
  }
  return 0;
}

std::uint16_t port_beside(std::uint16_t master_port, const PortRanges& ports) noexcept {
  constexpr int distance = 48;
  constexpr int highest = 65535;
  if (!ports.empty()) return ports.at((master_port + distance) % ports.size());
  const int above = master_port + distance;
  return static_cast<std::uint16_t>(above <= highest ? above : master_port - distance);
}

std::optional<std::uint16_t> reserved_port(const EnvironmentReader& environment, PortPurpose purpose) {
  const auto listed = environment("SLURM_STEP_RESV_PORTS");
  if (!listed || purpose == PortPurpose::bootstrap) return std::nullopt;
  const std::string_view all = *listed;
  const auto end = purpose == PortPurpose::master ? all.find_first_of("-,") : all.find_last_of("-,");
  const bool last = purpose == PortPurpose::fabric_check;
  if (last && end == std::string_view::npos) return std::nullopt;  // a single port is the master's
  const auto port = text::to_number(last ? all.substr(end + 1) : all.substr(0, end), 65535);
  if (!port || *port == 0) return std::nullopt;
  return static_cast<std::uint16_t>(*port);
}

std::uint16_t own_step_port(const EnvironmentReader& environment, std::uint32_t job_id, std::uint32_t step_id,
                            PortPurpose purpose) {
  if (const auto reserved = reserved_port(environment, purpose)) return *reserved;
  return step_port(default_port_range(), read_job_name(environment, job_id), step_id, purpose);
}

}  // namespace amldist::launch
