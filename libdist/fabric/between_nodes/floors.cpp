#include "fabric/between_nodes/floors.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/text/text.hpp"

namespace amldist::fabric {
namespace {

using text::concat;

constexpr double far = 5;  ///< deviations: one in a million of a normal distribution

/// "397", "2.41".
std::string shown(double value) {
  const auto hundredths = static_cast<std::uint64_t>(std::lround(value * 100));
  if (hundredths >= 10'000) return std::to_string((hundredths + 50) / 100);
  const std::string fraction = std::to_string(hundredths % 100);
  return concat({std::to_string(hundredths / 100), ".", fraction.size() < 2 ? "0" : "", fraction});
}

double median_of(std::vector<double>& values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::ranges::max_element(values.begin(), middle)) / 2;
}

std::string name_at(const std::vector<std::string>& hosts, std::uint32_t node) {
  return node < hosts.size() ? hosts[node] : concat({"node ", std::to_string(node)});
}

std::string way_of(const std::vector<std::string>& hosts, const PairResult& pair) {
  return concat({name_at(hosts, pair.from), " -> ", name_at(hosts, pair.to), " over ", pair.device});
}

std::vector<PairResult> measured_only(const std::vector<PairResult>& pairs) {
  std::vector<PairResult> out;
  std::ranges::copy_if(pairs, std::back_inserter(out),
                       [](const PairResult& each) { return each.problem.empty() && each.gbps > 0; });
  return out;
}

/// The usual values on each device: rails need not be alike.
std::map<std::string, MedianSpread> spread_by_device(const std::vector<PairResult>& pairs, double PairResult::*value) {
  std::map<std::string, std::vector<double>> values;
  for (const PairResult& each : pairs) values[each.device].push_back(each.*value);
  std::map<std::string, MedianSpread> out;
  for (auto& [device, list] : values) out[device] = median_spread_of(std::move(list));
  return out;
}

/// The value with which a measurement is compared, and how far from its median it must be to count.
struct Threshold {
  MedianSpread usual;
  double much_slower = 0.9;  ///< of the median's bandwidth
  double much_later = 1.5;   ///< times the median's latency
};

/// The usual values on the pair's device. In a small step a sick node takes part in half of all pairs or more, so that
/// its pairs determine the median: there each pair is also compared with those of the other nodes, which are few, and
/// has to deviate more.
std::vector<Threshold> thresholds_of(const std::vector<PairResult>& pairs, const PairResult& pair,
                                     const MedianSpread& usual, std::size_t nodes, double PairResult::*value) {
  constexpr std::size_t small_step = 8;
  constexpr std::size_t least_of_others = 4;
  std::vector<Threshold> out;
  if (usual.count >= least_measurements) out.push_back({usual});
  if (nodes > small_step) return out;
  for (const std::uint32_t node : {pair.from, pair.to}) {
    std::vector<double> others;
    for (const PairResult& each : pairs) {
      if (each.device == pair.device && each.from != node && each.to != node) others.push_back(each.*value);
    }
    if (others.size() >= least_of_others) out.push_back({median_spread_of(std::move(others)), 0.75, 2});
  }
  return out;
}

std::string against(const MedianSpread& usual, double value) {
  return concat({shown(std::abs(usual.distance(value))), " deviations from the median ", shown(usual.median), " of ",
                 text::count(usual.count, "measurement")});
}

std::optional<Finding> bandwidth_finding(const std::vector<std::string>& hosts, const PairResult& pair,
                                         const std::vector<Threshold>& thresholds, double floor_gbps) {
  constexpr std::string_view remedy =
      "see ib.rate, ib.pcie, ib.err and host.bridge of both; --exclude names the nodes to leave";
  const std::string evidence = concat({way_of(hosts, pair), ": ", shown(pair.gbps), " Gb/s"});
  if (floor_gbps > 0 && pair.gbps < floor_gbps) {
    return Finding{Verdict::fail, concat({evidence, ", the SKU's floor is ", shown(floor_gbps)}), std::string(remedy)};
  }
  const auto low = std::ranges::find_if(thresholds, [&pair](const Threshold& each) {
    return pair.gbps < each.usual.median * each.much_slower && each.usual.distance(pair.gbps) < -far;
  });
  if (low == thresholds.end()) return std::nullopt;
  return Finding{Verdict::fail, concat({evidence, ", ", against(low->usual, pair.gbps)}), std::string(remedy)};
}

std::optional<Finding> latency_finding(const std::vector<std::string>& hosts, const PairResult& pair,
                                       const std::vector<Threshold>& thresholds) {
  const auto late = std::ranges::find_if(thresholds, [&pair](const Threshold& each) {
    return pair.latency_us > each.usual.median * each.much_later && each.usual.distance(pair.latency_us) > far;
  });
  if (late == thresholds.end()) return std::nullopt;
  return Finding{
      Verdict::warn,
      concat({way_of(hosts, pair), ": ", shown(pair.latency_us), " us, ", against(late->usual, pair.latency_us)}),
      "are the two far apart in the network, or is a processor asleep (C-states)?"};
}

/// "24 measurements, median 391, least 388 Gb/s".
std::string summary(const std::vector<PairResult>& pairs, double PairResult::*value, std::string_view unit) {
  std::vector<double> values;
  values.reserve(pairs.size());
  for (const PairResult& each : pairs) values.push_back(each.*value);
  const auto [least, most] = std::ranges::minmax(values);
  return concat({text::count(pairs.size(), "measurement"), ", median ", shown(median_spread_of(values).median),
                 ", from ", shown(least), " to ", shown(most), " ", unit,
                 pairs.size() < least_measurements ? ": too few to compare with their median" : ""});
}

bool touches(const PairResult& pair, std::uint32_t node) { return pair.from == node || pair.to == node; }
bool is_same(const PairResult& one, const PairResult& other) {
  return one.from == other.from && one.to == other.to && one.device == other.device;
}

/// A node or port suspected of being slow: its pairs as the writer, as the one written to, or both; on all its ports or
/// one.
struct SlowCandidate {
  std::uint32_t node = 0;
  std::string device = {};  ///< empty: any
  bool writes = true;
  bool receives = true;

