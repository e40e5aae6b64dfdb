// Whether the way between nodes is as fast as it should be: against the SKU's floor, and against the median of the
// step's own measurements. Who is to blame follows from who is slow with whom.
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
/// whatever a few of them are. At least one hundredth of the median, so that equal values do not make noise a finding.
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

/// Something slow: a node with all of its ports, one port of a node, or just the way between two nodes.
struct SlowPart {
  enum class Kind { node, port, way };
  Kind kind = Kind::way;
  std::uint32_t node = 0;
  std::uint32_t other = 0;  ///< of a way
  std::string device;       ///< of a port or a way

  friend bool operator==(const SlowPart&, const SlowPart&) = default;
};

/// What the measurements of a step say.
struct SpeedChecks {
  Check bandwidth;  ///< ib.bandwidth
  Check latency;    ///< ib.latency
  std::vector<SlowPart> slow;
};

/// Judges what was measured; failed writes are not speed, and are left to ib.pair. `floor_gbps`: of the SKU, for each
/// port; 0: none is known.
[[nodiscard]] SpeedChecks judge_speed(const std::vector<std::string>& hosts, const std::vector<PairResult>& pairs,
                                      double floor_gbps);

/// ib.gpudirect: the same of the writes from GPUs' memory. A card that cannot read it is a warning: NCCL copies then.
[[nodiscard]] Check judge_gpudirect(const std::vector<std::string>& hosts, const std::vector<PairResult>& pairs,
                                    double floor_gbps);

/// The fewest parts that explain why these pairs, and no others of `all`, are slow. With two partners or more, a node
/// most of whose pairs are slow is to blame for them, else a port, else a node or port that is slow in one direction;
/// else only the way is known.
[[nodiscard]] std::vector<SlowPart> locate(const std::vector<PairResult>& all, const std::vector<PairResult>& slow);

/// "node3,node7": for sbatch --exclude, from slow parts and pairs that failed; empty: none. Of a way it is the second
/// node, since without either the way is not used.
[[nodiscard]] std::string exclusion(const std::vector<std::string>& hosts, const std::vector<SlowPart>& slow);

}  // namespace amldist::fabric
