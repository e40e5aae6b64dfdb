#include "aml_run/runs/run_view.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/text/text.hpp"
#include "shared/json.hpp"

namespace amldist::run {
namespace {

using nlohmann::ordered_json;
using text::concat;

struct Style {
  std::string_view mark;
  std::string_view escape;
};

Style style_of(const WorkState& work) {
  if (work.good()) return {"✔", "\033[32m"};
  if (work.state == "RUNNING" || work.state == "COMPLETING") return {"▶", "\033[36m"};
  if (work.state == "CANCELLED" || work.state == "STOPPED") return {"⊘", "\033[2m"};
  if (work.ended()) return {"✘", "\033[31m"};
  return {"·", "\033[2m"};
}

std::string detail_of(const RunJob& job, const RunJobState& state) {
  const WorkState& work = state.whole;
  std::string out = text::to_lower(work.state);
  if (!work.ended() && work.state == "PENDING" && !work.reason.empty() && work.reason != "None") {
    out += concat({" (", work.reason, ")"});
  }
  if (work.state == "FAILED") out += concat({", exit status ", std::to_string(work.exit_status)});
  if (job.trials > 0) {
    const auto done = std::ranges::count_if(state.trials, [](const WorkState& trial) { return trial.ended(); });
    out += concat({", ", std::to_string(done), " of ", std::to_string(job.trials), " trials"});
  }
  if (!work.job_id.empty()) out += concat({"  job ", work.job_id});
  return out;
}

std::string padded(const std::string& text, std::size_t width) {
  return text + std::string(width > text.size() ? width - text.size() : 0, ' ');
}

/// The depth of a job: below all that it needs.
std::vector<std::size_t> columns_of(const Run& run) {
  std::vector<std::size_t> columns(run.jobs.size(), 0);
  for (std::size_t i = 0; i < run.jobs.size(); ++i) {
    for (std::size_t before = 0; before < i; ++before) {
      const auto& needs = run.jobs[i].needs;
      if (std::ranges::find(needs, run.jobs[before].name) != needs.end())
        columns[i] = std::max(columns[i], columns[before] + 1);
    }
  }
  return columns;
}

}  // namespace

std::vector<std::string> draw_run(const Run& run, const RunState& state, bool colour) {
  const auto columns = columns_of(run);
  std::size_t width = 0;
  for (std::size_t i = 0; i < run.jobs.size(); ++i) width = std::max(width, run.jobs[i].name.size() + 3 * columns[i]);
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < run.jobs.size(); ++i) {
    const RunJob& job = run.jobs[i];
    const Style style = style_of(state.jobs[i].whole);
    std::string indent;
    for (std::size_t column = 0; column < columns[i]; ++column) indent += column + 1 == columns[i] ? "└─ " : "   ";
    std::vector<std::string_view> needs(job.needs.begin(), job.needs.end());
    lines.push_back(concat({colour ? style.escape : "", style.mark, colour ? "\033[0m" : "", " ", indent,
                            padded(job.name, width - 3 * columns[i]), "  ", detail_of(job, state.jobs[i]),
                            needs.empty() ? "" : concat({"  after ", text::join(needs)})}));
  }
  return lines;
}

std::string word_for(const RunState& state) {
  const auto any = [&](auto wanted) {
    return std::ranges::any_of(state.jobs, [&](const RunJobState& job) { return wanted(job.whole); });
  };
  if (!state.ended()) {
    const bool runs = any([](const WorkState& work) { return work.state == "RUNNING" || work.good(); });
    return runs ? "running" : "waiting";
  }
  if (state.good()) return "completed";
  const bool failed = any([](const WorkState& work) {
    return work.ended() && !work.good() && work.state != "CANCELLED" && work.state != "STOPPED";
  });
  return failed ? "failed" : "cancelled";
}

std::string run_to_json(const Run& run, const RunState& state) {
  ordered_json out;
  out["run"] = run.name;
  out["kind"] = run.kind;
  out["state"] = word_for(state);
  out["exit_status"] = state.ended() ? ordered_json(exit_status_of(run, state)) : ordered_json();
  out["folder"] = run.folder;
  out["jobs"] = ordered_json::array();
  for (std::size_t i = 0; i < run.jobs.size(); ++i) {
    const WorkState& work = state.jobs[i].whole;
    ordered_json job = {{"name", run.jobs[i].name}, {"state", work.state}, {"needs", run.jobs[i].needs}};
    job["job_id"] = work.job_id.empty() ? ordered_json() : ordered_json(work.job_id);
    job["exit_status"] = work.ended() ? ordered_json(work.good() ? 0 : work.exit_status) : ordered_json();
    if (run.jobs[i].trials == 0) job["output"] = concat({run.folder, "/logs/", run.jobs[i].name, ".out"});
    if (run.jobs[i].trials > 0) {
      job["trials"] = ordered_json::array();
      for (const WorkState& trial : state.jobs[i].trials) job["trials"].push_back(trial.state);
    }
    out["jobs"].push_back(std::move(job));
  }
  return commands::json_text(out);
}

}  // namespace amldist::run
