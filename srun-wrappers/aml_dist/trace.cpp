#include "aml_dist/trace.hpp"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "aml_dist/common/files.hpp"
#include "aml_dist/timeline_svg.hpp"
#include "aml_dist/trace_metrics.hpp"
#include "aml_dist/trace_output.hpp"
#include "aml_dist/trace_step.hpp"
#include "shared/exit_status.hpp"
#include "shared/terminal.hpp"

namespace amldist::tools {
namespace {

using commands::fail;

int list_steps(bool json) {
  const auto folders = list_step_folders();
  if (json) {
    std::puts(nlohmann::ordered_json{{"steps", folders}}
                  .dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace)
                  .c_str());
    return commands::exit_done;
  }
  for (const std::string& folder : folders) std::printf("%s\n", folder.c_str());
  if (folders.empty())
    std::fprintf(stderr, "aml-dist: no flight recorder on this node: all steps ended well, or none used libamldist\n");
  return commands::exit_done;
}

}  // namespace

int trace(const TraceOptions& options) {
  const bool json = options.json || options.format == "json";
  const bool metrics = !json && options.format == "openmetrics";
  if (options.step.empty() && metrics) {
    return fail(
        Error{Errc::invalid_argument, "--format openmetrics needs a step (JOBID.STEP): aml-dist trace lists them"});
  }
  if (options.step.empty()) return list_steps(json);
  const auto folder = find_step_folder(options.step);
  if (!folder) return fail(folder.error());
  const auto step = read_traced_step(*folder);
  if (!step) return fail(step.error());
  for (const std::string& problem : step->problems) std::fprintf(stderr, "aml-dist: %s\n", problem.c_str());
  if (!options.svg.empty()) {
    const auto written = write_file(options.svg, draw_timeline(*step, options.last));
    if (!written) return fail(written.error());
  }
  const std::string text = json ? to_json(*step, options.last) : metrics ? to_metrics(*step) : to_table(*step);
  std::fputs(text.c_str(), stdout);
  return commands::exit_done;
}

}  // namespace amldist::tools
