// `aml-dist keep` among the subcommands.
#include <CLI/CLI.hpp>
#include <memory>

#include "aml_dist/command.hpp"
#include "aml_dist/keep/keeper.hpp"
#include "base/text/text.hpp"
#include "shared/exit_status.hpp"
#include "shared/terminal.hpp"

namespace amldist::keep {
namespace {

constexpr const char* footer =
    "Example, in a batch script of 9 nodes:\n"
    "  aml-dist keep --spares 1 --retries 5 -- \\\n"
    "      srun --ntasks-per-node=8 --aml-dist=pytorch,hang=300 python train.py\n"
    "\n"
    "aml-dist keep [OPTION]... -- srun [OPTION]... COMMAND [ARGUMENT]...\n"
    "\n"
    "Exit status: that of the step that ended it; 2 wrong usage; 1 there are no\n"
    "nodes, or the budget was used before a start.";

constexpr std::uint32_t most_of_a_flag = 10000;

struct Given {
  KeepOptions options;
  std::string health = "quick";
  long grace = 0;
};

int run(const Given& given) {
  KeepOptions options = given.options;
  options.grace = std::chrono::seconds(given.grace);
  options.health = given.health == "off"     ? HealthCheck::off
                   : given.health == "bench" ? HealthCheck::bench
                                             : HealthCheck::quick;
  return keep_alive(std::move(options));
}

}  // namespace
}  // namespace amldist::keep

namespace amldist::tools {

Command add_keep(CLI::App& app, std::vector<std::string> step) {
  const auto given = std::make_shared<keep::Given>();
  keep::KeepOptions& options = given->options;
  options.words = std::move(step);
  CLI::App* const command =
      app.add_subcommand("keep", "Start a step again when a node or a rank fails, without the guilty node");
  command->footer(keep::footer);
  command->add_option("--spares", options.spares, "nodes of the job that wait until one is needed")
      ->type_name("K")
      ->check(CLI::Range(0U, keep::most_of_a_flag));
  command->add_option("--retries", options.limits.retries, "how often the step is started again, requeues included")
      ->type_name("N")
      ->capture_default_str()
      ->check(CLI::Range(0U, keep::most_of_a_flag));
  command->add_option("--per-hour", options.limits.per_hour, "how often within an hour")
      ->type_name("N")
      ->check(CLI::Range(1U, keep::most_of_a_flag));
  command
      ->add_option("--min-nodes", options.limits.min_nodes,
                   "without a spare, go on with fewer nodes, down to this number")
      ->type_name("M")
      ->check(CLI::Range(1U, keep::most_of_a_flag));
  command
      ->add_option("--no-restart-on", options.limits.no_restart_on,
                   "statuses of srun after which the step is not started again")
      ->type_name("STATUS,...")
      ->delimiter(',')
      ->check(CLI::Range(1, 255));
  auto* const checkpoints =
      command->add_option("--checkpoints", options.checkpoints, "no new file below this folder in two starts: stop")
          ->type_name("DIR");
  command->add_option("--progress", options.progress, "the same for a file, or for what a command prints")
      ->type_name("FILE|COMMAND")
      ->excludes(checkpoints);
  command->add_option("--grace", given->grace, "when a rank fails, how long the others may go on before they are ended")
      ->type_name("SECONDS")
      ->check(CLI::Range(0, 86400));
  command->add_flag("--requeue", options.limits.requeue,
                    "without a spare, back to the queue, without the guilty nodes");
  command->add_flag("--requeue-at-limit", options.limits.requeue_at_limit,
                    "when the ranks have stopped before the time limit (stop=), back to the queue");
  command->add_option("--health", given->health, "check nodes before they are used: off, quick, bench")
      ->capture_default_str()
      ->check(CLI::IsMember({"off", "quick", "bench"}));
  command->add_flag("--json", options.json, "each start and each decision as a line of JSON on standard output");
  return {command, [given] { return keep::run(*given); }};
}

}  // namespace amldist::tools
