// The switches or blocks of the network, as `scontrol show topology` prints them, and an order of hosts along them.
//
//   SwitchName=s0 Level=0 LinkSpeed=1 Nodes=node[1-2]              topology/tree
//   SwitchName=core Level=1 LinkSpeed=1 Nodes=node[1-4] Switches=s[0-1]
//   BlockName=b1 BlockIndex=0 Nodes=node[1-2] BlockSize=2          topology/block
//   AggregatedBlock=b1,b2 BlockIndex=2 Nodes=node[1-4] BlockSize=4
//   node1 core.s0.node1                                            a host and its SLURM_TOPOLOGY_ADDR
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/result.hpp"
#include "launch/placement/step_facts.hpp"

namespace amldist::launch {

class NetworkTopology {
 public:
  /// Longest text that is read, in bytes.
  static constexpr std::size_t longest_text = std::size_t{32} << 20;

  /// Lines of other kinds are skipped. Errors: unavailable if there is no switch or block; limit.
  [[nodiscard]] static Result<NetworkTopology> parse(std::string_view text);

  /// As scontrol says. Errors: unavailable, also if it does not answer within ten seconds.
  [[nodiscard]] static Result<NetworkTopology> of_cluster();

  /// Links between two hosts: 0 for the same one, 2 below one leaf switch or in one block, 4 if a switch above these
  /// joins them, and so on. Two hosts that nothing joins have a level more than the highest.
  [[nodiscard]] std::uint32_t hops(const std::string& one, const std::string& other) const;
  /// The sum over neighbours.
  [[nodiscard]] std::uint64_t hops_along(std::span<const std::string> hosts) const;
  /// The same hosts, those of a switch together on every level. The first one stays first; otherwise switches, and
  /// hosts of a switch, are in the order in which they come first.
  [[nodiscard]] std::vector<std::string> in_order(std::span<const std::string> hosts) const;

 private:
  /// One switch on each level from 0 on that a host is below; no_switch where it is below none.
  using Path = std::vector<std::uint32_t>;
  static constexpr std::uint32_t no_switch = UINT32_MAX;
  [[nodiscard]] const Path& path_of(const std::string& host) const;
  [[nodiscard]] Result<void> add(std::string_view line);
  void add_address(std::string_view line);

  std::map<std::string, Path, std::less<>> paths_;
  std::map<std::string, std::uint32_t, std::less<>> of_address_;  ///< "core.s0"
  Path nowhere_;
  std::uint32_t switches_ = 0;
  std::uint32_t levels_ = 0;
};

/// Each host once, by its lowest rank.
[[nodiscard]] std::vector<std::string> hosts_in_rank_order(const Placement& placement);

}  // namespace amldist::launch
