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

/// Any well-formed name is accepted. The node checks whether the SKU table has it.
bool is_sku_name(std::string_view name) {
  constexpr std::size_t longest_name = 64;
  return !name.empty() && name.size() <= longest_name &&
         std::ranges::all_of(name, [](char c) { return c > ' ' && c < 0x7f; });
}

/// "NAME" of "feature.NAME"; nullopt if `name` does not start with the prefix.
std::optional<std::string_view> behind(std::string_view prefix, std::string_view name) {
  return name.starts_with(prefix) ? std::optional(name.substr(prefix.size())) : std::nullopt;
}

template <typename Map>
void set_in(Map& map, std::string_view key, const typename Map::mapped_type& value) {
  map[std::string(key)] = value;
}

/// Sets a boolean or a value with two names; false if the text has neither.
template <typename Value>
bool set_choice(Value& out, std::string_view text, std::string_view first, Value of_first, std::string_view second,
                Value of_second) {
  if (text != first && text != second) return false;
  out = text == first ? of_first : of_second;
  return true;
}

/// The functions below set one argument's value. `scope` is what follows the dot of its name, empty without one. They
/// return false if the scope or the value is not valid.
bool set_rdma(SitePolicy& policy, std::string_view scope, std::string_view value) {
  const auto rdma = policy_from_name(value);
  if (!rdma) return false;
  const auto feature = behind("feature.", scope);
  const auto sku = behind("sku.", scope);  // a node's feature may have this name
  if ((feature && !is_feature_name(*feature)) || (sku && !is_feature_name(*sku))) return false;
  if (scope.empty()) policy.rdma = *rdma;
  else if (feature) set_in(policy.rdma_of_feature, *feature, *rdma);
  else if (sku) set_in(policy.rdma_of_sku, *sku, *rdma);
  else set_in(policy.rdma_of_partition, scope, *rdma);
  return true;
}

bool set_rdma_sku(SitePolicy& policy, std::string_view scope, std::string_view value) {
  const auto feature = behind("feature.", scope);
  if (!is_sku_name(value) || (feature && !is_feature_name(*feature))) return false;
  if (scope.empty()) policy.rdma_sku = value;
  else if (feature) set_in(policy.rdma_sku_of_feature, *feature, std::string(value));
  else set_in(policy.rdma_sku_of_partition, scope, std::string(value));
  return true;
}

bool set_rdma_pairs(SitePolicy& policy, std::string_view scope, std::string_view value) {
  const auto pairs = rdma_pairs_from_name(value);
  if (!pairs) return false;
  if (scope.empty()) policy.rdma_pairs = *pairs;
  else set_in(policy.rdma_pairs_of_partition, scope, *pairs);
  return true;
}

bool set_health(SitePolicy& policy, std::string_view scope, std::string_view value) {
  const auto health = policy_from_name(value);
  if (!health) return false;
  if (scope.empty()) policy.health = *health;
  else set_in(policy.health_of_partition, scope, *health);
  return true;
}

bool set_trace(SitePolicy& policy, std::string_view scope, std::string_view value) {
  bool on = false;
  if (!set_choice(on, value, "on", true, "off", false)) return false;
  if (scope.empty()) policy.trace = on;
  else set_in(policy.trace_of_partition, scope, on);
  return true;
}

bool set_default_kind(SitePolicy& policy, std::string_view scope, std::string_view value) {
  const auto kind = kind_from_name(value);
  if (kind) set_in(policy.default_kind, scope, *kind);
  return kind.has_value();
}

bool set_site_check(SitePolicy& policy, std::string_view scope, std::string_view value) {
  auto check = is_site_check_name(scope) ? parse_site_check(value) : std::nullopt;
  if (!check || (policy.site_checks.size() >= most_site_checks && !policy.site_checks.contains(scope))) return false;
  set_in(policy.site_checks, scope, *check);
  return true;
}

bool set_ports(SitePolicy& policy, std::string_view, std::string_view value) {
  auto ports = PortRanges::parse(value);
  if (!ports) return false;
  policy.ports = std::move(*ports);
  return true;
}

bool set_hang(SitePolicy& policy, std::string_view, std::string_view value) {
  const auto seconds = text::to_number(value, longest_hang);
  if (!seconds || *seconds == 0) return false;
  policy.hang = static_cast<std::uint32_t>(*seconds);
  return true;
}

