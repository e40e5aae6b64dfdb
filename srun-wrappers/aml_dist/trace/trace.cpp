#include "aml_dist/trace/trace.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "aml_dist/common/files.hpp"
#include "aml_dist/trace/agreement.hpp"
#include "aml_dist/trace/call_places.hpp"
#include "aml_dist/trace/live_step.hpp"
#include "aml_dist/trace/nccl_ras.hpp"
#include "aml_dist/trace/timeline_svg.hpp"
#include "aml_dist/trace/torch_dump.hpp"
#include "aml_dist/trace/trace_metrics.hpp"
#include "aml_dist/trace/trace_output.hpp"
#include "aml_dist/trace/trace_step.hpp"
#include "aml_dist/trace/waits_svg.hpp"
#include "base/net/own_network.hpp"
#include "base/os/environment.hpp"
#include "base/text/text.hpp"
#include "shared/exit_status.hpp"
#include "shared/json.hpp"
#include "shared/programs.hpp"
#include "shared/terminal.hpp"
#include "trace/diagnosis/call_words.hpp"
#include "trace/record/process_stack.hpp"

namespace amldist::tools {
namespace {

using commands::fail;

int list_steps(bool json) {
  const auto folders = list_step_folders();
  if (json) {
    std::fputs(commands::json_text({{"steps", folders}}).c_str(), stdout);
    return commands::exit_done;
  }
  for (const std::string& folder : folders) std::printf("%s\n", folder.c_str());
  if (folders.empty())
    std::fprintf(stderr,
                 "aml-dist: no flight recorder on this node: all steps ended well, or did not use libamldist\n");
  return commands::exit_done;
}

/// What was found under a name, with the stacks that its nodes sent if it is a live view.
struct Found {
  TracedStep step;
  std::optional<std::map<std::uint32_t, std::string>> stacks = std::nullopt;
  std::optional<RasAnswer> ras = std::nullopt;
  bool is_live = false;
};

Result<Found> found(Result<TracedStep> step) {
  return step ? Result<Found>(Found{std::move(*step)}) : Result<Found>(step.error());
}

/// A rank may have several recorders, one behind the other.
std::size_t count_ranks(const std::vector<trace::Recording>& recordings) {
  std::size_t ranks = 0;
  for (std::size_t i = 0; i < recordings.size(); ++i)
    ranks += i == 0 || recordings[i].rank != recordings[i - 1].rank ? 1U : 0U;
  return ranks;
}

/// A step's recorders on this node where they are all; else those of all its nodes, if it runs; else what is here.
Result<Found> read_step(const std::string& name, bool stacks) {
  const auto folder = find_step_folder(name);
  auto here = found(folder ? read_traced_step(*folder) : Result<TracedStep>(folder.error()));
  const bool is_whole = here && count_ranks(here->step.recordings) >= here->step.size();
  if (is_whole || !is_step_id(name) || !commands::find_program("squeue")) return here;
  auto live = read_live_step(name, stacks);
  if (live) return Found{std::move(live->step), std::move(live->stacks), std::move(live->ras), true};
  const bool runs = live.error().code != Errc::not_found;
  return !here && runs ? Result<Found>(live.error()) : std::move(here);
}

/// Dumps that lie beside a step's recorders: PyTorch's flight recorder puts them where TORCH_FR_DUMP_TEMP_FILE says.
/// Nobody reads those of another user unasked.
std::vector<std::string> dumps_beside(const std::string& folder) {
  constexpr std::string_view digits = "0123456789";
  std::vector<std::string> files;
  struct stat about = {};
  if (::stat(folder.c_str(), &about) != 0 || about.st_uid != ::geteuid()) return files;
  std::error_code problem;
  for (const auto& entry : std::filesystem::directory_iterator(folder, problem)) {
    const std::string name = entry.path().filename();
    const auto stem = name.find_last_not_of(digits);
    const bool is_dump =
        stem != std::string::npos && stem + 1 < name.size() && name.substr(0, stem + 1).ends_with("rank_");
    if (is_dump && entry.is_regular_file(problem) && !entry.is_symlink(problem)) files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

/// `dumps`: those that the user has named, which must be readable.
Result<void> add_witnesses(TracedStep& step, std::vector<std::string> dumps, const std::optional<RasAnswer>& ras) {
  const bool are_named = !dumps.empty();
  if (!are_named) dumps = dumps_beside(step.folder);
  if (!dumps.empty()) {
    const auto read = read_torch_dumps(dumps);
    if (read) step.agreements.push_back(compare_dumps(step, *read));
    else if (are_named) return read.error();
    else step.problems.push_back(read.error().message);
  }
  if (ras && step.hang) step.agreements.push_back(compare_ras(step, *ras));
  return {};
}

/// A regular file is a dump of PyTorch: our own recorders are named by their folder. Dumps behind a step are a witness.
Result<Found> read_named(const TraceOptions& options) {
  std::error_code problem;
  const auto& names = options.steps;
  if (std::filesystem::is_regular_file(names.front(), problem)) return found(read_torch_dumps(names));
  auto read = read_step(names.front(), options.stacks);
  if (!read) return read;
  if (!read->is_live) add_places(read->step.recordings);
  if (!read->is_live && read->step.hang) read->ras = ask_nccl_ras(read->step.recordings, ras_patience);
  const auto added = add_witnesses(read->step, {names.begin() + 1, names.end()}, read->ras);
  return added ? std::move(read) : Result<Found>(added.error());
}

/// In a folder that all nodes see, process numbers of other machines mean other processes here.
void say_elsewhere(std::span<const std::uint32_t> ranks, const std::string& host) {
  std::fprintf(stderr,
               "aml-dist: no stacks of ranks %s: this is %s, and they are on other nodes (the first on %s); ask there, "
               "with srun --overlap\n",
               trace::compress_ranks(ranks).c_str(), own_host_name().c_str(), host.c_str());
}

/// One stack for each process; if it has several recorders, PyTorch's, which comes last, says most.
void print_stacks(const TracedStep& step) {
  constexpr std::chrono::milliseconds patience{2000};
  const auto& all = step.recordings;
  std::vector<std::uint32_t> elsewhere;
  elsewhere.reserve(all.size());
  std::string first_host;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i + 1 < all.size() && all[i + 1].rank == all[i].rank) continue;
    if (all[i].writer == trace::Writer::gone) continue;
    if (!is_here(all[i].host)) {
      if (elsewhere.empty()) first_host = all[i].host;
      elsewhere.push_back(all[i].rank);
      continue;
    }
    trace::Recording recording = all[i];
    recording.path = text::concat({step.folder, "/", recording.path});
    const std::string stack = trace::stack_of(recording, patience);
    if (!stack.empty()) std::printf("\nrank %u on %s:\n%s", recording.rank, recording.host.c_str(), stack.c_str());
  }
  if (!elsewhere.empty()) say_elsewhere(elsewhere, first_host);
}

int show(const TraceOptions& options) {
  const bool json = options.json || options.format == "json";
  const bool metrics = !json && options.format == "openmetrics";
  const auto found = read_named(options);
  if (!found) return fail(found.error());
  const TracedStep& step = found->step;
  for (const std::string& problem : step.problems) std::fprintf(stderr, "aml-dist: %s\n", problem.c_str());
  if (!options.svg.empty()) {
    const auto written = write_file(options.svg, draw_timeline(step, options.last));
    if (!written) return fail(written.error());
  }
  if (!options.waits_svg.empty()) {
    const auto written = write_file(options.waits_svg, draw_waits(step));
    if (!written) return fail(written.error());
  }
  if (!options.export_folder.empty()) {
    const auto written = write_torch_dumps(step, options.export_folder);
    if (!written) return fail(written.error());
  }
  const std::string text = json ? to_json(step, options.last) : metrics ? to_metrics(step) : to_table(step);
  std::fputs(text.c_str(), stdout);
  if (options.stacks && found->stacks) std::fputs(merged_stacks(*found->stacks).c_str(), stdout);
  else if (options.stacks) print_stacks(step);
  return commands::exit_done;
}

}  // namespace

int trace(const TraceOptions& options) {
  const bool json = options.json || options.format == "json";
  if (options.steps.empty() && !json && options.format == "openmetrics") {
    return fail(
        Error{Errc::invalid_argument, "--format openmetrics needs a step (JOBID.STEP): aml-dist trace lists them"});
  }
  if (options.steps.empty()) return list_steps(json);
  if (options.states) return print_own_states(options.steps.front(), options.stacks);
  for (;;) {
    if (options.watch != 0 && commands::wants_colour(STDOUT_FILENO)) std::fputs("\x1b[H\x1b[J", stdout);
    const int status = show(options);
    std::fflush(stdout);
    if (options.watch == 0 || status != commands::exit_done) return status;
    std::this_thread::sleep_for(std::chrono::seconds(options.watch));
  }
}

}  // namespace amldist::tools
