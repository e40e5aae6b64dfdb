#include "aml_run/command/run_answers.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "aml_run/follow.hpp"
#include "aml_run/report.hpp"
#include "aml_run/runs/copy_results.hpp"
#include "aml_run/runs/follow_run.hpp"
#include "aml_run/runs/run_view.hpp"
#include "aml_run/runs/submit_run.hpp"
#include "aml_run/slurm_job.hpp"
#include "aml_run/sweep/sweep_view.hpp"
#include "base/text/text.hpp"
#include "shared/exit_status.hpp"
#include "shared/programs.hpp"
#include "shared/terminal.hpp"

namespace amldist::run {
namespace {

using commands::fail;
using commands::print;
using commands::say;
using text::concat;

bool is_number(std::string_view text) { return text::to_number(text, UINT32_MAX).has_value(); }

/// Errors of Slurm's own have a status of their own.
int fail_for_slurm(const Error& error) {
  return error.code == Errc::unavailable ? commands::fail_without_slurm(error.message) : fail(error);
}

Result<SweepResults> results_of(const Run& run, const RunState& state) {
  return read_results(run.folder, state.jobs.front().trials);
}

int write_svg(const CommandLine& line, const Run& run, const RunState& state) {
  if (line.svg.empty()) return commands::exit_done;
  std::string picture;
  if (run.kind == "sweep") {
    const auto results = results_of(run, state);
    if (!results) return fail(results.error());
    picture = sweep_to_svg(run, *results);
  } else {
    picture = run_to_svg(run, state);
  }
  const auto done = replace_file(line.svg, picture);
  return done ? static_cast<int>(commands::exit_done) : fail(done.error());
}

int show_state(const CommandLine& line, const Run& run, const RunState& state) {
  if (const int status = write_svg(line, run, state); status != 0) return status;
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

int list_runs(const CommandLine& line) {
  auto json = nlohmann::ordered_json::array();
  std::string out;
  for (const Run& run : all_runs()) {
    const auto state = ask_run(run);
    const std::string word = state ? word_for(*state) : std::string("unknown");
    json.push_back(
        {{"run", run.name}, {"kind", run.kind}, {"state", word}, {"jobs", run.jobs.size()}, {"source", run.source}});
    out += concat(
        {run.name, "  ", run.kind, "  ", word, "  ", text::count(run.jobs.size(), "job"), "  ", run.source, "\n"});
  }
  if (line.json) return print(json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
  if (out.empty()) {
    say(concat({"there are no runs in ", runs_folder()}));
    return commands::exit_done;
  }
  return print(out);
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

/// scancel says nothing of a job that has ended or never was.
int cancel_job(const CommandLine& line) {
  const auto state = ask(line.run);
  if (!state) return fail_for_slurm(state.error());
  const auto done = cancel(line.run);
  if (!done) return fail_for_slurm(done.error());
  if (state->ended()) return say_ended_before(concat({"job ", line.run}), text::to_lower(state->state));
  say(concat({"cancelled job ", line.run}));
  return commands::exit_done;
}

int cancel_whole_run(const Run& run) {
  const auto state = ask_run(run);
  if (state && state->ended()) return say_ended_before(concat({"the run ", run.name}), word_for(*state));
  const auto done = cancel_run(run, "cancelled");
  if (!done) return fail_for_slurm(done.error());
  say(concat({"cancelled the run ", run.name}));
  return commands::exit_done;
}

/// A job that belongs to no run.
int answer_about_job(const CommandLine& line) {
  if (line.run_verb == "cancel") return cancel_job(line);
  if (line.run_verb == "resume") {
    return fail({Errc::invalid_argument, concat({"job ", line.run, " belongs to no run: submit its job file again"})});
  }
  if (line.run_verb == "stream") {
    const auto followed = follow(line.run, concat({".aml-run-", line.run}), line.json);
    if (!followed) return fail_for_slurm(followed.error());
    if (!followed->detached) say_end(line.run, *followed);
    return followed->detached ? static_cast<int>(commands::exit_done) : exit_status_of(*followed);
  }
  const auto state = ask(line.run);
  if (!state) return fail_for_slurm(state.error());
  if (line.run_verb == "download") return say_copied(copy_job_results(line.run, *state, line.download_path));
  if (!line.json) {
    return print(concat({"job ", line.run, ": ", text::to_lower(state->state), state->nodes.empty() ? "" : " on ",
                         state->nodes, state->output.empty() ? "" : "; output: ", state->output, "\n"}));
  }
  const nlohmann::ordered_json json = {
      {"job_id", line.run},
      {"state", state->state},
      {"reason", state->reason},
      {"nodes", state->nodes},
      {"output", state->output},
      {"exit_status", state->ended() ? nlohmann::ordered_json(exit_status_of(*state)) : nlohmann::ordered_json()}};
  return print(json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

int resume(const CommandLine& line, Run run) {
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
  return line.wait ? wait_for_run(line, run) : show_run(line, run, line.json);
}

}  // namespace

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
  if (run.kind == "sweep" || line.json || !line.svg.empty()) {
    if (const int status = show_state(line, run, followed->state); status != 0) return status;
  }
  return exit_status_of(run, followed->state);
}

int show_run(const CommandLine& line, const Run& run, bool print_it) {
  if (!print_it && line.svg.empty()) return commands::exit_done;
  const auto state = ask_run(run);
  if (!state) return fail_for_slurm(state.error());
  if (print_it) return show_state(line, run, *state);
  return write_svg(line, run, *state);
}

int answer_about_runs(const CommandLine& line) {
  if (line.list) return list_runs(line);
  auto run = open_run(line.run);
  if (!run)
    return run.error().code == Errc::not_found && is_number(line.run) ? answer_about_job(line) : fail(run.error());
  if (line.run_verb == "resume") return resume(line, std::move(*run));
  if (line.run_verb == "stream") return wait_for_run(line, *run);
  if (line.run_verb == "show") return show_run(line, *run, true);
  if (line.run_verb == "download") return say_copied(copy_run_results(*run, line.download_path));
  return cancel_whole_run(*run);
}

}  // namespace amldist::run
