// aml-dist: the tools around the plugin, one subcommand each.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "aml_dist/doctor.hpp"
#include "aml_dist/exit_status.hpp"
#include "aml_dist/explain.hpp"

namespace {

using amldist::tools::DoctorOptions;
using amldist::tools::ExplainOptions;

constexpr const char* examples =
    "Examples:\n"
    "  aml-dist explain --aml-dist=pytorch --nodelist 'node[1-4]' --tasks-per-node 2\n"
    "  aml-dist explain --aml-dist=pytorch --nodelist 'node[1-2]' --tasks-per-node 4 --task 5\n"
    "  aml-dist explain --aml-dist=pytorch --hostfile hosts.txt --json\n"
    "  aml-dist explain --aml-dist=mpi --nodelist 'node1 : node[2-3]' --tasks-per-node '1 : 4' --svg layout.svg\n"
    "  srun -N2 --aml-dist=pytorch aml-dist explain       (the running step, as each of its tasks sees it)\n\n"
    "Components of a heterogeneous step are separated by ' : '; one value counts for all of them.\n"
    "Exit status: 0 fine, 1 the layout is refused, 2 asked wrongly.";

constexpr const char* doctor_examples =
    "Examples:\n"
    "  srun -N2 -n4 --aml-dist=pytorch aml-dist doctor                  (the running step, once for each task)\n"
    "  srun -N2 -n4 --aml-dist=pytorch bash -c '[ $RANK != 0 ] || aml-dist doctor'\n"
    "  aml-dist doctor --aml-dist=mpi --nodelist 'node[1-2]' --tasks-per-node 2\n"
    "  aml-dist doctor --nodelist 'node[1-2]' --tasks-per-node 2 --env SLURM_JOB_NAME=interactive --framework "
    "lightning\n"
    "  env -0 > saved; aml-dist doctor --env-file saved --json\n\n"
    "Verdicts: fine; warns (it depends on the script); fails; hangs; alone (silently with fewer processes); skip.\n"
    "Exit status: 0 nothing would fail, 1 something would fail, hang or train alone, 2 asked wrongly.";

/// What describes a step that does not run.
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

CLI::App* add_explain(CLI::App& app, ExplainOptions& options) {
  CLI::App* const command = app.add_subcommand("explain", "Show the environment that each task of a step would get");
  command->footer(examples);
  add_layout(*command, options);
  command->add_option("--task", options.task, "Only this rank, as export lines");
  command->add_option("--svg", options.svg, "Draw the layout into this file too")->type_name("FILE");
  command->add_flag("--json", options.json, "An array with rank, local_rank, node_rank, host and env of each task");
  return command;
}

CLI::App* add_doctor(CLI::App& app, DoctorOptions& options) {
  CLI::App* const command = app.add_subcommand("doctor", "Say what each framework would make of a task's environment");
  command->footer(doctor_examples);
  add_layout(*command, options.step);
  command->add_option("--task", options.step.task, "The rank to examine (default: 0)");
  command->add_option("--mpi", options.mpi, "srun's --mpi (default: pmix for mpi steps, else none)")
      ->check(CLI::IsMember({"pmix", "none"}));
  command->add_option("--env-file", options.env_file,
                      "Examine an environment saved by env or env -0; - is standard input");
  command->add_option("--env", options.variables, "Add NAME=VALUE, or remove NAME; may be repeated")
      ->allow_extra_args(false);
  command->add_option("--framework", options.selection.framework, "Only this framework, whatever the step is for");
  command->add_option("--launcher", options.selection.launcher, "Only this launcher: srun, torchrun, ...");
  command->add_flag("--json", options.step.json,
                    "An array with framework, launcher, environment, rank, size, master, verdict, "
                    "reason and remedy");
  return command;
}

int run(int argc, char** argv) {
  CLI::App app("aml-dist: see what --aml-dist gives the tasks of a Slurm step, and what frameworks make of it");
  app.set_version_flag("--version", std::string("aml-dist ") + AMLDIST_VERSION);
  app.require_subcommand(1);
  ExplainOptions explain;
  const CLI::App* const explain_command = add_explain(app, explain);
  DoctorOptions doctor;
  const CLI::App* const doctor_command = add_doctor(app, doctor);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::CallForVersion& version) {
    return app.exit(version);
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "aml-dist: %s (see aml-dist --help)\n", error.what());
    return amldist::tools::exit_usage;
  }
  if (explain_command->parsed()) return amldist::tools::explain(explain);
  if (doctor_command->parsed()) return amldist::tools::run_doctor(doctor);
  return amldist::tools::exit_usage;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "aml-dist: internal error: %s\n", problem.what());
    return amldist::tools::exit_failed;
  }
}
