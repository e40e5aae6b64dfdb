// The administrator's settings: arguments in plugstack.conf, or lines of the file that config= names.
//
//   required spank_aml_dist.so port_range=20000-29999 master_addr=ip rdma.gpu=require default.gpu=pytorch
//
// site/rdma_policy.hpp says which rdma rule applies to a step.
//
// An unknown or malformed argument in plugstack.conf is reported and skipped; it never stops a node. The file decides
// what is refused, so with a fault in it every step that uses the option is refused. Arguments in plugstack.conf
// override the file.
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/net/ipv4.hpp"
#include "base/text/port_ranges.hpp"
#include "launch/option/settings.hpp"
#include "launch/option/spec.hpp"
#include "launch/site/site_check.hpp"

namespace amldist::launch {

/// The site's settings for every step on its nodes.
struct SitePolicy {
  PortRanges ports;                                                       ///< port_range=LO-HI, default 20000-29999
  MasterAddress::Form master_addr = MasterAddress::Form::ip;              ///< master_addr=name|ip
  std::string interface;                                                  ///< interface=IFACE
  std::optional<Ipv4Network> network;                                     ///< network=CIDR
  std::string suffix;                                                     ///< suffix=.DOMAIN, appended to host names
  RdmaPolicy rdma = RdmaPolicy::off;                                      ///< rdma=
  std::map<std::string, RdmaPolicy, std::less<>> rdma_of_partition;       ///< rdma.PARTITION=
  std::map<std::string, RdmaPolicy, std::less<>> rdma_of_feature;         ///< rdma.feature.NAME=, a feature of Slurm's
  std::map<std::string, RdmaPolicy, std::less<>> rdma_of_sku;             ///< rdma.sku.NAME=
  std::string rdma_sku;                                                   ///< rdma_sku=NAME: what the nodes should have
  std::map<std::string, std::string, std::less<>> rdma_sku_of_partition;  ///< rdma_sku.PARTITION=NAME
  std::map<std::string, std::string, std::less<>> rdma_sku_of_feature;    ///< rdma_sku.feature.NAME=NAME
  std::string rdma_helper;                                                ///< rdma_helper=/path/of/aml-dist
  std::optional<RdmaPairs> rdma_pairs;                                    ///< rdma_pairs=off|ring|log|all
  std::map<std::string, RdmaPairs, std::less<>> rdma_pairs_of_partition;  ///< rdma_pairs.PARTITION=
  RdmaPolicy health = RdmaPolicy::off;                                    ///< health=: GPUs and hosts
  std::map<std::string, RdmaPolicy, std::less<>> health_of_partition;     ///< health.PARTITION=
  bool trace = false;                                                     ///< trace=on|off
  std::map<std::string, bool, std::less<>> trace_of_partition;            ///< trace.PARTITION=on|off
  std::uint32_t hang = 0;                                     ///< hang=SECONDS: only report; 0: do not watch
  std::string trace_libraries;                                ///< trace_libraries=/folder/aml-dist
  bool unknown_fails = false;                                 ///< unknown=warn|fail, under rdma=require
  SecretPolicy secret = SecretPolicy::prefer;                 ///< secret=require|prefer
  bool job_comment = false;                                   ///< job_comment=on|off
  std::map<std::string, Kind, std::less<>> default_kind;      ///< default.PARTITION=KIND|none
  std::map<std::string, SiteCheck, std::less<>> site_checks;  ///< site_check.NAME=, in the file only
  bool disabled = false;                                      ///< disabled: the plugin does nothing
  std::string config_file;                                    ///< config=FILE, absolute
  bool config_is_optional = false;                            ///< config_optional=FILE: may be absent
  std::string refusal;  ///< why no step that uses the option may start; empty: the settings are valid

  [[nodiscard]] static SitePolicy defaults();
};

/// Whether Linux allows this name for a network interface and the name contains no separator of our own texts.
[[nodiscard]] bool is_interface_name(std::string_view name) noexcept;

/// Longest configuration file that is read, in bytes.
inline constexpr std::size_t longest_config = std::size_t{64} * 1024;

/// Applies arguments in order and returns one sentence for each that was skipped; load_policy() reports a wrong
/// config=.
[[nodiscard]] std::vector<std::string> apply_arguments(SitePolicy& policy, std::span<const std::string_view> arguments);

/// A wrong line of the site's file.
struct ConfigFault {
  std::size_t line = 0;  ///< from 1
  std::string text;      ///< the line without blanks around it and its comment
  std::string wrong;     ///< "needs require, prefer or off"
};

/// Applies the right lines of the site's file. Returns the others, in their order.
[[nodiscard]] std::vector<ConfigFault> apply_lines(SitePolicy& policy, std::string_view content);

/// The arguments in a configuration file: one per line, '#' begins a comment.
[[nodiscard]] std::vector<std::string_view> config_lines(std::string_view content);

/// Reads a regular file of at most longest_config bytes. Errors: not_found, limit, unavailable, with the path.
[[nodiscard]] Result<std::string> read_config_file(const std::string& path);

/// The whole policy: defaults, then the file that config= or config_optional= names, then the arguments. `complaints`
/// gets one sentence for each argument that was skipped. A file that cannot be read, does not belong to
/// `administrator`, can be written by others or has a wrong line sets SitePolicy::refusal; its other lines still count.
[[nodiscard]] SitePolicy load_policy(std::span<const std::string_view> arguments, std::vector<std::string>& complaints,
                                     uid_t administrator = 0);

}  // namespace amldist::launch
