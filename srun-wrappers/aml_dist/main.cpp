// aml-dist: the tools around the plugin, one subcommand each.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "aml_dist/command.hpp"
#include "aml_dist/exec.hpp"
#include "aml_dist/help.hpp"
#include "base/text/text.hpp"
#include "shared/exit_status.hpp"
#include "shared/standard_streams.hpp"
#include "shared/switch_value.hpp"

namespace {

using amldist::tools::Command;

constexpr const char* footer =
    "Examples:\n"
    "  srun -N2 -n4 --aml-dist=pytorch aml-dist doctor        will the ranks meet?\n"
    "  aml-dist trace 1234.0                                  who waits for whom?\n"
    "  srun -N4 --ntasks-per-node=1 aml-dist check            are the nodes well?\n\n"
    "aml-dist COMMAND [OPTION]...\n"
    "aml-dist COMMAND --help\n\n"
    "Exit status: see aml_dist(7).";

/// The words behind the first "--" of `aml-dist ray` and `aml-dist keep`, cut off: they are a command and must not be
/// parsed.
std::vector<std::string> cut_command(int& argc, char** argv) {
  if (argc < 2 || (std::string_view(argv[1]) != "ray" && std::string_view(argv[1]) != "keep")) return {};
  char** const end = argv + argc;
  char** const mark = std::find(argv + 2, end, std::string_view("--"));
  argc = static_cast<int>(mark - argv);
  return {mark == end ? end : mark + 1, end};
}

std::vector<Command> add_commands(CLI::App& app, const std::vector<std::string>& words) {
  using namespace amldist::tools;
  std::vector<Command> commands = {add_explain(app), add_doctor(app),      add_check(app),      add_check_config(app),
                                   add_bench(app),   add_keep(app, words), add_ray(app, words), add_order(app),
                                   add_stop(app),    add_trace(app)};
  // Only for the list in --help: what follows `exec` is somebody's command and must not be parsed.
  app.add_subcommand("exec", "Expand $RANK and its like in a command's arguments, then start it");
  return commands;
}

/// The sentence for a first word that is no subcommand; empty if it is one, or an option.
std::string unknown_command(const CLI::App& app, std::string_view word) {
  std::vector<std::string> names;
  for (const CLI::App* each : app.get_subcommands({})) names.push_back(each->get_name());
  if (word.empty() || word.starts_with('-') || std::ranges::find(names, word) != names.end()) return {};
  const std::vector<std::string_view> known(names.begin(), names.end());
  const auto near = amldist::text::nearest(word, known);
  return amldist::text::concat({"unknown command ", amldist::text::quote(word),
                                near ? amldist::text::concat({": did you mean '", *near, "'?"})
                                     : amldist::text::concat({": there are ", amldist::text::join(known)})});
}

/// The sentence for a flag with a value, in the words of a subcommand or of aml-dist itself; empty without one.
std::string valued_flag(CLI::App& app, const std::vector<std::string>& words) {
  CLI::App* command = &app;
  for (CLI::App* each : app.get_subcommands({})) {
    if (!words.empty() && each->get_name() == words.front()) command = each;
  }
  for (CLI::Option* each : command->get_options({})) each->disable_flag_override();
  const auto flag = amldist::commands::switch_with_value(*command, words);
  return flag ? amldist::text::concat({*flag, " takes no value", amldist::tools::see_help(*command)}) : std::string();
}

int run(int argc, char** argv) {
  CLI::App app("Explain, diagnose, verify and measure distributed steps on Slurm");
  app.formatter(amldist::tools::help_formatter());
  app.set_help_flag("-h,--help", "print this help");
  app.set_version_flag("--version", std::string("aml-dist ") + AMLDIST_VERSION, "print the version");
  app.footer(footer);
  app.require_subcommand(1);
  const std::vector<Command> commands = add_commands(app, cut_command(argc, argv));
  if (const std::string unknown = unknown_command(app, argc > 1 ? argv[1] : ""); !unknown.empty()) {
    std::fprintf(stderr, "aml-dist: %s\n", unknown.c_str());
    return amldist::commands::exit_usage;
  }
  if (const std::string valued = valued_flag(app, {argv + 1, argv + argc}); !valued.empty()) {
    std::fprintf(stderr, "aml-dist: %s\n", valued.c_str());
    return amldist::commands::exit_usage;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::CallForVersion& version) {
    return app.exit(version);
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "aml-dist: %s\n", amldist::tools::sentence_of(app, error).c_str());
    return amldist::commands::exit_usage;
  }
  for (const Command& command : commands) {
    if (command.app->parsed()) return command.run();
  }
  return amldist::commands::exit_usage;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc > 1 && std::string_view(argv[1]) == "exec") return amldist::tools::exec_command({argv + 2, argv + argc});
    amldist::commands::fill_closed_streams();
    const int status = run(argc, argv);
    return amldist::commands::printed_all() ? status : amldist::commands::exit_failed;
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "aml-dist: internal error: %s\n", problem.what());
    return amldist::commands::exit_failed;
  }
}
