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
    "  aml-dist explain --nodelist 'node[1-2]' --tasks-per-node 4 --task 5\n"
    "  aml-dist explain --aml-dist=pytorch --hostfile hosts.txt --json\n"
    "  aml-dist explain --aml-dist=mpi --nodelist 'node1 : node[2-3]' \\\n"
    "      --tasks-per-node '1 : 4' --svg layout.svg\n"
    "  srun -N2 --aml-dist=pytorch aml-dist explain      the running step\n"
    "\n"
    "Components of a heterogeneous step are separated by ' : '; one value counts\n"
    "for all of them.\n"
    "\n"
    "Exit status: 0 explained; 1 srun would refuse the step;\n"
    "others as in aml_dist(7).";

}  // namespace

void add_layout(CLI::App& command, ExplainOptions& options) {
  auto& layout = options.layout;
  command.add_option("--aml-dist", options.option, "the option as srun takes it: KIND[,KEY=VALUE]...")
      ->type_name("KIND[,KEY=VALUE]...");
  command.add_option("--nodelist", layout.nodelist, "nodes of the step, such as 'node[1-4]'")->type_name("LIST");
  command.add_option("--tasks-per-node", layout.tasks_per_node, "tasks of each node: 2, or '2(x3),1'")
      ->type_name("COUNTS");
  command.add_option("--distribution,-m", layout.distribution, "block, cyclic or plane=N (default: Slurm's)")
      ->type_name("NAME");
  command.add_option("--mapping", layout.mapping, "process mapping: '(vector,(0,4,2))'")->type_name("MAP");
  command.add_option("--hostfile", layout.hostfile, "file with the host of each rank")->type_name("FILE");
  command.add_option("--gpus-per-node", options.gpus_per_node, "GPUs that the tasks of a node see")
      ->check(CLI::Range(0U, 1024U));
  command.add_option("--cluster", options.cluster, "name of the cluster, part of the port's hash")->type_name("NAME");
  command.add_option("--job", options.job, "job id")->capture_default_str();
  command.add_option("--step", options.step, "step id")->capture_default_str();
  command.add_option("--restart", options.restart, "how often the job was requeued")->capture_default_str();
  command.add_option("--port-range", options.port_range, "ports to choose from: LO-HI")
      ->type_name("LO-HI")
      ->capture_default_str();
}

Command add_explain(CLI::App& app) {
  const auto shared = std::make_shared<ExplainOptions>();
  ExplainOptions& options = *shared;
  CLI::App* const command = app.add_subcommand("explain", "Show the environment that each task of a step would get");
  command->footer(examples);
  add_layout(*command, options);
  command->add_option("--task", options.task, "only this rank, as export lines");
  command
      ->add_option("--topology", options.topology,
                   "count the links between neighbours: what scontrol show topology printed")
      ->type_name("FILE");
  command->add_option("--svg", options.svg, "draw the layout into this file too")->type_name("FILE");
  command->add_flag("--json", options.json, "an array with rank, local_rank, node_rank, host and env of each task");
  return {command, [shared] { return explain(*shared); }};
}

}  // namespace amldist::tools
