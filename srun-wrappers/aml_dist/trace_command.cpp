// The command line of `aml-dist trace`.
#include <CLI/CLI.hpp>
#include <memory>

#include "aml_dist/command.hpp"
#include "aml_dist/trace.hpp"

namespace amldist::tools {
namespace {

constexpr const char* trace_examples =
    "Examples:\n"
    "  aml-dist trace                          (the steps that left recorders on this node)\n"
    "  aml-dist trace 1234.0                   (who waits for whom in this step, running or dead)\n"
    "  aml-dist trace /scratch/traces/1234.0 --svg timeline.svg\n\n"
    "Every program that uses libamldist records its calls, by default in /dev/shm/aml-dist-UID/JOBID.STEP of its "
    "node;\n"
    "AMLDIST_TRACE_DIR names another folder, 'off' switches recording off. A step that ends well leaves nothing.\n"
    "Exit status: 0 read, whatever it says; 4 there is no such recorder; others as in aml_dist(7).";

}  // namespace

Command add_trace(CLI::App& app) {
  const auto shared = std::make_shared<TraceOptions>();
  TraceOptions& options = *shared;
  CLI::App* const command = app.add_subcommand("trace", "Say which rank of a step is behind, and on what");
  command->footer(trace_examples);
  command->add_option("step", options.step, "JOBID.STEP, JOBID, or a folder with recorders")
      ->type_name("DIR|JOBID.STEP");
  command->add_option("--last", options.last, "Calls of each rank in JSON and picture")
      ->check(CLI::Range(1U, 65536U))
      ->capture_default_str();
  command->add_option("--svg", options.svg, "Draw the timeline into this file too")->type_name("FILE");
  CLI::Option* const json = command->add_flag(
      "--json", options.json, "An object with stalls, recorders and their calls; without a step, with steps");
  command->add_option("--format", options.format, "text, json, or openmetrics for Prometheus: who is waited for")
      ->check(CLI::IsMember({"text", "json", "openmetrics"}))
      ->excludes(json);
  return {command, [shared] { return trace(*shared); }};
}

}  // namespace amldist::tools
