// The command line of `aml-dist trace`.
#include <CLI/CLI.hpp>
#include <memory>

#include "aml_dist/command.hpp"
#include "aml_dist/trace/trace.hpp"

namespace amldist::tools {
namespace {

constexpr const char* trace_examples =
    "Examples:\n"
    "  aml-dist trace                         steps that left recorders on this node\n"
    "  aml-dist trace 1234.0                  who waits for whom in this step\n"
    "  aml-dist trace 1234.0 --stacks --watch 10\n"
    "  aml-dist trace /scratch/traces/1234.0 --svg timeline.svg\n"
    "  aml-dist trace /tmp/nccl_trace_rank_*  dumps of PyTorch's flight recorder\n"
    "  aml-dist trace 1234.0 /tmp/nccl_trace_rank_*  whether both agree\n"
    "\n"
    "Of a step that runs, the recorders of all its nodes are read, of one that has\n"
    "ended, those of this node. Nothing in a dump is executed.\n"
    "Every program that uses libamldist records its calls, by default in\n"
    "/dev/shm/aml-dist-UID/JOBID.STEP of its node; AMLDIST_TRACE_DIR names another\n"
    "folder, 'off' switches recording off. A step that ends well leaves nothing.\n"
    "\n"
    "Exit status: 0 read, whatever it found; 4 there is no such recorder;\n"
    "others as in aml_dist(7).";

}  // namespace

Command add_trace(CLI::App& app) {
  const auto shared = std::make_shared<TraceOptions>();
  TraceOptions& options = *shared;
  CLI::App* const command = app.add_subcommand("trace", "Say which rank of a step is behind, and on what");
  command->footer(trace_examples);
  command
      ->add_option("step", options.steps,
                   "JOBID.STEP, JOBID, a folder with recorders, or dumps of PyTorch's flight recorder, one of each "
                   "rank; behind a "
                   "step, dumps say whether they agree")
      ->type_name("STEP");
  command
      ->add_option("--export-fr", options.export_folder, "write dumps for PyTorch's torchfrtrace into this folder too")
      ->type_name("DIR");
  command->add_option("--last", options.last, "calls of each rank in JSON and picture")
      ->check(CLI::Range(1U, 65536U))
      ->capture_default_str();
  CLI::Option* const stacks = command->add_flag(
      "--stacks", options.stacks,
      "then say where each process is: its Python stacks, else the states of its threads; equal stacks together");
  command->add_flag("--states", options.states, "what a live view asks each node for")->group("");
  command->add_option("--watch", options.watch, "look again after so many seconds, until the step ends")
      ->check(CLI::Range(1U, 3600U))
      ->type_name("SECONDS");
  command->add_option("--svg", options.svg, "draw the timeline into this file too")->type_name("FILE");
  command->add_option("--waits-svg", options.waits_svg, "draw who waits for whom into this file too")
      ->type_name("FILE");
  CLI::Option* const json = command->add_flag(
      "--json", options.json, "an object with stalls, recorders and their calls; without a step, with steps");
  json->excludes(stacks);
  command->add_option("--format", options.format, "text, json, or openmetrics for Prometheus: who is waited for")
      ->check(CLI::IsMember({"text", "json", "openmetrics"}))
      ->excludes(json)
      ->excludes(stacks);
  return {command, [shared] { return trace(*shared); }};
}

}  // namespace amldist::tools