bool set_network(SitePolicy& policy, std::string_view, std::string_view value) {
  const auto network = Ipv4Network::parse(value);
  if (network) policy.network = network;
  return network.has_value();
}

/// Sets a text if it is valid.
bool set_text(std::string& out, std::string_view value, bool valid) {
  if (valid) out = value;
  return valid;
}

bool set_config(SitePolicy& policy, std::string_view value, bool optional) {
  if (!set_text(policy.config_file, value, value.starts_with('/'))) return false;
  policy.config_is_optional = optional;
  return true;
}

enum class Scope : std::uint8_t { no, may, must };  ///< whether ".PARTITION" follows a name

struct Argument {
  std::string_view name;
  Scope scope;
  std::string_view needs;  ///< the values that it takes, for messages
  bool (*set)(SitePolicy& policy, std::string_view scope, std::string_view value);
};

constexpr std::string_view site_check_needs =
    "exit, status or nodeverdict, then a program's absolute path, as 'exit,20 /usr/sbin/nhc -t 0'; at most eight, "
    "named "
    "in small letters";
constexpr std::string_view policies = "require, prefer or off";

// clang-format off
constexpr std::array<Argument, 20> known_arguments = {{
    {"port_range", Scope::no, "ports such as 20000-29999", set_ports},
    {"master_addr", Scope::no, "ip or name",
     [](SitePolicy& p, std::string_view, std::string_view v) {
       return set_choice(p.master_addr, v, "ip", MasterAddress::Form::ip, "name", MasterAddress::Form::name); }},
    {"interface", Scope::no, "the name of a network interface such as ib0",
     [](SitePolicy& p, std::string_view, std::string_view v) { return set_text(p.interface, v, is_interface_name(v)); }},
    {"network", Scope::no, "an IPv4 network such as 10.1.0.0/16", set_network},
    {"suffix", Scope::no, "the end of a host name such as -ib0.cluster.example",
     [](SitePolicy& p, std::string_view, std::string_view v) { return set_text(p.suffix, v, is_host(concat({"x", v}))); }},
    {"rdma", Scope::may, policies, set_rdma},
    {"rdma_sku", Scope::may, "the name of a SKU such as Standard_ND96isr_H100_v5", set_rdma_sku},
    {"rdma_helper", Scope::no, "the absolute path of aml-dist",
     [](SitePolicy& p, std::string_view, std::string_view v) { return set_text(p.rdma_helper, v, v.starts_with('/')); }},
    {"rdma_pairs", Scope::may, "off, ring, log or all", set_rdma_pairs},
    {"health", Scope::may, policies, set_health},
    {"site_check", Scope::must, site_check_needs, set_site_check},
    {"trace", Scope::may, "on or off", set_trace},
    {"hang", Scope::no, "a whole number of seconds, 1 or more", set_hang},
    {"trace_libraries", Scope::no, "an absolute path without ':' and blanks",
     [](SitePolicy& p, std::string_view, std::string_view v) {
       return set_text(p.trace_libraries, v, v.starts_with('/') && v.find_first_of(": ") == std::string_view::npos); }},
    {"unknown", Scope::no, "warn or fail",
     [](SitePolicy& p, std::string_view, std::string_view v) {
       return set_choice(p.unknown_fails, v, "fail", true, "warn", false); }},
    {"secret", Scope::no, "require or prefer",
     [](SitePolicy& p, std::string_view, std::string_view v) {
       return set_choice(p.secret, v, "require", SecretPolicy::require, "prefer", SecretPolicy::prefer); }},
    {"job_comment", Scope::no, "on or off",
     [](SitePolicy& p, std::string_view, std::string_view v) { return set_choice(p.job_comment, v, "on", true, "off", false); }},
    {"default", Scope::must, "a kind (see srun --aml-dist=help) or none", set_default_kind},
    {"config", Scope::no, "the absolute path of a file",
     [](SitePolicy& p, std::string_view, std::string_view v) { return set_config(p, v, false); }},
    {"config_optional", Scope::no, "the absolute path of a file",
     [](SitePolicy& p, std::string_view, std::string_view v) { return set_config(p, v, true); }},
}};
// clang-format on

