#include "launch/site/site_policy.hpp"

#include <algorithm>
#include <array>

#include "base/os/whole_file.hpp"
#include "base/text/printable.hpp"
#include "base/text/text.hpp"
#include "launch/site/node_features.hpp"

namespace amldist::launch {
namespace {

using text::concat;
using text::quote;

constexpr std::array<std::string_view, 25> argument_names = {
    "port_range", "master_addr", "interface",   "network",        "suffix",          "rdma",        "config",
    "disabled",   "default.",    "rdma.",       "rdma_sku",       "rdma_sku.",       "rdma_helper", "secret",
    "unknown",    "trace",       "trace.",      "hang",           "trace_libraries", "rdma_pairs",  "rdma_pairs.",
    "health",     "health.",     "job_comment", "config_optional"};

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
  } else if (name == "config" || name == "config_optional") {
    if (!value.starts_with('/')) return false;
    policy.config_file = value;
    policy.config_is_optional = name == "config_optional";
  }
  return true;
}

bool is_known(std::string_view name) {
  return std::ranges::any_of(argument_names, [name](std::string_view known) {
    return known.ends_with('.') ? name.starts_with(known) : name == known;
  });
}

std::string_view name_of(std::string_view argument) { return text::trim(argument.substr(0, argument.find('='))); }

/// Whether an argument names the site's file, rightly or not.
bool names_file(std::string_view argument) {
  const std::string_view name = name_of(argument);
  return name == "config" || name == "config_optional";
}

/// What is wrong with an argument; nullopt: it was applied.
std::optional<std::string> apply_argument(SitePolicy& policy, std::string_view argument) {
  if (argument == "disabled") {
    policy.disabled = true;
    return std::nullopt;
  }
  const auto equals = argument.find('=');
  const std::string_view name = name_of(argument);
  if (!is_known(name) || name == "disabled") {
    const auto near = text::nearest(name, argument_names);
    return concat({"is unknown", near ? concat({" (did you mean '", *near, "'?)"}) : std::string()});
  }
  const bool valid =
      equals != std::string_view::npos && apply_value(policy, name, text::trim(argument.substr(equals + 1)));
  return valid ? std::nullopt : std::optional<std::string>("has no valid value");
}

std::string refusal_for(std::string_view fault) {
  return concat({fault, ": no step with --aml-dist starts until the administrator has corrected that"});
}

/// Applies every right line of the site's file; what is wrong with the first of the others, nullopt without one.
std::optional<std::string> apply_file(SitePolicy& policy, std::string_view content) {
  std::optional<std::string> fault;
  for (const std::string_view line : config_lines(content)) {
    const auto wrong =
        names_file(line) ? std::optional<std::string>("belongs in plugstack.conf") : apply_argument(policy, line);
    if (!wrong || fault) continue;
    const auto number = 1 + std::count(content.data(), line.data(), '\n');
    fault = concat({"line ", std::to_string(number), ", ", quote(line), ", ", *wrong});
  }
  return fault;
}

/// Reads and applies the file that the policy names. What is wrong with it; nullopt: nothing.
std::optional<std::string> load_file(SitePolicy& policy, const std::string& path, bool optional, uid_t administrator) {
  const auto content = read_whole_file_of(path, longest_config, administrator);
  if (!content && content.error().code == Errc::not_found && optional) return std::nullopt;
  const auto fault = content ? apply_file(policy, *content) : std::optional(content.error().message);
  if (!fault) return std::nullopt;
  constexpr std::size_t longest_path = 200;  // the rest of a longer one is not shown
  return concat({"the site's settings in ", text::printable(path, longest_path), " cannot be used (", *fault, ")"});
}

/// What is wrong with how plugstack.conf names the file; nullopt: nothing, or it names none.
std::optional<std::string> fault_of_name(std::span<const std::string_view> arguments) {
  std::optional<std::string_view> first;
  for (const std::string_view argument : arguments) {
    if (!names_file(argument)) continue;
    SitePolicy ignored;
    if (const auto wrong = apply_argument(ignored, argument))
      return concat({"plugstack.conf's argument ", quote(argument), " ", *wrong, ", the absolute path of a file"});
    if (first && *first != argument)
      return concat(
          {"plugstack.conf names two files for the site's settings, ", quote(*first), " and ", quote(argument)});
    first = argument;
  }
  return std::nullopt;
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
    const auto wrong = apply_argument(policy, argument);
    if (wrong && !names_file(argument))
      complaints.push_back(concat({"plugstack argument ", quote(argument), " ", *wrong, " and was ignored"}));
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

SitePolicy load_policy(std::span<const std::string_view> arguments, std::vector<std::string>& complaints,
                       uid_t administrator) {
  SitePolicy named;  // the file comes first, since the arguments are applied over it
  static_cast<void>(apply_arguments(named, arguments));
  SitePolicy policy = SitePolicy::defaults();
  auto fault = fault_of_name(arguments);
  if (!fault && !named.config_file.empty())
    fault = load_file(policy, named.config_file, named.config_is_optional, administrator);
  complaints = apply_arguments(policy, arguments);
  if (fault) policy.refusal = refusal_for(*fault);
  return policy;
}

}  // namespace amldist::launch
