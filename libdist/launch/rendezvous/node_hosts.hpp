// How the nodes of a step are named to each other by kinds that name all of them (TF_CONFIG). The rule is the one by
// which MASTER_ADDR names rank 0's node. srun applies it, and the launch record carries the result:
//
//   10.0.0.1-10.0.0.4,10.0.1.7     addresses in node order, consecutive ones as ranges
//   *-ib0                          names, with this suffix
//   (empty)                        the node names themselves
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/net/ipv4.hpp"
#include "base/text/hostlist.hpp"

namespace amldist::launch {

/// A value; const members are thread-safe. Default-constructed: the node names themselves.
class NodeHosts {
 public:
  NodeHosts() = default;
  [[nodiscard]] static NodeHosts names(std::string suffix);
  /// One address per node. 0.0.0.0 for a node that is named in another way (rank 0's: MASTER_ADDR).
  [[nodiscard]] static NodeHosts addresses(std::span<const Ipv4> nodes);

  /// nullopt for a text that to_string() cannot have written. Uses memory in proportion to the text.
  [[nodiscard]] static std::optional<NodeHosts> parse(std::string_view text);
  [[nodiscard]] std::string to_string() const;

  /// Whether the nodes are known by their own names.
  [[nodiscard]] bool empty() const noexcept { return suffix_.empty() && runs_.empty(); }
  /// Whether it has as many nodes as `hosts`.
  [[nodiscard]] bool fits(const Hostlist& hosts) const noexcept { return runs_.empty() || nodes_ == hosts.size(); }
  /// The name or address of a node; requires fits(hosts) and node < hosts.size().
  [[nodiscard]] std::string host_of(const Hostlist& hosts, std::uint32_t node) const;

  friend bool operator==(const NodeHosts&, const NodeHosts&) = default;

 private:
  /// Consecutive nodes with consecutive addresses.
  struct Run {
    std::uint32_t node;
    Ipv4 address;

    friend bool operator==(const Run&, const Run&) = default;
  };
  [[nodiscard]] std::uint32_t end_of(std::size_t run) const noexcept;
  void append(Ipv4 first, std::uint32_t count);

  std::string suffix_;
  std::vector<Run> runs_;
  std::uint32_t nodes_ = 0;
};

}  // namespace amldist::launch
