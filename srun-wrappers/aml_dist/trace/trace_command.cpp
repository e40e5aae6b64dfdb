// The command line of `aml-dist trace`.
#include <CLI/CLI.hpp>
#include <memory>

#include "aml_dist/command.hpp"
#include "aml_dist/trace/trace.hpp"

namespace amldist::tools {
namespace {

constexpr const char* trace_examples =
    "Examples:\n"
    "  aml-dist trace                          (the steps that left recorders on this node)\n"
    "  aml-dist trace 1234.0                   (who waits for whom in this step: all nodes of one that runs, the\n"
    "                                          recorders of this node of one that is dead)\n"
    "  aml-dist trace 1234.0 --stacks --watch 10\n"
    "  aml-dist trace /scratch/traces/1234.0 --svg timeline.svg\n"
    "  aml-dist trace /tmp/nccl_trace_rank_*   (dumps of PyTorch's own flight recorder; nothing in them is "
    "executed)\n\n"
    "Every program that uses libamldist records its calls, by default in /dev/shm/aml-dist-UID/JOBID.STEP of its "
    "node;\n"
    "AMLDIST_TRACE_DIR names another folder, 'off' switches recording off. A step that ends well leaves nothing.\n"
    "Exit status: 0 read, whatever it found; 4 there is no such recorder; others as in aml_dist(7).";

}  // namespace

Command add_trace(CLI::App& app) {
  const auto shared = std::make_shared<TraceOptions>();
  TraceOptions& options = *shared;
  CLI::App* const command = app.add_subcommand("trace", "Say which rank of a step is behind, and on what");
  command->footer(trace_examples);
  command
      ->add_option(
          "step", options.steps,
          "JOBID.STEP, JOBID, a folder with recorders, or dumps of PyTorch's flight recorder, one of each rank")
      ->type_name("DIR|JOBID.STEP|DUMP...");
  command
      ->add_option("--export-fr", options.export_folder, "Write dumps for PyTorch's torchfrtrace into this folder too")
      ->type_name("DIR");
  command->add_option("--last", options.last, "Calls of each rank in JSON and picture")
      ->check(CLI::Range(1U, 65536U))
      ->capture_default_str();
  CLI::Option* const stacks = command->add_flag(
      "--stacks", options.stacks,
      "Then say where each process of this node is: its Python stacks, else the states of its threads; of a step that "
      "runs on other nodes too, the processes of all, those with equal stacks together");
  command->add_flag("--states", options.states, "What a live view asks each node for")->group("");
  command->add_option("--watch", options.watch, "Look again after so many seconds, until the step ends")
      ->check(CLI::Range(1U, 3600U))
      ->type_name("SECONDS");
  command->add_option("--svg", options.svg, "Draw the timeline into this file too")->type_name("FILE");
  command->add_option("--waits-svg", options.waits_svg, "Draw who waits for whom into this file too")
      ->type_name("FILE");
  CLI::Option* const json = command->add_flag(
      "--json", options.json, "An object with stalls, recorders and their calls; without a step, with steps");
  json->excludes(stacks);
  command->add_option("--format", options.format, "text, json, or openmetrics for Prometheus: who is waited for")
      ->check(CLI::IsMember({"text", "json", "openmetrics"}))
      ->excludes(json)
      ->excludes(stacks);
  return {command, [shared] { return trace(*shared); }};
}

}  // namespace amldist::tools
