#include "step/messages/launch_record.hpp"

#include <iterator>
#include <limits>

#include "base/text/environment.hpp"
#include "base/text/text.hpp"
#include "launch/option/spec.hpp"
#include "launch/placement/task_map.hpp"
#include "launch/rendezvous/master_address.hpp"

namespace amldist::step {
namespace {

using text::concat;

Error malformed(std::string_view what) {
  return {Errc::invalid_argument, concat({launch_record_variable, " cannot be read (", what,
                                          "): it is made by srun and must not be set by hand"})};
}

bool parse_step(LaunchRecord& record, std::string_view value) {
  constexpr std::uint64_t any = std::numeric_limits<std::uint32_t>::max();
  const auto dot = value.find('.');
  if (dot == std::string_view::npos) return false;
  const auto job = text::to_number(value.substr(0, dot), any);
  const auto step = text::to_number(value.substr(dot + 1), any);
  if (!job || !step) return false;
  record.job_id = static_cast<std::uint32_t>(*job);
  record.step_id = static_cast<std::uint32_t>(*step);
  return true;
}

/// "12:1:n1+13:2:n[1,3]"
bool parse_components(LaunchRecord& record, std::string_view value) {
  constexpr std::uint64_t any = std::numeric_limits<std::uint32_t>::max();
  for (const std::string_view each : text::split(value, '+')) {
    const auto fields = text::split(each, ':');
    if (fields.size() != 3 || fields[2].empty()) return false;
    const auto job = text::to_number(fields[0], any);
    const auto tasks = text::to_number(fields[1], most_tasks);
    if (!job || !tasks) return false;
    record.components.push_back(
        {static_cast<std::uint32_t>(*job), static_cast<std::uint32_t>(*tasks), std::string(fields[2])});
  }
  return true;
}

bool parse_field(LaunchRecord& record, std::string_view name, std::string_view value) {
  if (name == "step") return parse_step(record, value);
  if (name == "addr") {
    record.address = value;
    return launch::is_host(value) || launch::is_interface_name(launch::interface_to_ask(value).value_or(""));
  }
  if (name == "ports") {
    auto ports = PortRanges::parse(value);
    if (!ports) return false;
    record.ports = std::move(*ports);
    return true;
  }
  if (name == "map") {
    record.map = value;
    return true;  // checked later by TaskMap::parse, which needs the step's size
  }
  if (name == "features") {
    auto features = launch::NodeFeatures::parse(value);
    if (!features) return false;
    record.features = std::move(*features);
    return true;
  }
  if (name == "peers") {
    auto peers = launch::NodeHosts::parse(value);
    if (!peers) return false;
    record.peers = std::move(*peers);
    return true;
  }
  return name == "components" && parse_components(record, value);
}

}  // namespace

std::string LaunchRecord::to_string() const {
  std::string text = concat({"1;step=", std::to_string(job_id), ".", std::to_string(step_id), ";addr=", address,
                             ";ports=", ports.to_string(), ";map=", map});
  if (is_heterogeneous()) text += ";components=";
  for (const launch::Component& each : components) {
    const bool first = &each == components.data();
    text += concat({first ? "" : "+", std::to_string(each.job_id), ":", std::to_string(each.tasks), ":", each.hosts});
  }
  if (!features.empty()) text += concat({";features=", features.to_string()});
  if (!peers.empty()) text += concat({";peers=", peers.to_string()});
  return text;
}

Result<LaunchRecord> LaunchRecord::parse(std::string_view text) {
  if (text.size() > longest_environment_string) return Error{Errc::limit, malformed("too long").message};
  const auto fields = text::split(text, ';');
  if (fields.front() != "1") return malformed("unknown version: srun and this node have different releases");
  constexpr std::string_view names[] = {"step", "addr", "ports", "map", "components", "features", "peers"};
  constexpr std::size_t always = 5;
  if (fields.size() < always || fields.size() > std::size(names) + 1) return malformed("wrong number of fields");
  LaunchRecord record;
  std::size_t name = 0;
  for (std::size_t i = 1; i < fields.size(); ++i, ++name) {
    const auto equals = fields[i].find('=');
    // The last fields are optional.
    while (name >= always - 1 && name < std::size(names) && fields[i].substr(0, equals) != names[name]) ++name;
    const bool right_name =
        equals != std::string_view::npos && name < std::size(names) && fields[i].substr(0, equals) == names[name];
    if (!right_name) return malformed("an unknown field");
    if (!parse_field(record, names[name], fields[i].substr(equals + 1))) return malformed(names[name]);
  }
  return record;
}

}  // namespace amldist::step
