// How the nodes of a step are named to each other, where a kind names all of them (TF_CONFIG): by the rule by which
// MASTER_ADDR names rank 0's node. srun decides it, and the launch record carries it:
//
//   10.0.0.1-10.0.0.4,10.0.1.7     addresses in the order of the nodes, neighbours as ranges
//   *-ib0                          names, with this suffix
//   (empty)                        names as they are
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/hostlist.hpp"
#include "core/ipv4.hpp"

namespace amldist {

/// A value; const members are thread-safe. Default-constructed: names as they are.
class NodeHosts {
 public:
  NodeHosts() = default;
  [[nodiscard]] static NodeHosts names(std::string suffix);
  /// One for each node. 0.0.0.0 for a node that is named otherwise (rank 0's: MASTER_ADDR).
  [[nodiscard]] static NodeHosts addresses(std::span<const Ipv4> nodes);

  /// nullopt for a text that to_string() cannot have written. Needs memory in proportion to the text.
  [[nodiscard]] static std::optional<NodeHosts> parse(std::string_view text);
  [[nodiscard]] std::string to_string() const;

  /// Whether it says no more than the names themselves.
  [[nodiscard]] bool empty() const noexcept { return suffix_.empty() && runs_.empty(); }
  /// Whether it can be about these nodes.
  [[nodiscard]] bool fits(const Hostlist& hosts) const noexcept { return runs_.empty() || nodes_ == hosts.size(); }
  /// Of a node below hosts.size(), where it fits.
  [[nodiscard]] std::string host_of(const Hostlist& hosts, std::uint32_t node) const;

  friend bool operator==(const NodeHosts&, const NodeHosts&) = default;

 private:
  /// Nodes in a row with addresses in a row, up to the next run.
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

}  // namespace amldist
