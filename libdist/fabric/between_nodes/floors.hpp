// Whether the network between nodes is as fast as it should be: compared with the SKU's floor, and with the median of
// the step's own measurements. Which node or port is at fault follows from which pairs are slow.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/between_nodes/job_checks.hpp"
#include "fabric/report/verdict.hpp"

namespace amldist::fabric {

/// Median, and the median of the distances to it, times 1.4826: for normally distributed values the standard deviation,
/// regardless of a few outliers. At least one hundredth of the median, so that equal values do not turn noise into a
/// finding.
struct MedianSpread {
  std::size_t count = 0;
  double median = 0;
  double deviation = 0;

  /// How many deviations `value` lies above (or, negative, below) the median.
  [[nodiscard]] double distance(double value) const noexcept;
};
[[nodiscard]] MedianSpread median_spread_of(std::vector<double> values);

/// Fewer measurements say too little about what is usual.
inline constexpr std::size_t least_measurements = 6;

/// Something slow: a node with all of its ports, one port of a node, only the connection between two nodes, or a rail,
/// the ports of one name on most nodes.
struct SlowPart {
  enum class Kind { node, port, way, rail };
  Kind kind = Kind::way;
  std::uint32_t node = 0;   ///< unless it is a rail
  std::uint32_t other = 0;  ///< of a connection
  std::string device;       ///< of a port, a connection or a rail

  friend bool operator==(const SlowPart&, const SlowPart&) = default;
};

/// What the measurements of a step say.
struct SpeedChecks {
  Check bandwidth;  ///< ib.bandwidth
  Check latency;    ///< ib.latency
  std::vector<SlowPart> slow;
};

/// Judges the measurements; failed writes do not count as slow, and are reported by ib.pair. `floor_gbps`: of the SKU,
/// for each port; 0 if no floor is known.
[[nodiscard]] SpeedChecks judge_speed(const std::vector<std::string>& hosts, const std::vector<PairResult>& pairs,
                                      double floor_gbps);

/// What the writes from a GPU's memory to another's say.
struct GpudirectCheck {
  Check check;  ///< ib.gpudirect
  std::vector<SlowPart> slow;
};

/// The same for them. A card that cannot read a GPU's memory is a warning: NCCL copies then.
[[nodiscard]] GpudirectCheck judge_gpudirect(const std::vector<std::string>& hosts,
                                             const std::vector<PairResult>& pairs, double floor_gbps);

/// "node3", "node3 mlx5_1:1", "node3 -> node7 mlx5_1:1", "rail mlx5_1:1".
[[nodiscard]] std::string name_of(const std::vector<std::string>& hosts, const SlowPart& part);

/// The fewest parts that explain why these pairs, and no others of `all`, are slow. A device that is slow on most of
/// four nodes or more, where another device is not, is a slow rail. With two partners or more, a node
/// most of whose pairs are slow is at fault, else a port, else a node or port that is slow in one direction; else only
/// the connection is known.
[[nodiscard]] std::vector<SlowPart> locate(const std::vector<PairResult>& all, const std::vector<PairResult>& slow);

/// Adds what is not yet in `slow`.
void add_slow(std::vector<SlowPart>& slow, const std::vector<SlowPart>& more);

/// "node3,node7": for sbatch --exclude, from slow parts and pairs that failed; may be empty. A rail is no node's. Of a
/// slow connection the second node is named, because excluding either avoids it.
[[nodiscard]] std::string exclusion(const std::vector<std::string>& hosts, const std::vector<SlowPart>& slow);

}  // namespace amldist::fabric
