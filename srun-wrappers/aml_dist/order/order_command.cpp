// `aml-dist order`: a host file for srun, with the hosts of a job along the switches of the network.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "aml_dist/command.hpp"
#include "aml_dist/common/hops.hpp"
#include "aml_dist/explain/layout.hpp"
#include "base/os/environment.hpp"
#include "base/text/text.hpp"
#include "shared/exit_status.hpp"
#include "shared/terminal.hpp"

namespace amldist::tools {
namespace {

using text::concat;

struct OrderOptions {
  LayoutOptions layout;
  std::string topology;
};

/// The job's nodes and tasks, where the command line does not say them.
Result<launch::Placement> placement_of(LayoutOptions layout) {
  if (layout.nodelist.empty()) layout.nodelist = own_variable("SLURM_JOB_NODELIST").value_or("");
  if (layout.tasks_per_node.empty()) layout.tasks_per_node = own_variable("SLURM_TASKS_PER_NODE").value_or("");
  if (layout.nodelist.empty() || layout.tasks_per_node.empty()) {
    return Error{Errc::invalid_argument,
                 "there is no job here: run it in a batch script, or give --nodelist and --tasks-per-node"};
  }
  layout.distribution = "block";
  return make_placement(layout);
}

int order(const OrderOptions& options) {
  const auto placement = placement_of(options.layout);
  if (!placement) return commands::fail(placement.error());
  const auto network = read_topology(options.topology);
  if (!network) return commands::fail(network.error());
  const std::vector<std::string> hosts = placement->hosts.expand();
  std::map<std::string, std::uint32_t> tasks;
  for (std::uint32_t node = 0; node < hosts.size(); ++node) tasks[hosts[node]] = placement->map.tasks_on(node);
  std::string out;
  for (const std::string& host : network->in_order(hosts)) {
    for (std::uint32_t task = 0; task < tasks[host]; ++task) out += concat({host, "\n"});
  }
  return commands::print(out);
}

}  // namespace

Command add_order(CLI::App& app) {
  const auto shared = std::make_shared<OrderOptions>();
  CLI::App* const command =
      app.add_subcommand("order", "Write a host file for srun, with the hosts along the switches");
  command->footer(
      "Example, in a batch script:\n"
      "  aml-dist order >hosts\n"
      "  SLURM_HOSTFILE=hosts srun --distribution=arbitrary \\\n"
      "      --aml-dist=pytorch,order=topology python train.py\n"
      "\n"
      "Exit status: 0 written, 1 Slurm knows no switches or blocks;\n"
      "others as in aml_dist(7).");
  command->add_option("--nodelist", shared->layout.nodelist, "nodes (default: those of the job)")->type_name("LIST");
  command->add_option("--tasks-per-node", shared->layout.tasks_per_node, "tasks of each node (default: as in the job)")
      ->type_name("COUNTS");
  command->add_option("--topology", shared->topology, "what scontrol show topology printed (default: ask it)")
      ->type_name("FILE");
  return {command, [shared] { return order(*shared); }};
}

}  // namespace amldist::tools
