// Which ports NCCL and UCX would use. The selection grammars are evaluated as their sources do.
//
//   NCCL_IB_HCA=mlx5_1            every device whose name begins with mlx5_1 (mlx5_10 too)
//   NCCL_IB_HCA==mlx5_1:1,mlx5_2  exactly mlx5_1, port 1, and mlx5_2, any port
//   NCCL_IB_HCA=^mlx5_an          all except those
//   NCCL_IB_HCA=mlx5_1:1:0:2      with rail and plane, which do not select
//   UCX_NET_DEVICES=mlx5_2:1      exactly this port; "all" anywhere in the list selects everything
//   UCX_NET_DEVICES=mlx5_[0-3]:1  a range
//   UCX_NET_DEVICES=^mlx5_an0:1   all except those
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/net/ipv4.hpp"
#include "base/text/environment.hpp"
#include "fabric/facts/node_facts.hpp"

namespace amldist::fabric {

/// A parsed NCCL_IB_HCA. NCCL uses the same grammar for interfaces.
class NcclSelection {
 public:
  struct Entry {
    std::string name;
    std::optional<int> port;  ///< nullopt: any
  };

  /// NCCL has changed its parser: releases before 2.30 skip a second '^' or '=' at the beginning, and read an empty
  /// port
  /// ("mlx5_0:") as port 0.
  enum class Grammar { current, before_2_30 };

  /// Never fails, like NCCL's parser: a malformed entry selects nothing.
  [[nodiscard]] static NcclSelection parse(std::string_view text, Grammar grammar = Grammar::current);

  /// Whether NCCL would use the port if it were active. An empty list selects all (with '^' none).
  [[nodiscard]] bool takes(std::string_view device, std::uint32_t port) const noexcept;
  /// Whether the port is selected only because an entry is a prefix of its name.
  [[nodiscard]] bool takes_by_prefix_only(std::string_view device, std::uint32_t port) const noexcept;
  [[nodiscard]] const std::vector<Entry>& entries() const noexcept { return entries_; }
  [[nodiscard]] bool excludes() const noexcept { return exclude_; }
  [[nodiscard]] bool is_exact() const noexcept { return exact_; }

 private:
  bool exclude_ = false;
  bool exact_ = false;
  std::vector<Entry> entries_;
};

/// UCX_NET_DEVICES.
class UcxSelection {
 public:
  [[nodiscard]] static UcxSelection parse(std::string_view text);
  [[nodiscard]] bool takes(std::string_view device, std::uint32_t port) const;
  [[nodiscard]] const std::vector<std::string>& names() const noexcept { return names_; }

 private:
  bool exclude_ = false;
  std::vector<std::string> names_;
};

/// UCX_TLS: whether any transport over verbs is allowed. nullopt: the list has an unknown form.
[[nodiscard]] std::optional<bool> ucx_allows_verbs(std::string_view transports);

/// NCCL's integer parameters: strtoll with base 0; text that is not a number leaves the default.
[[nodiscard]] std::optional<std::int64_t> nccl_parameter(const EnvironmentReader& environment, std::string_view name);

/// Whether NCCL would use the port with this environment: active, InfiniBand or Ethernet, and selected.
[[nodiscard]] bool nccl_uses(const EnvironmentReader& environment, const DeviceFacts& device, const PortFacts& port);

/// The GID index that NCCL chooses for a port (ncclIbGetGidIndex). InfiniBand: 0, or 1 if that GID has a FLID. RoCE:
/// the user's, else a scan by family (NCCL_IB_ADDR_FAMILY), network (NCCL_IB_ADDR_RANGE, IPv4 here) and version.
[[nodiscard]] std::uint32_t nccl_gid_index(const EnvironmentReader& environment, const PortFacts& port);

/// The index that works: NCCL's choice, or where that is no routable RoCE v2 GID and the user has said nothing about
/// GIDs, the first that is (a network of IPv6 alone, which NCCL does not look for by itself).
[[nodiscard]] std::uint32_t working_gid_index(const EnvironmentReader& environment, const PortFacts& port);

/// A copy of the variables that checks read, independent of the environment.
[[nodiscard]] EnvironmentReader snapshot(const EnvironmentReader& environment);

/// "=mlx5_ib0:1,mlx5_ib1:1": the exact form of a set of ports, for NCCL_IB_HCA.
struct PortName {
  std::string device;
  std::uint32_t port = 1;

  [[nodiscard]] std::string to_string() const { return device + ":" + std::to_string(port); }
  friend bool operator==(const PortName&, const PortName&) = default;
};
[[nodiscard]] std::string exact_selection(const std::vector<PortName>& ports);

/// Settings for NCCL: the ports that it should use.
struct FabricSettings {
  std::vector<PortName> ports;
  std::optional<std::uint32_t> gid_index;  ///< RoCE, if all ports have the same index
};

}  // namespace amldist::fabric
