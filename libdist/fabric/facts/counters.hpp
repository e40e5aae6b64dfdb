// Error counters over time: their values at a baseline, and the increase since then.
//
// The file has one line per sample: TIME PORT_KEY COUNTER VALUE. TIME is in seconds since 1970; PORT_KEY is the
// device's node GUID (its name if it has none) and port. The file is rewritten as a whole and may be rotated away at
// any time. A counter below its previous value was reset (reboot, driver reload) and counts from zero.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/result.hpp"
#include "fabric/facts/node_facts.hpp"

namespace amldist::fabric {

/// One reading of one counter.
struct Sample {
  std::uint64_t time = 0;
  std::uint64_t value = 0;
};

/// Increase of a counter and its start time; `since` 0: since its last reset, because there is no baseline.
struct Increase {
  std::uint64_t added = 0;
  std::uint64_t since = 0;
};

/// Window in which link flaps are counted, in seconds. A link that fails three times in three hours will fail again.
inline constexpr std::uint64_t flap_window = std::uint64_t{3} * 3600;
/// Samples older than this are dropped, in seconds.
inline constexpr std::uint64_t history_window = std::uint64_t{7} * 24 * 3600;

/// Largest file that is read, in bytes.
inline constexpr std::size_t longest_baseline = std::size_t{4} << 20;

/// A counter's value; nullopt for "N/A (no PMA)" and anything else that is not a number.
[[nodiscard]] std::optional<std::uint64_t> counter_value(const PortFacts& port, std::string_view name);

class Baseline {
 public:
  /// Strict: one bad line makes the whole file an error, so that a truncated file does not look like quiet counters.
  [[nodiscard]] static Result<Baseline> parse(std::string_view content);
  [[nodiscard]] std::string to_string() const;

  /// Adds a reading of every counter of the node and drops samples older than history_window. An unchanged counter gets
  /// one sample a day, a changed one at most one in five minutes, so the file stays small.
  void record(const NodeFacts& node, std::uint64_t now);

  /// How much the counter grew within `window` seconds before `now`, across resets.
  [[nodiscard]] Increase increase(const DeviceFacts& device, const PortFacts& port, std::string_view counter,
                                  std::uint64_t now, std::uint64_t window) const;

 private:
  std::map<std::string, std::vector<Sample>, std::less<>> samples_;  // "GUID/PORT COUNTER"
};

}  // namespace amldist::fabric
