// SLURM_AMLDIST_LAUNCH, or srun's answer over the network, as slurmstepd reads it as root.
#include "step/messages/launch_record.hpp"

#include "base/text/environment.hpp"
#include "fuzz.hpp"
#include "launch/option/spec.hpp"
#include "launch/placement/task_map.hpp"
#include "launch/rendezvous/master_address.hpp"
#include "task_map_invariants.hpp"

namespace amldist::fuzz::launch_record {
namespace {

/// As read_step() of the plugin goes on with the components of a heterogeneous step.
void follow_components(const step::LaunchRecord& record) {
  constexpr std::size_t most_bytes = 128UL << 20;
  const auto hosts = within(most_bytes, [&] { return distinct_hosts(record.components); });
  if (!hosts) return require_sentence(hosts.error().message);
  std::uint64_t tasks = 0;
  for (const launch::Component& each : record.components) tasks += each.tasks;
  if (tasks > most_ranks_checked) return;
  const auto map =
      launch::TaskMap::parse(record.map, static_cast<std::uint32_t>(tasks), static_cast<std::uint32_t>(hosts->size()));
  if (map) check_map(*map);
  else require_sentence(map.error().message);
}

}  // namespace

const std::string_view separator = "+";

void try_input(std::string_view input) {
  const auto record = within(input.size() * 256 + (64UL << 10), [input] { return step::LaunchRecord::parse(input); });
  if (!record) return require_sentence(record.error().message);
  require(input.size() <= longest_environment_string, "a longer record is refused");
  require(launch::is_host(record->address) || launch::interface_to_ask(record->address),
          "the address is a host or an interface");
  require(!record->ports.empty(), "a record has ports");
  for (const launch::Component& each : record->components) require(each.tasks <= most_tasks, "tasks are bounded");
  const Hostlist nodes = Hostlist::parse("n[1-3]").value();
  if (record->peers.fits(nodes)) require(launch::is_host(record->peers.host_of(nodes, 2)), "a node is named by a host");
  const auto again = step::LaunchRecord::parse(record->to_string());
  require(again && *again == *record, "a record that is written out is the same");
  if (record->is_heterogeneous()) follow_components(*record);
}

}  // namespace amldist::fuzz::launch_record
