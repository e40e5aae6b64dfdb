// Error counters over time: what they were when a baseline was taken, and what has been added since.
//
// The file has one line for each sample: TIME PORT_KEY COUNTER VALUE, TIME in seconds since 1970, PORT_KEY the device's
// node GUID (its name where it has none) and port. It is rewritten as a whole and may be rotated away at any time; a
// counter that is lower than before was reset (a reboot, a reload of the driver) and counts from zero.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.hpp"
#include "fabric/node_facts.hpp"

namespace amldist::fabric {

/// One reading of one counter.
struct Sample {
  std::uint64_t time = 0;
  std::uint64_t value = 0;
};

/// What was added to a counter, and since when; `since` 0: since it was last reset, there is no baseline.
struct Increase {
  std::uint64_t added = 0;
  std::uint64_t since = 0;
};

/// Seconds over which flaps are counted: a link that went down three times in three hours will do so again.
inline constexpr std::uint64_t flap_window = std::uint64_t{3} * 3600;
/// Samples older than this are dropped, in seconds.
inline constexpr std::uint64_t history_window = std::uint64_t{7} * 24 * 3600;

/// Largest file that is read, in bytes.
inline constexpr std::size_t longest_baseline = std::size_t{4} << 20;

/// A counter's number; nullopt for "N/A (no PMA)" and anything else that is none.
[[nodiscard]] std::optional<std::uint64_t> counter_value(const PortFacts& port, std::string_view name);

class Baseline {
 public:
  /// Strict: one bad line makes the whole file an error (a half-written file must not look like quiet counters).
  [[nodiscard]] static Result<Baseline> parse(std::string_view content);
  [[nodiscard]] std::string to_string() const;

  /// Adds a reading of every counter of the node, and drops samples that are older than history_window. A counter that
  /// stands still gets one sample a day, any other at most one in five minutes: the file stays small.
  void record(const NodeFacts& node, std::uint64_t now);

  /// What the counter gained within `window` seconds before `now`, resets included.
  [[nodiscard]] Increase increase(const DeviceFacts& device, const PortFacts& port, std::string_view counter,
                                  std::uint64_t now, std::uint64_t window) const;

 private:
  std::map<std::string, std::vector<Sample>, std::less<>> samples_;  // "GUID/PORT COUNTER"
};

}  // namespace amldist::fabric
