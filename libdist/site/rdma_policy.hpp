// Whose word counts about the fabric of a step, explicit before guessed:
//
//   the user's key        --aml-dist=...,rdma=require
//   its partition         rdma.gpu=require
//   its nodes' features   rdma.feature.ib=require      of several the strictest, since all nodes go the same way
//   its nodes' SKUs       rdma.sku.Standard_ND96isr_H100_v5=require     likewise
//   the site              rdma=prefer
//
// and about what a node should have: rdma_sku.PARTITION=, rdma_sku.feature.FEATURE=, rdma_sku=, and last a guess: a
// feature that is itself the name of a SKU with a rule of its own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/node_features.hpp"
#include "core/spec.hpp"
#include "site/site_policy.hpp"

namespace amldist {

/// A policy, and who chose it: "--aml-dist", "rdma.gpu=", "rdma.feature.ib=", "rdma=", for people.
struct RdmaChoice {
  RdmaPolicy policy = RdmaPolicy::off;
  std::string source;
};

/// The policy for a step.
[[nodiscard]] RdmaChoice choose_rdma(const SitePolicy& policy, const Spec& spec, std::string_view partition,
                                     const NodeFeatures& features);

/// The line that says that the user's key lowers what the site requires; nullopt when it does not.
[[nodiscard]] std::optional<std::string> lowered_requirement(const SitePolicy& policy, const Spec& spec,
                                                             std::string_view partition, const NodeFeatures& features);

/// The kind of node that the site says a step's node is; empty: it says nothing.
[[nodiscard]] std::string rdma_sku(const SitePolicy& policy, std::string_view partition, const NodeFeatures& features,
                                   std::uint32_t node);

/// Whether a step's nodes' features can matter. Without rules for features nobody asks slurmctld for them.
[[nodiscard]] bool asks_for_features(const SitePolicy& policy, const Spec& spec);

/// Of one node's features, as Slurm writes them ("ib,h100"), those that a rule is about, by the rule's name for them.
[[nodiscard]] std::vector<std::string> features_with_rules(const SitePolicy& policy, std::string_view features);

}  // namespace amldist
