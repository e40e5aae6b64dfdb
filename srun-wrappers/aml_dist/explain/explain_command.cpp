// The command line of `aml-dist explain`.
#include <CLI/CLI.hpp>
#include <memory>

#include "aml_dist/command.hpp"
#include "aml_dist/explain/explain.hpp"

namespace amldist::tools {
namespace {

constexpr const char* examples =
    "Examples:\n"
    "  aml-dist explain --aml-dist=pytorch --nodelist 'node[1-4]' --tasks-per-node 2\n"
    "  aml-dist explain --aml-dist=pytorch --nodelist 'node[1-2]' --tasks-per-node 4 --task 5\n"
    "  aml-dist explain --aml-dist=pytorch --hostfile hosts.txt --json\n"
    "  aml-dist explain --aml-dist=mpi --nodelist 'node1 : node[2-3]' --tasks-per-node '1 : 4' --svg layout.svg\n"
    "  srun -N2 --aml-dist=pytorch aml-dist explain       (the running step, as each of its tasks sees it)\n\n"
    "Components of a heterogeneous step are separated by ' : '; one value counts for all of them.\n"
    "Exit status: 0 explained; 1 srun would refuse the step; others as in aml_dist(7).";

}  // namespace

void add_layout(CLI::App& command, ExplainOptions& options) {
  auto& layout = options.layout;
  command.add_option("--aml-dist", options.option, "The option as srun takes it: KIND[,KEY=VALUE]...");
  command.add_option("--nodelist", layout.nodelist, "Nodes of the step, such as 'node[1-4]'");
  command.add_option("--tasks-per-node", layout.tasks_per_node, "Tasks of each node: 2, or '2(x3),1'");
  command.add_option("--distribution,-m", layout.distribution, "block, cyclic or plane=N (default: Slurm's)");
  command.add_option("--mapping", layout.mapping, "Process mapping: '(vector,(0,4,2))'");
  command.add_option("--hostfile", layout.hostfile, "File with the host of each rank");
  command.add_option("--gpus-per-node", options.gpus_per_node, "GPUs that the tasks of a node see")
      ->check(CLI::Range(0U, 1024U));
  command.add_option("--cluster", options.cluster, "Name of the cluster, part of the port's hash");
  command.add_option("--job", options.job, "Job id")->capture_default_str();
  command.add_option("--step", options.step, "Step id")->capture_default_str();
  command.add_option("--restart", options.restart, "How often the job was requeued")->capture_default_str();
  command.add_option("--port-range", options.port_range, "Ports to choose from: LO-HI")->capture_default_str();
}

Command add_explain(CLI::App& app) {
  const auto shared = std::make_shared<ExplainOptions>();
  ExplainOptions& options = *shared;
  CLI::App* const command = app.add_subcommand("explain", "Show the environment that each task of a step would get");
  command->footer(examples);
  add_layout(*command, options);
  command->add_option("--task", options.task, "Only this rank, as export lines");
  command
      ->add_option("--topology", options.topology,
                   "Count the links between neighbours: what scontrol show topology printed")
      ->type_name("FILE");
  command->add_option("--svg", options.svg, "Draw the layout into this file too")->type_name("FILE");
  command->add_flag("--json", options.json, "An array with rank, local_rank, node_rank, host and env of each task");
  return {command, [shared] { return explain(*shared); }};
}

}  // namespace amldist::tools
