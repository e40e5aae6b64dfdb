#include "aml_dist/ray/surroundings.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/text/text.hpp"

namespace amldist::ray {
namespace {

using launch::RayPort;
using text::concat;

/// Hugging Face's Trainer, Lightning, torch.distributed and JAX wait for the other ranks where they see these.
constexpr std::array<std::string_view, 7> of_ranks = {
    "WORLD_SIZE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT", "AZ_BATCH_MASTER_NODE", "SLURM_PROCID", "SLURM_LOCALID"};

std::string_view name_of(std::string_view variable) { return variable.substr(0, variable.find('=')); }

bool has(const std::vector<std::string>& all, std::string_view name) {
  return std::ranges::any_of(all, [&](const std::string& each) { return name_of(each) == name; });
}

void set(std::vector<std::string>& all, std::string_view name, std::string_view value) {
  std::erase_if(all, [&](const std::string& each) { return name_of(each) == name; });
  all.push_back(concat({name, "=", value}));
}

}  // namespace

std::string token_of(const Place& place) {
  if (place.credentials.trust == world::Trust::open) return {};
  return place.credentials.key.derive("token of Ray").to_hex();
}

std::vector<std::string> variables_of_driver(std::vector<std::string> all, const Place& place, const Program& program) {
  set(all, "RAY_ADDRESS", place.address());
  set(all, "AUTOSCALER_METRIC_PORT", std::to_string(place.port(RayPort::autoscaler_metrics)));
  set(all, "DASHBOARD_METRIC_PORT", std::to_string(place.port(RayPort::dashboard_metrics)));
  if (!has(all, "RAY_USAGE_STATS_ENABLED")) set(all, "RAY_USAGE_STATS_ENABLED", "0");
  if (program.has_tokens() && !has(all, "RAY_AUTH_MODE") && !token_of(place).empty()) {
    set(all, "RAY_AUTH_MODE", "token");
    set(all, "RAY_AUTH_TOKEN", token_of(place));
  }
  return all;
}

std::vector<std::string> variables_of_ray(std::vector<std::string> all, const Place& place, const Program& program) {
  all = variables_of_driver(std::move(all), place, program);
  std::erase_if(all,
                [](const std::string& each) { return std::ranges::find(of_ranks, name_of(each)) != of_ranks.end(); });
  return all;
}

}  // namespace amldist::ray
