#include "launch/site/rdma_policy.hpp"

#include <algorithm>
#include <set>

#include "base/text/text.hpp"

namespace amldist::launch {
namespace {

using text::concat;

/// Orders the policies: off, prefer, require.
int strictness(RdmaPolicy policy) noexcept {
  if (policy == RdmaPolicy::require) return 2;
  return policy == RdmaPolicy::prefer ? 1 : 0;
}

/// Compares SKU names without regard to case and to Azure's prefix "Standard_".
bool is_same_sku(std::string_view one, std::string_view other) {
  static constexpr std::string_view prefix = "standard_";
  const auto bare = [](std::string_view name) {
    std::string lower = text::to_lower(name);
    if (lower.starts_with(prefix)) lower.erase(0, prefix.size());
    return lower;
  };
  return bare(one) == bare(other);
}

/// The strictest of the rules that apply; nullopt if no rule does.
template <typename Rules, typename Applies>
std::optional<RdmaChoice> strictest(const Rules& rules, std::string_view prefix, Applies applies) {
  std::optional<RdmaChoice> out;
  for (const auto& [name, policy] : rules) {
    if (!applies(name) || (out && strictness(policy) <= strictness(out->policy))) continue;
    out = RdmaChoice{policy, concat({prefix, name, "="})};
  }
  return out;
}

/// The SKU that the site configured for the partition; nullopt if it configured no SKU.
std::optional<std::string> told_sku(const SitePolicy& policy, std::string_view partition) {
  const auto found = policy.rdma_sku_of_partition.find(partition);
  return found != policy.rdma_sku_of_partition.end() ? std::optional(found->second) : std::nullopt;
}

/// The SKUs that occur among the step's nodes.
std::set<std::string> skus_of_step(const SitePolicy& policy, std::string_view partition, const NodeFeatures& features) {
  if (auto told = told_sku(policy, partition)) return {std::move(*told)};
  std::set<std::string> out;
  for (const auto& [feature, sku] : policy.rdma_sku_of_feature) {
    if (features.on_any(feature)) out.insert(sku);
  }
  if (!policy.rdma_sku.empty()) {
    if (out.empty()) out.insert(policy.rdma_sku);
    return out;
  }
  for (const auto& [sku, unused] : policy.rdma_of_sku) {
    if (features.on_any(sku)) out.insert(sku);
  }
  return out;
}

RdmaChoice site_choice(const SitePolicy& policy, std::string_view partition, const NodeFeatures& features) {
  const auto found = policy.rdma_of_partition.find(partition);
  if (found != policy.rdma_of_partition.end()) return {found->second, concat({"rdma.", partition, "="})};
  const auto on_some_node = [&features](std::string_view feature) { return features.on_any(feature); };
  if (auto choice = strictest(policy.rdma_of_feature, "rdma.feature.", on_some_node)) return std::move(*choice);
  const auto skus = skus_of_step(policy, partition, features);
  const auto is_here = [&skus](std::string_view name) {
    return std::ranges::any_of(skus, [name](const std::string& sku) { return is_same_sku(sku, name); });
  };
  if (auto choice = strictest(policy.rdma_of_sku, "rdma.sku.", is_here)) return std::move(*choice);
  return {policy.rdma, "rdma="};
}

RdmaPairs site_pairs(const SitePolicy& policy, std::string_view partition, RdmaPolicy rdma) {
  const auto found = policy.rdma_pairs_of_partition.find(partition);
  if (found != policy.rdma_pairs_of_partition.end()) return found->second;
  return policy.rdma_pairs.value_or(rdma == RdmaPolicy::require ? RdmaPairs::ring : RdmaPairs::off);
}

RdmaPolicy site_health(const SitePolicy& policy, std::string_view partition) {
  const auto found = policy.health_of_partition.find(partition);
  return found != policy.health_of_partition.end() ? found->second : policy.health;
}

}  // namespace

RdmaChoice choose_rdma(const SitePolicy& policy, const Spec& spec, std::string_view partition,
                       const NodeFeatures& features) {
  if (spec.rdma) return {*spec.rdma, "--aml-dist"};
  return site_choice(policy, partition, features);
}

RdmaPairs choose_pairs(const SitePolicy& policy, const Spec& spec, std::string_view partition, RdmaPolicy rdma) {
  if (rdma == RdmaPolicy::off) return RdmaPairs::off;
  return spec.rdma_pairs.value_or(site_pairs(policy, partition, rdma));
}

RdmaPolicy choose_health(const SitePolicy& policy, const Spec& spec, std::string_view partition) {
  return spec.health.value_or(site_health(policy, partition));
}

std::optional<std::string> lowered_requirement(const SitePolicy& policy, const Spec& spec, std::string_view partition,
                                               const NodeFeatures& features) {
  const RdmaChoice site = site_choice(policy, partition, features);
  const bool fabric = site.policy == RdmaPolicy::require;
  if (fabric && spec.rdma && *spec.rdma != RdmaPolicy::require) {
    return concat({"rdma=", to_string(*spec.rdma), " lowers the site's ", site.source,
                   "require: drop the key to verify the fabric"});
  }
  if (fabric && spec.rdma_pairs == RdmaPairs::off && site_pairs(policy, partition, site.policy) != RdmaPairs::off) {
    return concat({"rdma_pairs=off lowers the site's ", site.source,
                   "require: drop the key to verify the fabric between the nodes"});
  }
  const bool health = site_health(policy, partition) == RdmaPolicy::require;
  if (!health || !spec.health || *spec.health == RdmaPolicy::require) return std::nullopt;
  return concat(
      {"health=", to_string(*spec.health), " lowers the site's health=require: drop the key to verify GPUs and hosts"});
}

std::string rdma_sku(const SitePolicy& policy, std::string_view partition, const NodeFeatures& features,
                     std::uint32_t node) {
  if (auto told = told_sku(policy, partition)) return std::move(*told);
  for (const auto& [feature, sku] : policy.rdma_sku_of_feature) {
    if (features.on(feature, node)) return sku;
  }
  if (!policy.rdma_sku.empty()) return policy.rdma_sku;
  for (const auto& [sku, unused] : policy.rdma_of_sku) {
    if (features.on(sku, node)) return sku;
  }
  return {};
}

bool asks_for_features(const SitePolicy& policy, const Spec& spec) {
  if (spec.rdma == RdmaPolicy::off && policy.rdma_of_feature.empty() && policy.rdma_of_sku.empty()) return false;
  return !policy.rdma_of_feature.empty() || !policy.rdma_sku_of_feature.empty() || !policy.rdma_of_sku.empty();
}

std::vector<std::string> features_with_rules(const SitePolicy& policy, std::string_view features) {
  std::set<std::string> out;
  for (const std::string_view each : text::split(features, ',')) {
    const std::string_view feature = text::trim(each);
    if (feature.empty()) continue;
    if (policy.rdma_of_feature.contains(feature) || policy.rdma_sku_of_feature.contains(feature)) out.emplace(feature);
    for (const auto& [sku, unused] : policy.rdma_of_sku) {
      if (is_same_sku(sku, feature)) out.insert(sku);
    }
  }
  return {out.begin(), out.end()};
}

}  // namespace amldist::launch
