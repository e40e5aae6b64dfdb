// --aml-dist=..., as srun parses it and, as root, slurmstepd.
#include "launch/option/spec.hpp"

#include <cstring>

#include "base/text/text.hpp"
#include "fuzz.hpp"

namespace amldist::fuzz::option {
namespace {

using text::concat;

std::string written(const launch::ProcessesPerNode& processes) {
  using Source = launch::ProcessesPerNode::Source;
  switch (processes.source) {
    case Source::node_default:
      return "";
    case Source::number:
      return std::to_string(processes.number);
    case Source::automatic:
      return "auto";
    case Source::gpu:
      return "gpu";
    case Source::cpu:
      return "cpu";
  }
  return "";
}

std::string written(const launch::MasterAddress& address) {
  using Form = launch::MasterAddress::Form;
  if (address.form == Form::site_default) return "";
  if (address.form == Form::host) return address.host;
  return address.form == Form::ip ? "ip" : "name";
}

template <typename Number>
std::string written(const std::optional<Number>& number) {
  return number ? std::to_string(*number) : "";
}

std::string written(launch::RdmaPolicy policy) {
  constexpr std::string_view names[] = {"require", "prefer", "off"};
  return std::string(names[static_cast<std::size_t>(policy)]);
}

std::string written(const launch::StopWish& stop) {
  const char* const name = stop.signal != 0 ? ::sigabbrev_np(stop.signal) : nullptr;
  return concat({std::to_string(stop.seconds), name != nullptr ? "@" : "", name != nullptr ? name : ""});
}

/// An option that means the same.
std::string written(const launch::Spec& spec) {
  std::string out(to_string(spec.kind));
  const auto add = [&out](std::string_view key, const std::string& value) {
    if (!value.empty()) out += concat({",", key, "=", value});
  };
  add("launch", spec.launch == launch::Launch::per_node ? "per-node" : "");
  add("slurm_env", spec.slurm_env == launch::SlurmEnv::keep ? "keep" : "");
  add("nproc_per_node", written(spec.nproc_per_node));
  add("backend", spec.backend);
  add("master_addr", written(spec.master_addr));
  add("master_port", written(spec.master_port));
  add("rdma", spec.rdma ? written(*spec.rdma) : "");
  add("node_count", written(spec.counts.nodes));
  add("process_count", written(spec.counts.processes));
  add(spec.counts.processes_per_node_key, written(spec.counts.processes_per_node));
  add("worker_count", written(spec.counts.workers));
  add("parameter_server_count", written(spec.counts.parameter_servers));
  add("chief_count", written(spec.counts.chiefs));
  add("evaluator_count", written(spec.counts.evaluators));
  add("health", spec.health ? written(*spec.health) : "");
  add("rdma_pairs", spec.rdma_pairs ? std::string(to_string(*spec.rdma_pairs)) : "");
  add("stop", spec.stop ? written(*spec.stop) : "");
  if (spec.trace) out += *spec.trace ? ",trace=on" : ",trace=off";
  if (spec.hang) out += ",hang=" + written(spec.hang);
  if (spec.hang_action)
    out += *spec.hang_action == launch::HangAction::report ? ",hang_action=report" : ",hang_action=end";
  if (spec.hang_busy) out += ",hang_busy=" + written(spec.hang_busy);
  if (spec.along_topology) out += ",order=topology";
  if (spec.verbose) out += ",verbose";
  return out;
}

}  // namespace

const std::string_view separator = ",";

void try_input(std::string_view input) {
  constexpr std::size_t most_bytes = 512UL << 10;
  const auto spec = within(most_bytes, [input] { return launch::parse_spec(input); });
  if (!spec) {
    require_sentence(spec.error().message);
    return;
  }
  require(input.size() <= launch::longest_option, "a longer option is refused");
  require(!launch::is_help(input), "help is no kind");
  require(spec->kind != launch::Kind::none || *spec == launch::Spec{}, "kind none has no keys");
  require(spec->master_addr.form != launch::MasterAddress::Form::host || launch::is_host(spec->master_addr.host),
          "a host is one");
  require(!spec->master_port || *spec->master_port > 0, "port 0 is none");
  const auto again = launch::parse_spec(written(*spec));
  require(again && *again == *spec, "an option that is written out means the same");
}

}  // namespace amldist::fuzz::option
