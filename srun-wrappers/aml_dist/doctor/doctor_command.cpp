// The command line of `aml-dist doctor`.
#include <CLI/CLI.hpp>
#include <memory>

#include "aml_dist/command.hpp"
#include "aml_dist/doctor/doctor.hpp"

namespace amldist::tools {
namespace {

constexpr const char* doctor_examples =
    "Examples:\n"
    "  srun -N2 -n4 --aml-dist=pytorch aml-dist doctor      the running step\n"
    "  aml-dist doctor --aml-dist=mpi --nodelist 'node[1-2]' --tasks-per-node 2\n"
    "  aml-dist doctor --nodelist 'node[1-2]' --tasks-per-node 2 \\\n"
    "      --env SLURM_JOB_NAME=interactive --framework lightning\n"
    "  aml-dist doctor --nodelist node1 --tasks-per-node 8 -- \\\n"
    "      torchrun --nproc_per_node=8 train.py\n"
    "  env -0 > saved; aml-dist doctor --env-file saved --json\n"
    "\n"
    "aml-dist doctor [OPTION]... [-- COMMAND [ARGUMENT]...]\n"
    "\n"
    "In a step each task is examined. For one report write\n"
    "bash -c '[ $RANK != 0 ] || aml-dist doctor' there.\n"
    "Verdicts: fine; warns (it depends on the script); fails; hangs;\n"
    "alone (silently with fewer processes); skip.\n"
    "\n"
    "Exit status: 0 nothing would fail; 1 something would fail, hang or train alone;\n"
    "others as in aml_dist(7).";

}  // namespace

Command add_doctor(CLI::App& app) {
  const auto shared = std::make_shared<DoctorOptions>();
  DoctorOptions& options = *shared;
  CLI::App* const command = app.add_subcommand("doctor", "Predict how each framework interprets a task's environment");
  command->footer(doctor_examples);
  add_layout(*command, options.step);
  command->add_option("--task", options.step.task, "the rank to examine (default: 0)");
  command->add_option("--mpi", options.mpi, "srun's --mpi (default: pmix for mpi steps, else none)")
      ->check(CLI::IsMember({"pmix", "none"}));
  command
      ->add_option("--env-file", options.env_file, "examine an environment saved by env or env -0; - is standard input")
      ->type_name("FILE");
  command->add_option("--env", options.variables, "add NAME=VALUE, or remove NAME; may be repeated")
      ->type_name("NAME[=VALUE]")
      ->allow_extra_args(false);
  command->add_option("--framework", options.selection.framework, "only this framework, whatever the step's kind")
      ->type_name("NAME");
  command->add_option("--launcher", options.selection.launcher, "only this launcher: srun, torchrun, ...")
      ->type_name("NAME");
  command->add_option("COMMAND", options.selection.command, "the step's program, behind --: may a launcher be it?");
  command->add_flag("--json", options.step.json,
                    "an array with framework, launcher, environment, rank, size, master, verdict, "
                    "reason and remedy");
  return {command, [shared] { return run_doctor(*shared); }};
}

}  // namespace amldist::tools
