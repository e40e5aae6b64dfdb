#include "aml_run/command/run_answers.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "aml_run/follow.hpp"
#include "aml_run/owned_folder.hpp"
#include "aml_run/report.hpp"
#include "aml_run/runs/copy_results.hpp"
#include "aml_run/runs/follow_run.hpp"
#include "aml_run/runs/run_view.hpp"
#include "aml_run/runs/submit_run.hpp"
#include "aml_run/slurm_job.hpp"
#include "aml_run/sweep/sweep_view.hpp"
#include "base/text/text.hpp"
#include "shared/exit_status.hpp"
#include "shared/json.hpp"
#include "shared/programs.hpp"
#include "shared/terminal.hpp"
#include "step/messages/job_record.hpp"

namespace amldist::run {
namespace {

using commands::fail;
using commands::print;
using commands::say;
using text::concat;

/// Errors of Slurm's own have a status of their own.
int fail_for_slurm(const Error& error) {
  return error.code == Errc::unavailable ? commands::fail_without_slurm(error.message) : fail(error);
}

Result<SweepResults> results_of(const Run& run, const RunState& state) {
  return read_results(run.folder, state.jobs.front().trials);
}

int show_state(const CommandLine& line, const Run& run, const RunState& state) {
  if (run.kind == "sweep") {
    const auto results = results_of(run, state);
    if (!results) return fail(results.error());
    if (line.json) return print(sweep_to_json(run, state, *results));
    std::string table = concat({run.name, ": ", word_for(state), "\n"});
    for (const std::string& each : draw_sweep(*results, commands::wants_colour(STDOUT_FILENO), false))
      table += each + "\n";
    return print(table);
  }
  if (line.json) return print(run_to_json(run, state));
  std::string out = concat({run.name, ": ", word_for(state), "\n"});
  for (const std::string& each : draw_run(run, state, commands::wants_colour(STDOUT_FILENO))) out += each + "\n";
  return print(out);
}

void say_end_of(const Run& run, const RunState& state) {
  const std::string word = word_for(state);
  if (word == "completed") {
    say(concat({"the run ", run.name, " completed"}), commands::Tone::good);
    return;
  }
  std::string which;
  for (std::size_t i = 0; i < run.jobs.size() && which.empty(); ++i) {
    const WorkState& work = state.jobs[i].whole;
    if (work.ended() && !work.good() && work.state != "CANCELLED" && work.state != "STOPPED") {
      which =
          concat({": ", run.jobs[i].name, " ended as ", work.state, ", exit status ", std::to_string(work.exit_status),
                  "; its output: ", run.folder, "/logs/", run.jobs[i].name, ".out"});
    }
  }
  say(concat({"the run ", run.name, " ", word == "failed" ? "failed" : "was cancelled", which, "; aml-run --resume ",
              run.name, " runs what is left"}),
      commands::Tone::bad);
}

int say_copied(const Result<std::string>& folder) {
  if (!folder) return fail(folder.error());
  say(concat({"copied to ", *folder}));
  return commands::exit_done;
}

int say_ended_before(std::string_view what, std::string_view state) {
  say(concat({what, " has ended (", state, "): there is nothing to cancel"}));
  return commands::exit_skipped;
}

/// Of a job that Slurm has forgotten where there is no accounting: what its record and its files in this folder say.
Result<JobState> ask_or_find(const std::string& id) {
  auto state = ask(id);
  if (state || state.error().code != Errc::not_found) return state;
  std::error_code ignored;
  const std::filesystem::path here = std::filesystem::current_path(ignored);
  const auto text = read_own_file(concat({".aml-run-", id}), step::longest_job_record);
  const auto record = text ? step::JobRecord::parse(*text) : std::nullopt;
  const auto log = here / concat({"slurm-", id, ".out"});
  const bool has_log = std::filesystem::exists(log, ignored);
  if (!record && !has_log && !std::filesystem::exists(here / "outputs" / id, ignored)) return state;
  JobState found;
  const bool is_known = record && record->ended;
  found.state = !is_known ? "ENDED" : *record->ended == 0 ? "COMPLETED" : "FAILED";
  found.exit_status = is_known ? *record->ended : 0;
  if (has_log) found.output = log.string();
  found.folder = here.string();
  return found;
}

/// scancel is silent about a job that has ended or never existed.
int cancel_job(const CommandLine& line) {
  const auto state = ask(line.id);
  if (!state) return fail_for_slurm(state.error());
  if (auto status = cancel(line.id); !status) return fail_for_slurm(status.error());
  if (state->ended()) return say_ended_before(concat({"job ", line.id}), text::to_lower(state->state));
  if (state->tasks.empty()) say(concat({"cancelled job ", line.id}));
  else say(concat({"cancelled the array ", line.id, ", all its tasks (one alone: --cancel ", line.id, "_TASK)"}));
  return commands::exit_done;
}

int cancel_whole_run(const CommandLine& /*line*/, const Run& run) {
  const auto state = ask_run(run);
  if (state && state->ended()) return say_ended_before(concat({"the run ", run.name}), word_for(*state));
  if (auto status = cancel_run(run, "cancelled"); !status) return fail_for_slurm(status.error());
  say(concat({"cancelled the run ", run.name}));
  return commands::exit_done;
}

int refuse_to_resume(const CommandLine& line) {
  return fail({Errc::invalid_argument, concat({"job ", line.id, " belongs to no run: submit its job file again"})});
}

int stream_job(const CommandLine& line) {
  const auto followed = follow(line.id, concat({".aml-run-", line.id}), line.json);
  if (!followed) return fail_for_slurm(followed.error());
  if (!followed->detached) say_end(line.id, *followed);
  return followed->detached ? static_cast<int>(commands::exit_done) : exit_status_of(*followed);
}

int download_job(const CommandLine& line) {
  const auto state = ask_or_find(line.id);
  if (!state) return fail_for_slurm(state.error());
  return say_copied(copy_job_results(line.id, *state, line.download_path));
}

int show_job(const CommandLine& line) {
  const auto state = ask_or_find(line.id);
  if (!state) return fail_for_slurm(state.error());
  if (!line.json && !state->tasks.empty()) {
    std::string out = concat({"array ", line.id, ":\n"});
    for (const auto& [task, word] : state->tasks) out += concat({"  ", task, ": ", text::to_lower(word), "\n"});
    return print(out);
  }
  if (!line.json) {
    return print(concat({"job ", line.id, ": ", text::to_lower(state->state), state->nodes.empty() ? "" : " on ",
                         state->nodes, state->output.empty() ? "" : "; output: ", state->output, "\n"}));
  }
  nlohmann::ordered_json json = {
      {"job_id", line.id},
      {"state", state->state},
      {"reason", state->reason},
      {"nodes", state->nodes},
      {"output", state->output},
      {"exit_status", state->ended() ? nlohmann::ordered_json(exit_status_of(*state)) : nlohmann::ordered_json()}};
  for (const auto& [task, word] : state->tasks) json["tasks"].push_back({{"job_id", task}, {"state", word}});
  return print(commands::json_text(json));
}

int resume_run(const CommandLine& line, const Run& named) {
  Run run = named;
  const auto state = ask_run(run);
  if (!state) return fail_for_slurm(state.error());
  if (!state->ended()) {
    return fail({Errc::invalid_argument, concat({"the run ", run.name, " has not ended: wait with --stream ", run.name,
                                                 ", or end it with --cancel ", run.name})});
  }
  std::map<std::string, Share> wanted;
  for (std::size_t i = 0; i < run.jobs.size(); ++i) {
    const RunJob& job = run.jobs[i];
    Share share;
    share.whole = job.trials == 0;
    for (std::uint32_t trial = 1; trial <= job.trials; ++trial) {
      const WorkState& work = state->jobs[i].trials[trial - 1];
      if (!work.good() && work.state != "TERMINATED") share.trials.push_back(trial);
    }
    const bool again = std::ranges::any_of(job.needs, [&](const std::string& need) { return wanted.contains(need); });
    const bool unfinished = share.whole ? again || !state->jobs[i].whole.good() : !share.trials.empty();
    if (unfinished) wanted.emplace(job.name, share);
  }
  if (wanted.empty()) {
    say(concat({"every job of ", run.name, " has ended well: there is nothing to run again"}));
    return commands::exit_skipped;
  }
  clear_stopped(run);
  if (const auto refusal = submit_run(run, wanted)) {
    say(refusal->message, commands::Tone::bad);
    return refusal->status;
  }
  std::vector<std::string_view> names;
  names.reserve(wanted.size());
  for (const auto& [name, share] : wanted) names.emplace_back(name);
  say(concat({"submitted again of ", run.name, ": ", text::join(names)}));
  if (line.wait) return wait_for_run(line, run);
  return line.json ? show_run(line, run) : static_cast<int>(commands::exit_done);
}

int copy_run(const CommandLine& line, const Run& run) { return say_copied(copy_run_results(run, line.download_path)); }

/// Answers for a run, or for a job that belongs to no run.
int answer_about(const CommandLine& line, int (*about_run)(const CommandLine&, const Run&),
                 int (*about_job)(const CommandLine&)) {
  const auto run = open_run(line.id);
  if (run) return about_run(line, *run);
  const auto parts = text::split(line.id, '_');  // 6, or a task of an array: 6_3
  const bool is_id = parts.size() <= 2 && std::ranges::all_of(parts, [](std::string_view part) {
                       return text::to_number(part, UINT32_MAX).has_value();
                     });
  const bool is_job = run.error().code == Errc::not_found && is_id;
  return is_job ? about_job(line) : fail(run.error());
}

}  // namespace

int list_runs(const CommandLine& line) {
  auto json = nlohmann::ordered_json::array();
  std::string out;
  const auto runs = all_runs();
  if (!runs) return fail(runs.error());
  for (const Run& run : *runs) {
    const auto state = ask_run(run);
    const std::string word = state ? word_for(*state) : std::string("unknown");
    json.push_back(
        {{"run", run.name}, {"kind", run.kind}, {"state", word}, {"jobs", run.jobs.size()}, {"source", run.source}});
    out += concat(
        {run.name, "  ", run.kind, "  ", word, "  ", text::count(run.jobs.size(), "job"), "  ", run.source, "\n"});
  }
  if (line.json) return print(commands::json_text(json));
  if (out.empty()) {
    say(concat({"there are no runs in ", runs_folder()}));
    return commands::exit_done;
  }
  return print(out);
}

int wait_for_run(const CommandLine& line, const Run& run) {
  const bool terminal = ::isatty(STDERR_FILENO) == 1;
  const auto followed = follow_run(run, [&](const RunState& state, bool colour) {
    if (run.kind != "sweep") return draw_run(run, state, colour);
    const auto results = results_of(run, state);
    if (!results) return std::vector<std::string>{results.error().message};
    return terminal ? draw_sweep(*results, colour, true) : std::vector<std::string>{summary_of(*results)};
  });
  if (!followed) return fail_for_slurm(followed.error());
  if (followed->detached) return commands::exit_done;
  if (run.kind != "sweep") say_end_of(run, followed->state);
  else if (const auto results = results_of(run, followed->state))
    say(concat({run.name, ": ", summary_of(*results)}),
        followed->state.good() ? commands::Tone::good : commands::Tone::bad);
  if (run.kind == "sweep" || line.json) {
    if (const int status = show_state(line, run, followed->state); status != 0) return status;
  }
  return exit_status_of(run, followed->state);
}

int show_run(const CommandLine& line, const Run& run) {
  const auto state = ask_run(run);
  return state ? show_state(line, run, *state) : fail_for_slurm(state.error());
}

int answer_show(const CommandLine& line) { return answer_about(line, show_run, show_job); }
int answer_cancel(const CommandLine& line) { return answer_about(line, cancel_whole_run, cancel_job); }
int answer_resume(const CommandLine& line) { return answer_about(line, resume_run, refuse_to_resume); }
int answer_stream(const CommandLine& line) { return answer_about(line, wait_for_run, stream_job); }
int answer_download(const CommandLine& line) { return answer_about(line, copy_run, download_job); }

}  // namespace amldist::run
