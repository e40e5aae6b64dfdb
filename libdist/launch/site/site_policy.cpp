#include "launch/site/site_policy.hpp"

#include <algorithm>
#include <array>

#include "base/os/whole_file.hpp"
#include "base/text/text.hpp"
#include "launch/site/node_features.hpp"

namespace amldist::launch {
namespace {

using text::concat;
using text::quote;

constexpr std::array<std::string_view, 24> argument_names = {
    "port_range", "master_addr", "interface",       "network",    "suffix",      "rdma",   "config",  "disabled",
    "default.",   "rdma.",       "rdma_sku",        "rdma_sku.",  "rdma_helper", "secret", "unknown", "trace",
    "trace.",     "hang",        "trace_libraries", "rdma_pairs", "rdma_pairs.", "health", "health.", "job_comment"};

/// Any well-formed name is accepted. The node checks whether the SKU table has it.
bool is_sku_name(std::string_view name) {
  constexpr std::size_t longest_name = 64;
  return !name.empty() && name.size() <= longest_name &&
         std::ranges::all_of(name, [](char c) { return c > ' ' && c < 0x7f; });
}

/// "NAME" of "feature.NAME"; nullopt where `name` does not start with the prefix.
std::optional<std::string_view> behind(std::string_view prefix, std::string_view name) {
  return name.starts_with(prefix) ? std::optional(name.substr(prefix.size())) : std::nullopt;
}

/// rdma=, or rdma.PARTITION=, rdma.feature.FEATURE=, rdma.sku.SKU=.
bool apply_rdma(SitePolicy& policy, std::string_view argument, std::string_view value) {
  const auto rdma = policy_from_name(value);
  if (!rdma || argument == "rdma.") return false;
  const auto scope = behind("rdma.", argument);
  if (!scope) {
    policy.rdma = *rdma;
  } else if (const auto feature = behind("feature.", *scope)) {
    if (!is_feature_name(*feature)) return false;
    policy.rdma_of_feature[std::string(*feature)] = *rdma;
  } else if (const auto sku = behind("sku.", *scope)) {
    if (!is_feature_name(*sku)) return false;  // a node's feature may have this name
    policy.rdma_of_sku[std::string(*sku)] = *rdma;
  } else {
    policy.rdma_of_partition[std::string(*scope)] = *rdma;
  }
  return true;
}

/// rdma_sku=, or rdma_sku.PARTITION=, rdma_sku.feature.FEATURE=.
bool apply_rdma_sku(SitePolicy& policy, std::string_view argument, std::string_view value) {
  if (!is_sku_name(value) || argument == "rdma_sku.") return false;
  const auto scope = behind("rdma_sku.", argument);
  if (!scope) {
    policy.rdma_sku = value;
  } else if (const auto feature = behind("feature.", *scope)) {
    if (!is_feature_name(*feature)) return false;
    policy.rdma_sku_of_feature[std::string(*feature)] = value;
  } else {
    policy.rdma_sku_of_partition[std::string(*scope)] = value;
  }
  return true;
}

/// Sets NAME= or NAME.PARTITION=.
template <typename Value, typename Whole, typename Map>
bool set_scoped(std::string_view name, std::string_view argument, const std::optional<Value>& value, Whole& whole,
                Map& of_partition) {
  const auto partition = behind(concat({name, "."}), argument);
  if (!value || (partition && partition->empty())) return false;
  if (partition) of_partition[std::string(*partition)] = *value;
  else whole = *value;
  return true;
}

/// trace=, or trace.PARTITION=.
bool apply_trace(SitePolicy& policy, std::string_view argument, std::string_view value) {
  if ((value != "on" && value != "off") || argument == "trace.") return false;
  const auto partition = behind("trace.", argument);
  if (partition) policy.trace_of_partition[std::string(*partition)] = value == "on";
  else policy.trace = value == "on";
  return true;
}

/// Applies name=value; false if the value is not valid.
bool apply_value(SitePolicy& policy, std::string_view name, std::string_view value) {
  if (name == "port_range") {
    auto ports = PortRanges::parse(value);
    if (!ports) return false;
    policy.ports = std::move(*ports);
  } else if (name == "master_addr") {
    if (value != "ip" && value != "name") return false;
    policy.master_addr = value == "ip" ? MasterAddress::Form::ip : MasterAddress::Form::name;
  } else if (name == "interface") {
    if (!is_interface_name(value)) return false;
    policy.interface = value;
  } else if (name == "network") {
    policy.network = Ipv4Network::parse(value);
    return policy.network.has_value();
  } else if (name == "suffix") {
    if (!is_host(concat({"x", value}))) return false;
    policy.suffix = value;
  } else if (name == "rdma" || name.starts_with("rdma.")) {
    return apply_rdma(policy, name, value);
  } else if (name == "rdma_sku" || name.starts_with("rdma_sku.")) {
    return apply_rdma_sku(policy, name, value);
  } else if (name == "rdma_pairs" || name.starts_with("rdma_pairs.")) {
    return set_scoped("rdma_pairs", name, rdma_pairs_from_name(value), policy.rdma_pairs,
                      policy.rdma_pairs_of_partition);
  } else if (name == "health" || name.starts_with("health.")) {
    return set_scoped("health", name, policy_from_name(value), policy.health, policy.health_of_partition);
  } else if (name == "rdma_helper") {
    if (!value.starts_with('/')) return false;
    policy.rdma_helper = value;
  } else if (name == "trace" || name.starts_with("trace.")) {
    return apply_trace(policy, name, value);
  } else if (name == "hang") {
    const auto seconds = text::to_number(value, longest_hang);
    if (!seconds || *seconds == 0) return false;
    policy.hang = static_cast<std::uint32_t>(*seconds);
  } else if (name == "trace_libraries") {
    if (!value.starts_with('/') || value.find_first_of(": ") != std::string_view::npos) return false;
    policy.trace_libraries = value;
  } else if (name == "unknown") {
    if (value != "warn" && value != "fail") return false;
    policy.unknown_fails = value == "fail";
  } else if (name == "secret") {
    if (value != "require" && value != "prefer") return false;
    policy.secret = value == "require" ? SecretPolicy::require : SecretPolicy::prefer;
  } else if (name == "job_comment") {
    if (value != "on" && value != "off") return false;
    policy.job_comment = value == "on";
  } else if (name.starts_with("default.")) {
    const auto kind = kind_from_name(value);
    if (!kind || name == "default.") return false;
    policy.default_kind[std::string(name.substr(8))] = *kind;
  } else if (name == "config") {
    if (!value.starts_with('/')) return false;
    policy.config_file = value;
  }
  return true;
}

bool is_known(std::string_view name) {
  return std::ranges::any_of(argument_names, [name](std::string_view known) {
    return known.ends_with('.') ? name.starts_with(known) : name == known;
  });
}

}  // namespace

bool is_interface_name(std::string_view name) noexcept {
  constexpr std::size_t longest_interface = 15;  // IFNAMSIZ less its zero
  return !name.empty() && name.size() <= longest_interface && std::ranges::all_of(name, [](char c) {
    return c > ' ' && c < 0x7f && c != '/' && c != ':' && c != ',' && c != ';';
  });
}

SitePolicy SitePolicy::defaults() {
  SitePolicy policy;
  policy.ports = default_port_range();
  return policy;
}

std::vector<std::string> apply_arguments(SitePolicy& policy, std::span<const std::string_view> arguments) {
  std::vector<std::string> complaints;
  for (const std::string_view argument : arguments) {
    if (argument == "disabled") {
      policy.disabled = true;
      continue;
    }
    const auto equals = argument.find('=');
    const std::string_view name = text::trim(argument.substr(0, equals));
    if (!is_known(name) || name == "disabled") {
      const auto near = text::nearest(name, argument_names);
      complaints.push_back(concat({"plugstack argument ", quote(argument), " is unknown and was ignored",
                                   near ? concat({": did you mean '", *near, "'?"}) : std::string()}));
    } else if (equals == std::string_view::npos ||
               !apply_value(policy, name, text::trim(argument.substr(equals + 1)))) {
      complaints.push_back(concat({"plugstack argument ", quote(argument), " has no valid value and was ignored"}));
    }
  }
  return complaints;
}

std::vector<std::string_view> config_lines(std::string_view content) {
  std::vector<std::string_view> lines;
  for (std::string_view line : text::split(content, '\n')) {
    line = text::trim(line.substr(0, line.find('#')));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty()) lines.push_back(line);
  }
  return lines;
}

Result<std::string> read_config_file(const std::string& path) {
  auto content = read_whole_file(path, longest_config);
  if (content) return content;
  return Error{content.error().code, concat({"config file ", quote(path), " was ignored: ", content.error().message})};
}

SitePolicy load_policy(std::span<const std::string_view> arguments, std::vector<std::string>& complaints) {
  SitePolicy policy = SitePolicy::defaults();
  SitePolicy probe = policy;  // finds config= before the arguments are applied over the file
  static_cast<void>(apply_arguments(probe, arguments));
  if (!probe.config_file.empty()) {
    const auto content = read_config_file(probe.config_file);
    if (!content) complaints.push_back(content.error().message);
    else complaints = apply_arguments(policy, config_lines(*content));
  }
  const auto more = apply_arguments(policy, arguments);
  complaints.insert(complaints.end(), more.begin(), more.end());
  return policy;
}

}  // namespace amldist::launch
