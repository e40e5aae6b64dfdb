// `aml-dist ray` among the subcommands.
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>

#include "aml_dist/command.hpp"
#include "aml_dist/ray/family.hpp"
#include "aml_dist/ray/head.hpp"
#include "aml_dist/ray/worker.hpp"
#include "base/os/environment.hpp"
#include "base/text/text.hpp"
#include "shared/exit_status.hpp"
#include "shared/shell.hpp"
#include "shared/terminal.hpp"

namespace amldist::ray {
namespace {

/// Texts as the user gave them.
struct Given {
  std::vector<std::string> head_arguments;
  std::vector<std::string> worker_arguments;
  std::string dashboard;
  CLI::Option* dashboard_option = nullptr;
  long wait = 0;
  long grace = 0;
  Options options;
};

Result<std::vector<std::string>> words_of(const std::vector<std::string>& texts) {
  std::vector<std::string> all;
  for (const std::string& text : texts) {
    auto words = shell::split_words(text);
    if (!words) return Error{words.error().code, text::concat({"ray: ", words.error().message})};
    all.insert(all.end(), words->begin(), words->end());
  }
  if (auto status = check_arguments(all); !status) return status.error();
  return all;
}

Result<Options> options_of(const Given& given) {
  Options options = given.options;
  auto head = words_of(given.head_arguments);
  if (!head) return head.error();
  auto worker = words_of(given.worker_arguments);
  if (!worker) return worker.error();
  options.wishes = {std::move(*head), std::move(*worker), std::nullopt};
  std::error_code ignored;  // the path is then empty, and no folder can be made there
  options.parent = std::filesystem::absolute(options.parent, ignored).string();
  options.patience = std::chrono::seconds(given.wait);
  options.grace = std::chrono::seconds(given.grace);
  if (given.dashboard_option->count() == 0) return options;
  const auto port = text::to_number(given.dashboard.empty() ? "0" : given.dashboard, 65535);
  if (!port) {
    return Error{Errc::invalid_argument, text::concat({"ray: --dashboard=", text::quote(given.dashboard), " ",
                                                       text::number_problem(given.dashboard, 65535)})};
  }
  options.wishes.dashboard = static_cast<std::uint16_t>(*port);
  return options;
}

/// Ends as the driver did: Slurm then says the same of the step.
int end_like(int status) {
  const int signal = signal_of(status);
  if (signal == 0) return status;
  const rlimit no_core = {0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, signal);
  static_cast<void>(::signal(signal, SIG_DFL));
  ::sigprocmask(SIG_UNBLOCK, &set, nullptr);
  static_cast<void>(::raise(signal));
  return status;
}

/// A wrong command line is wrong in each task of the step, and one of them says it.
int refuse(const Error& error) {
  const bool is_first = process_environment()("SLURM_PROCID").value_or("0") == "0";
  if (error.code == Errc::invalid_argument && !is_first) return commands::exit_usage;
  return commands::fail(error);
}

int run(const Given& given) {
  if (given.options.command.empty()) {
    return refuse({Errc::invalid_argument, "ray: no command is given: write aml-dist ray -- COMMAND"});
  }
  const auto options = options_of(given);
  if (!options) return refuse(options.error());
  const auto place = read_place(process_environment());
  if (!place) return refuse(place.error());
  adopt_orphans();
  return end_like(place->is_head() ? run_head(*place, *options) : run_worker(*place, *options));
}

}  // namespace
}  // namespace amldist::ray

namespace amldist::tools {

Command add_ray(CLI::App& app, std::vector<std::string> driver) {
  const auto given = std::make_shared<ray::Given>();
  given->options.command = std::move(driver);
  CLI::App* const command = app.add_subcommand("ray", "Start Ray on the nodes of a step and run a driver on it");
  command->footer(
      "Example:\n"
      "  srun -N4 --ntasks-per-node=1 --cpus-per-task=8 --aml-dist=ray \\\n"
      "      aml-dist ray -- python driver.py\n"
      "\n"
      "aml-dist ray [OPTION]... -- COMMAND [ARGUMENT]...\n"
      "\n"
      "Exit status: that of COMMAND; 1 a node did not join or was lost, 2 wrong usage,\n"
      "126 and 127 as in a shell.");
  command->add_option("--head-args", given->head_arguments, "words for 'ray start' on node 0, as one text")
      ->type_name("WORDS")
      ->expected(1);
  command->add_option("--worker-args", given->worker_arguments, "the same on the other nodes")
      ->type_name("WORDS")
      ->expected(1);
  given->dashboard_option =
      command->add_option("--dashboard", given->dashboard, "with Ray's dashboard, and how to reach it")
          ->type_name("[PORT]")
          ->expected(0, 1);
  command->add_option("--wait", given->wait, "how long nodes may take to join")
      ->type_name("SECONDS")
      ->default_val(300)
      ->check(CLI::Range(1, 86400));
  command->add_option("--grace", given->grace, "from SIGTERM to SIGKILL of the driver")
      ->type_name("SECONDS")
      ->default_val(20)
      ->check(CLI::Range(0, 86400));
  command->add_option("--temp-dir", given->options.parent, "where Ray's folder is made on each node")
      ->type_name("FOLDER")
      ->default_str("/tmp");
  command->add_flag("--keep", given->options.keep_on_failure, "keep Ray's folder and logs when the step fails");
  return {command, [given] { return ray::run(*given); }};
}

}  // namespace amldist::tools