constexpr std::string_view disabled_argument = "disabled";

std::string_view name_of(std::string_view argument) { return text::trim(argument.substr(0, argument.find('='))); }

/// Whether an argument names the site's file, validly or not.
bool names_file(std::string_view argument) {
  const std::string_view name = name_of(argument);
  return name == "config" || name == "config_optional";
}

/// "is unknown", with the name that it resembles.
std::string unknown_name(std::string_view name) {
  std::vector<std::string_view> names = {disabled_argument};
  for (const Argument& known : known_arguments) names.push_back(known.name);
  const auto dot = name.find('.');
  const auto near = text::nearest(name.substr(0, dot), names);
  if (!near) return "is unknown";
  constexpr std::size_t longest_scope = 64;  // the rest of a longer one is not shown
  const std::string scope = text::printable(name.substr(std::min(dot, name.size())), longest_scope);
  return concat({"is unknown (did you mean '", *near, scope, "'?)"});
}

/// What is wrong with an argument; nullopt: it was applied.
std::optional<std::string> apply_argument(SitePolicy& policy, std::string_view argument) {
  if (argument == disabled_argument) {
    policy.disabled = true;
    return std::nullopt;
  }
  const std::string_view name = name_of(argument);
  const auto dot = std::min(name.find('.'), name.size());
  const auto known = std::ranges::find(known_arguments, name.substr(0, dot), &Argument::name);
  if (known == known_arguments.end() || (known->scope == Scope::no && dot != name.size())) return unknown_name(name);
  const std::string_view scope = name.substr(std::min(dot + 1, name.size()));
  if (scope.empty() && (dot != name.size() || known->scope == Scope::must))
    return concat({"needs a ", known->set == set_site_check ? "" : "partition's ", "name behind '", known->name, ".'"});
  const auto equals = argument.find('=');
  const bool valid =
      equals != std::string_view::npos && known->set(policy, scope, text::trim(argument.substr(equals + 1)));
  return valid ? std::nullopt : std::optional(concat({"needs ", known->needs}));
}

std::string refusal_for(std::string_view fault) {
  return concat({fault, ": no step with --aml-dist starts until the administrator has corrected that"});
}

/// Reads and applies the file that the policy names. What is wrong with it; nullopt: nothing.
std::optional<std::string> load_file(SitePolicy& policy, const std::string& path, bool optional, uid_t administrator) {
  const auto content = read_whole_file_of(path, longest_config, administrator);
  if (!content && content.error().code == Errc::not_found && optional) return std::nullopt;
  std::string fault;
  if (content) {
    const auto faults = apply_lines(policy, *content);
    if (faults.empty()) return std::nullopt;
    fault = concat(
        {"line ", std::to_string(faults.front().line), ", ", quote(faults.front().text), ", ", faults.front().wrong});
  } else {
    fault = content.error().message;
  }
  constexpr std::size_t longest_path = 200;  // the rest of a longer one is not shown
  return concat({"the site's settings in ", text::printable(path, longest_path), " cannot be used (", fault, ")"});
}

/// What is wrong with how plugstack.conf names the file; nullopt if it is valid or names no file.
std::optional<std::string> fault_of_name(std::span<const std::string_view> arguments) {
  std::optional<std::string_view> first;
  for (const std::string_view argument : arguments) {
    if (!names_file(argument)) continue;
    SitePolicy ignored;
    if (const auto wrong = apply_argument(ignored, argument))
      return concat({"plugstack.conf's argument ", quote(argument), " ", *wrong});
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

std::vector<ConfigFault> apply_lines(SitePolicy& policy, std::string_view content) {
  std::vector<ConfigFault> faults;
  std::size_t number = 1;
  const char* counted = content.data();
  for (const std::string_view line : config_lines(content)) {
    number += static_cast<std::size_t>(std::count(counted, line.data(), '\n'));
    counted = line.data();
    auto wrong =
        names_file(line) ? std::optional<std::string>("belongs in plugstack.conf") : apply_argument(policy, line);
    if (wrong) faults.push_back({number, std::string(line), std::move(*wrong)});
  }
  return faults;
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
  SitePolicy named;  // the file comes first, because the arguments override it
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
