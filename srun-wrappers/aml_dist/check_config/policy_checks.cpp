#include "aml_dist/check_config/policy_checks.hpp"

#include <net/if.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/text.hpp"
#include "fabric/sku/sku_table.hpp"
#include "launch/rendezvous/master_address.hpp"
#include "shared/programs.hpp"

namespace amldist::tools {
namespace {

using launch::RdmaPolicy;
using launch::SitePolicy;
using text::concat;
using text::quote;

void check_ports(const SitePolicy& policy, Findings& findings) {
  const PortRanges kernels = launch::kernel_ports();
  const PortRanges left = policy.ports.without(kernels);
  const std::string which = concat({"port_range=", policy.ports.to_string()});
  if (left.empty()) {
    findings.error(0,
                   concat({which, ": this machine's kernel gives all of these ports to other programs (",
                           kernels.to_string(), "): every step is refused"}),
                   "choose ports outside of net.ipv4.ip_local_port_range");
  } else if (left.size() < policy.ports.size()) {
    findings.warn(0,
                  concat({which, ": only ", left.to_string(), " can be used, the kernel gives the others (",
                          kernels.to_string(), ") to other programs"}),
                  "choose ports outside of net.ipv4.ip_local_port_range");
  }
}

void check_names(const SitePolicy& policy, Findings& findings) {
  if (!policy.interface.empty() && ::if_nametoindex(policy.interface.c_str()) == 0) {
    findings.warn(0, concat({"interface=", policy.interface, ": this machine has no such interface"}),
                  "the compute nodes need it: run this command on one of them");
  }
  if (!policy.rdma_helper.empty() && ::access(policy.rdma_helper.c_str(), X_OK) != 0)
    findings.error(0, concat({"rdma_helper=", policy.rdma_helper, " is not a program that can be run"}));
  struct stat found = {};
  if (!policy.trace_libraries.empty() &&
      (::stat(policy.trace_libraries.c_str(), &found) != 0 || !S_ISDIR(found.st_mode)))
    findings.error(0, concat({"trace_libraries=", policy.trace_libraries, " is not a folder"}));
}

/// Whether root would run a program that others may change: writable by them, or in a folder where they may replace it.
bool others_may_write(const std::string& path) {
  struct stat found = {};
  const std::string folder = path.substr(0, std::max<std::size_t>(path.rfind('/'), 1));
  const auto is_open = [&found](const std::string& each) {
    return ::stat(each.c_str(), &found) == 0 && (found.st_mode & (S_IWGRP | S_IWOTH)) != 0;
  };
  return is_open(path) || (is_open(folder) && (found.st_mode & S_ISVTX) == 0);
}

void check_site_checks(const SitePolicy& policy, bool health, Findings& findings) {
  constexpr std::uint32_t longest_at_launch = 10;
  for (const auto& [name, site] : policy.site_checks) {
    const std::string& program = site.words.front();
    const std::string which = concat({"site_check.", name, ": ", quote(program)});
    struct stat found = {};
    const bool is_there = ::stat(program.c_str(), &found) == 0 && S_ISREG(found.st_mode);
    if (!is_there || ::access(program.c_str(), X_OK) != 0) {
      findings.error(0, concat({which, " is not a program that can be run: the check will be unknown"}),
                     "if only the compute nodes have it, run this command on one of them");
    } else if (others_may_write(program)) {
      findings.error(0, concat({which, " can be changed by others than its owner, and root runs it"}),
                     "chmod go-w the program and its folder");
    }
    if (health && !site.needs_root && site.seconds > longest_at_launch)
      findings.warn(0,
                    concat({"site_check.", name, ": ", std::to_string(site.seconds),
                            " s, but a launch under health= ", "waits 10 s at most"}),
                    "write ',root' where only prolog and health check are to run it");
  }
}

template <typename Map>
bool any_on(RdmaPolicy whole, const Map& map) {
  return whole != RdmaPolicy::off ||
         std::ranges::any_of(map, [](const auto& each) { return each.second != RdmaPolicy::off; });
}

void check_effects(const SitePolicy& policy, Findings& findings) {
  const bool rdma = any_on(policy.rdma, policy.rdma_of_partition) || any_on(RdmaPolicy::off, policy.rdma_of_feature) ||
                    any_on(RdmaPolicy::off, policy.rdma_of_sku);
  const bool health = any_on(policy.health, policy.health_of_partition);
  const bool sku =
      !policy.rdma_sku.empty() || !policy.rdma_sku_of_partition.empty() || !policy.rdma_sku_of_feature.empty();
  const std::string remedy = "set rdma=require or rdma=prefer, or remove it";
  if (!rdma && (policy.rdma_pairs || !policy.rdma_pairs_of_partition.empty()))
    findings.warn(0, "rdma_pairs= has no effect while rdma= is off", remedy);
  if (!rdma && !health && sku) findings.warn(0, "rdma_sku= has no effect while rdma= and health= are off", remedy);
  if (!rdma && !health && policy.unknown_fails)
    findings.warn(0, "unknown=fail has no effect while rdma= and health= are off", remedy);
  check_site_checks(policy, health, findings);
  if (policy.disabled) findings.warn(0, "'disabled' switches the plugin off: --aml-dist has no effect");
}

void check_skus(const SitePolicy& policy, Findings& findings) {
  std::vector<std::string> names;
  if (!policy.rdma_sku.empty()) names.push_back(policy.rdma_sku);
  for (const auto* map : {&policy.rdma_sku_of_partition, &policy.rdma_sku_of_feature}) {
    for (const auto& [scope, name] : *map) names.push_back(name);
  }
  if (names.empty()) return;
  const auto table = fabric::load_sku_table("");
  if (!table) return findings.error(0, table.error().message);
  for (const std::string& name : names) {
    const auto sku = table->find(name);
    if (!sku) findings.error(0, sku.error().message);
    else if (sku->is_guessed && !sku->nearest.empty())
      findings.warn(0, concat({"SKU ", quote(name), " is not in the table"}),
                    concat({"did you mean '", sku->nearest, "'?"}));
  }
}

/// nullopt: Slurm does not say.
std::optional<std::vector<std::string>> partitions() {
  const auto answer = commands::run_program({"timeout", "10", "sinfo", "--noheader", "--all", "--format=%R"});
  if (!answer || answer->status != 0 || answer->out.empty()) return std::nullopt;
  std::vector<std::string> names;
  for (const std::string_view line : text::split(answer->out, '\n')) names.emplace_back(text::trim(line));
  return names;
}

template <typename Map>
void name_scopes(std::string_view argument, const Map& map, std::vector<std::pair<std::string, std::string>>& out) {
  for (const auto& [partition, value] : map) out.emplace_back(concat({argument, ".", partition}), partition);
}

void check_partitions(const SitePolicy& policy, Findings& findings) {
  std::vector<std::pair<std::string, std::string>> asked;
  name_scopes("rdma", policy.rdma_of_partition, asked);
  name_scopes("rdma_sku", policy.rdma_sku_of_partition, asked);
  name_scopes("rdma_pairs", policy.rdma_pairs_of_partition, asked);
  name_scopes("health", policy.health_of_partition, asked);
  name_scopes("trace", policy.trace_of_partition, asked);
  name_scopes("default", policy.default_kind, asked);
  if (asked.empty()) return;
  const auto known = partitions();
  if (!known) return;
  const std::vector<std::string_view> names(known->begin(), known->end());
  for (const auto& [argument, partition] : asked) {
    if (std::ranges::find(names, partition) != names.end()) continue;
    const auto near = text::nearest(partition, names);
    findings.warn(0, concat({argument, "=: Slurm has no partition ", quote(partition)}),
                  near ? concat({"did you mean '", *near, "'?"}) : concat({"there are ", text::join(names)}));
  }
}

}  // namespace

void check_policy(const SitePolicy& policy, Findings& findings) {
  check_ports(policy, findings);
  check_names(policy, findings);
  check_effects(policy, findings);
  check_skus(policy, findings);
  check_partitions(policy, findings);
}

}  // namespace amldist::tools
