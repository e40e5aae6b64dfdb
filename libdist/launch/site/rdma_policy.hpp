// Which policy applies to the fabric of a step. The first line that applies wins:
//
//   the user's key        --aml-dist=...,rdma=require
//   its partition         rdma.gpu=require
//   its nodes' features   rdma.feature.ib=require      the strictest one wins: all nodes act alike
//   its nodes' SKUs       rdma.sku.Standard_ND96isr_H100_v5=require     likewise
//   the site              rdma=prefer
//
// The expected SKU of a node comes from rdma_sku.PARTITION=, rdma_sku.feature.FEATURE=, rdma_sku=, in this order. If
// none is set and a node's feature is the name of a SKU that has an rdma.sku rule, that SKU is assumed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/option/spec.hpp"
#include "launch/site/node_features.hpp"
#include "launch/site/site_policy.hpp"

namespace amldist::launch {

/// A policy and the key that set it, for messages: "--aml-dist", "rdma.gpu=", "rdma.feature.ib=", "rdma=".
struct RdmaChoice {
  RdmaPolicy policy = RdmaPolicy::off;
  std::string source;
};

/// The policy for a step.
[[nodiscard]] RdmaChoice choose_rdma(const SitePolicy& policy, const Spec& spec, std::string_view partition,
                                     const NodeFeatures& features);

/// The warning that the user's key asks for less than the site requires; nullopt if it does not.
[[nodiscard]] std::optional<std::string> lowered_requirement(const SitePolicy& policy, const Spec& spec,
                                                             std::string_view partition, const NodeFeatures& features);

/// Which nodes of a step write to each other before its tasks start: the user's key, the partition's, the site's; if
/// none is set, `ring` under `require`, else off. Off if the fabric is not verified.
[[nodiscard]] RdmaPairs choose_pairs(const SitePolicy& policy, const Spec& spec, std::string_view partition,
                                     RdmaPolicy rdma);

/// The policy for GPUs and hosts: the user's key, the partition's, the site's.
[[nodiscard]] RdmaPolicy choose_health(const SitePolicy& policy, const Spec& spec, std::string_view partition);

/// The SKU that the site configured for a step's node; empty if it configured no SKU.
[[nodiscard]] std::string rdma_sku(const SitePolicy& policy, std::string_view partition, const NodeFeatures& features,
                                   std::uint32_t node);

/// Whether the features of the step's nodes can change the decision. If not, slurmctld is not asked for them.
[[nodiscard]] bool asks_for_features(const SitePolicy& policy, const Spec& spec);

/// Filters one node's features, in Slurm's notation ("ib,h100"): those that a rule mentions, spelled as in the rule.
[[nodiscard]] std::vector<std::string> features_with_rules(const SitePolicy& policy, std::string_view features);

}  // namespace amldist::launch
