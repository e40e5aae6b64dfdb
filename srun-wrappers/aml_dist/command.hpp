// The subcommands of aml-dist. To add one: write its command line into a file of its own, declare it here, and name it
// in main.cpp.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace amldist::tools {

struct ExplainOptions;

/// A subcommand: `app` has been parsed if the user asked for it; `run` does the work and returns the exit status.
struct Command {
  const CLI::App* app;
  std::function<int()> run;
};

[[nodiscard]] Command add_bench(CLI::App& app);
[[nodiscard]] Command add_check(CLI::App& app);
[[nodiscard]] Command add_check_config(CLI::App& app);
[[nodiscard]] Command add_doctor(CLI::App& app);
[[nodiscard]] Command add_explain(CLI::App& app);
/// `step`: the words behind the first "--".
[[nodiscard]] Command add_keep(CLI::App& app, std::vector<std::string> step);
[[nodiscard]] Command add_order(CLI::App& app);
/// `driver`: the words behind the first "--".
[[nodiscard]] Command add_ray(CLI::App& app, std::vector<std::string> driver);
[[nodiscard]] Command add_stop(CLI::App& app);
[[nodiscard]] Command add_trace(CLI::App& app);

/// The options that describe a step that does not run, shared by explain and doctor.
void add_layout(CLI::App& command, ExplainOptions& options);

}  // namespace amldist::tools