  [[nodiscard]] bool covers(const PairResult& pair) const {
    const bool takes_part = (writes && pair.from == node) || (receives && pair.to == node);
    return takes_part && (device.empty() || pair.device == device);
  }
};

/// The widest suspects first: a badly seated card, for example, is slow only at sending.
std::vector<SlowCandidate> candidates_of(std::uint32_t node, const std::string& device) {
  return {{node},
          {node, device},
          {node, "", true, false},
          {node, "", false, true},
          {node, device, true, false},
          {node, device, false, true}};
}

/// Whether it explains enough of the pairs that it takes part in: most of them, with two partners or more.
bool explains(const std::vector<PairResult>& all, const std::vector<PairResult>& slow, const SlowCandidate& candidate) {
  constexpr double most = 0.75;
  const auto touched = [&candidate](const PairResult& each) { return candidate.covers(each); };
  std::set<std::uint32_t> partners;
  std::size_t pairs = 0;
  for (const PairResult& each : all) {
    if (!touched(each)) continue;
    ++pairs;
    partners.insert(each.from == candidate.node ? each.to : each.from);
  }
  const auto hit = static_cast<double>(std::ranges::count_if(slow, touched));
  return partners.size() >= 2 && hit >= static_cast<double>(pairs) * most && hit > 0;
}

/// The devices that are slow nearly everywhere, unless all are.
std::vector<std::string> slow_rails(const std::vector<PairResult>& all, const std::vector<PairResult>& slow) {
  constexpr double most = 0.75;
  constexpr std::size_t least_nodes = 4;
  struct Rail {
    double pairs = 0;
    double slow = 0;
    std::set<std::uint32_t> nodes;
  };
  std::map<std::string, Rail> rails;
  for (const PairResult& each : all) ++rails[each.device].pairs;
  for (const PairResult& each : slow) {
    Rail& rail = rails[each.device];
    ++rail.slow;
    rail.nodes.insert({each.from, each.to});
  }
  std::vector<std::string> out;
  for (const auto& [device, rail] : rails) {
    if (rail.nodes.size() >= least_nodes && rail.slow >= rail.pairs * most) out.push_back(device);
  }
  if (out.size() == rails.size()) out.clear();
  return out;
}

/// Rails whose usual speed is far below that of the others: a floor that the fabric itself teaches. They may be meant
/// so, as for storage, and are a warning.
std::vector<Finding> compare_rails(const std::map<std::string, MedianSpread>& usual, std::vector<SlowPart>& slow) {
  constexpr double share = 0.75;
  constexpr std::size_t least_rails = 3;
  std::vector<Finding> out;
  for (const auto& [device, spread] : usual) {
    std::vector<double> others;
    for (const auto& [other, its] : usual) {
      if (other != device && its.count >= least_measurements) others.push_back(its.median);
    }
    if (spread.count < least_measurements || others.size() + 1 < least_rails) continue;
    const double median = median_of(others);
    if (spread.median >= median * share) continue;
    slow.push_back({SlowPart::Kind::rail, 0, 0, device});
    out.push_back(
        {Verdict::warn,
         concat({"rail ", device, ": median ", shown(spread.median), " Gb/s, the other rails' ", shown(median)}),
         "look at the switches of this rail, or name the fabric's ports with hca= in the table of SKUs"});
  }
  return out;
}

}  // namespace

std::string name_of(const std::vector<std::string>& hosts, const SlowPart& part) {
  if (part.kind == SlowPart::Kind::rail) return concat({"rail ", part.device});
  return concat({name_at(hosts, part.node),
                 part.kind == SlowPart::Kind::way ? concat({" -> ", name_at(hosts, part.other)}) : "",
                 part.device.empty() ? "" : concat({" ", part.device})});
}

double MedianSpread::distance(double value) const noexcept { return deviation > 0 ? (value - median) / deviation : 0; }

MedianSpread median_spread_of(std::vector<double> values) {
  constexpr double normal = 1.4826;
  constexpr double least = 0.01;
  MedianSpread out;
  out.count = values.size();
  out.median = median_of(values);
  for (double& each : values) each = std::abs(each - out.median);
  out.deviation = std::max(median_of(values) * normal, out.median * least);
  return out;
}

std::vector<SlowPart> locate(const std::vector<PairResult>& all, const std::vector<PairResult>& slow) {
  std::vector<PairResult> left = slow;
  std::vector<SlowPart> out;
  for (const std::string& rail : slow_rails(all, slow)) {
    out.push_back({SlowPart::Kind::rail, 0, 0, rail});
    std::erase_if(left, [&rail](const PairResult& each) { return each.device == rail; });
  }
  // The suspect with most slow pairs first: its partners are then no longer suspected because of them.
  while (!left.empty()) {
    std::map<std::uint32_t, std::size_t> blame;
    for (const PairResult& each : left) {
      ++blame[each.from];
      ++blame[each.to];
    }
    const std::uint32_t node = std::ranges::max_element(blame, {}, [](const auto& each) { return each.second; })->first;
    const PairResult& first =
        *std::ranges::find_if(left, [node](const PairResult& each) { return touches(each, node); });
    const std::string device = first.device;
    const auto candidates = candidates_of(node, device);
    const auto guilty =
        std::ranges::find_if(candidates, [&](const SlowCandidate& each) { return explains(all, left, each); });
    if (guilty == candidates.end()) {
      const PairResult way = first;
      out.push_back({SlowPart::Kind::way, way.from, way.to, device});
      std::erase_if(left, [&way](const PairResult& each) { return is_same(each, way); });
      continue;
    }
    out.push_back({guilty->device.empty() ? SlowPart::Kind::node : SlowPart::Kind::port, node, 0, guilty->device});
    std::erase_if(left, [&guilty](const PairResult& each) { return guilty->covers(each); });
  }
  return out;
}

GpudirectCheck judge_gpudirect(const std::vector<std::string>& hosts, const std::vector<PairResult>& pairs,
                               double floor_gbps) {
  std::vector<PairResult> measured;
  std::vector<Finding> findings;
  std::string reason = "nothing was measured";
  for (const PairResult& each : pairs) {
    if (!each.gpu.reason.empty()) reason = each.gpu.reason;
    if (!each.gpu.problem.empty()) {
      findings.push_back({Verdict::warn,
                          text::concat({each.from < hosts.size() ? hosts[each.from] : "a node", " ", each.device,
                                        " does not read the GPU's memory: ", each.gpu.problem}),
                          "modprobe nvidia_peermem, or a kernel and driver with DMA-BUF (ib.gdr)"});
    }
    if (each.gpu.gbps <= 0) continue;
    measured.push_back(each);
    measured.back().gbps = each.gpu.gbps;
  }
  GpudirectCheck out;
  if (!measured.empty()) {
    SpeedChecks speed = judge_speed(hosts, measured, floor_gbps);
    const auto to_host =
        std::ranges::find_if(measured, [](const PairResult& each) { return !each.gpu.reason.empty(); });
    const std::string targets =
        to_host == measured.end()
            ? "GPU to GPU: "
            : concat({"from GPUs, ", way_of(hosts, *to_host), " to host memory, since ", to_host->gpu.reason, ": "});
    findings.push_back({speed.bandwidth.verdict, targets + speed.bandwidth.evidence, speed.bandwidth.remedy});
    out.slow = std::move(speed.slow);
  }
  out.check = join_findings("ib.gpudirect", findings, reason);
  return out;
}

void add_slow(std::vector<SlowPart>& slow, const std::vector<SlowPart>& more) {
  for (const SlowPart& each : more) {
    if (std::ranges::find(slow, each) == slow.end()) slow.push_back(each);
  }
}

SpeedChecks judge_speed(const std::vector<std::string>& hosts, const std::vector<PairResult>& pairs,
                        double floor_gbps) {
  const auto measured = measured_only(pairs);
  SpeedChecks out{{"ib.bandwidth", Verdict::skip, "nothing was measured", ""},
                  {"ib.latency", Verdict::skip, "nothing was measured", ""},
                  {}};
  if (measured.empty()) return out;
  const auto usual_speed = spread_by_device(measured, &PairResult::gbps);
  const auto usual_time = spread_by_device(measured, &PairResult::latency_us);
  std::vector<Finding> speeds;
  std::vector<Finding> times;
  std::vector<PairResult> slow;
  for (const PairResult& each : measured) {
    const auto speed = thresholds_of(measured, each, usual_speed.at(each.device), hosts.size(), &PairResult::gbps);
    const auto time = thresholds_of(measured, each, usual_time.at(each.device), hosts.size(), &PairResult::latency_us);
    if (auto finding = bandwidth_finding(hosts, each, speed, floor_gbps)) {
      speeds.push_back(std::move(*finding));
      slow.push_back(each);
    }
    if (auto finding = latency_finding(hosts, each, time)) times.push_back(std::move(*finding));
  }
  std::vector<SlowPart> rails;
  for (Finding& each : compare_rails(usual_speed, rails)) speeds.push_back(std::move(each));
  if (speeds.empty()) speeds.push_back({Verdict::pass, summary(measured, &PairResult::gbps, "Gb/s"), ""});
  if (times.empty()) times.push_back({Verdict::pass, summary(measured, &PairResult::latency_us, "us"), ""});
  out.bandwidth = join_findings("ib.bandwidth", speeds, "");
  out.latency = join_findings("ib.latency", times, "");
  out.slow = locate(measured, slow);
  add_slow(out.slow, rails);
  std::string blamed;
  for (const SlowPart& part : out.slow) {
    blamed += concat({blamed.empty() ? "slow: " : ", ", name_of(hosts, part)});
  }
  if (!blamed.empty()) out.bandwidth.evidence = concat({printable(blamed, 200), "; ", out.bandwidth.evidence});
  return out;
}

std::string exclusion(const std::vector<std::string>& hosts, const std::vector<SlowPart>& slow) {
  std::set<std::uint32_t> nodes;
  for (const SlowPart& part : slow) {
    if (part.kind != SlowPart::Kind::rail) nodes.insert(part.kind == SlowPart::Kind::way ? part.other : part.node);
  }
  std::string out;
  for (const std::uint32_t node : nodes) out += concat({out.empty() ? "" : ",", name_at(hosts, node)});
  return out;
}

}  // namespace amldist::fabric
