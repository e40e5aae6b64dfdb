// `aml-dist stop`: asks the ranks of a step with the key stop= to stop, now.
//
// A small step on the nodes of the job makes the stop files, with the user's rights and by Slurm's own means; a signal
// that the step was started with is sent by scancel.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "aml_dist/command.hpp"
#include "aml_dist/common/side_step.hpp"
#include "base/text/text.hpp"
#include "shared/exit_status.hpp"
#include "shared/programs.hpp"
#include "shared/terminal.hpp"
#include "step/messages/stop_files.hpp"

namespace amldist::tools {
namespace {

using text::concat;

constexpr std::string_view node_line = "aml-dist-stop ";
constexpr std::uint64_t most_number = 4'000'000'000;

struct StopOptions {
  std::string target;
  bool here = false;
};

/// A failure with the exit status that it leads to.
struct Failure {
  int status = commands::exit_failed;
  std::string sentence;
};

/// "12", "12_3" or "12+1", and the step.
struct Target {
  std::string job;
  std::optional<std::string> step;

  static std::optional<Target> parse(std::string_view word) {
    const auto dot = word.find('.');
    const std::string_view job = word.substr(0, dot);
    const auto mark = std::min(job.find_first_of("_+"), job.size());
    if (!text::to_number(job.substr(0, mark), most_number)) return std::nullopt;
    if (mark < job.size() && !text::to_number(job.substr(mark + 1), most_number)) return std::nullopt;
    if (dot == std::string_view::npos) return Target{std::string(job), std::nullopt};
    const std::string_view step = word.substr(dot + 1);
    if (!text::to_number(step, most_number)) return std::nullopt;
    return Target{std::string(job), std::string(step)};
  }
};

struct RunningSteps {
  std::string job;                           ///< its number, also of an array's task
  std::map<std::string, std::string> nodes;  ///< host list by step
};

/// Lines of squeue's answer, in fields.
std::vector<std::vector<std::string>> rows_of(const std::string& text) {
  std::vector<std::vector<std::string>> rows;
  for (const std::string_view line : text::split(text, '\n')) {
    if (line.empty()) continue;
    std::vector<std::string> fields;
    for (const std::string_view field : text::split(line, '|')) fields.emplace_back(field);
    rows.push_back(std::move(fields));
  }
  return rows;
}

Failure no_job(const Error& error) {
  const int status = error.code == Errc::not_found          ? commands::exit_not_found
                     : error.code == Errc::invalid_argument ? commands::exit_usage
                                                            : commands::exit_no_slurm;
  return {status, error.message};
}

std::optional<Failure> find_steps(const Target& target, RunningSteps& steps) {
  const auto job = find_job(target.job, target.step.has_value());
  if (!job) return no_job(job.error());
  if (text::to_number(job->user_id, most_number) != ::geteuid()) {
    return Failure{commands::exit_refused, concat({"job ", target.job, " belongs to ", text::quote(job->user),
                                                   ": only this user can ask its ranks to stop"})};
  }
  steps.job = job->number;
  auto running = running_steps(*job);
  if (!running) return Failure{commands::exit_no_slurm, running.error().message};
  steps.nodes = std::move(*running);
  if (target.step) std::erase_if(steps.nodes, [&](const auto& each) { return each.first != *target.step; });
  if (!steps.nodes.empty()) return std::nullopt;
  return Failure{commands::exit_not_found,
                 target.step ? concat({"job ", target.job, " has no step ", *target.step, " now: see squeue --steps"})
                             : concat({"job ", target.job, " has no step now: its script runs none with srun"})};
}

/// What the nodes of a step answered.
struct Answers {
  std::size_t nodes = 0;  ///< that have made their file
  int signal = 0;
};

std::optional<Failure> ask_nodes(const std::string& step, const std::string& hosts, Answers& answers) {
  const auto ran = run_beside(step, hosts, {"stop", "--here", step});
  if (!ran) return Failure{commands::exit_no_slurm, ran.error().message};
  bool has_answered = false;
  for (const auto& row : rows_of(ran->out)) {
    if (!row.front().starts_with(node_line)) continue;
    has_answered = true;
    const auto signal =
        text::to_number(std::string_view(row.front()).substr(node_line.size()), static_cast<std::uint64_t>(SIGRTMAX));
    if (!signal) continue;
    ++answers.nodes;
    answers.signal = static_cast<int>(*signal);
  }
  if (has_answered) return std::nullopt;
  return Failure{commands::exit_refused,
                 concat({"the nodes of step ", step, " cannot be asked: ", last_line_of(ran->err)})};
}

/// The ranks may be done before the signal comes.
bool has_ended(const std::string& error) {
  return error.find("Invalid job") != std::string::npos || error.find("already") != std::string::npos;
}

std::optional<Failure> stop_step(const std::string& step, const std::string& hosts, bool& has_stopped) {
  Answers answers;
  if (auto failure = ask_nodes(step, hosts, answers)) return failure;
  if (answers.nodes == 0) return std::nullopt;
  has_stopped = true;
  if (answers.signal != 0) {
    const auto sent = commands::run_program({"scancel", "--signal=" + std::to_string(answers.signal), step});
    if (!sent) return Failure{commands::exit_no_slurm, sent.error().message};
    if (sent->status != 0 && !has_ended(sent->err))
      return Failure{commands::exit_refused, concat({"step ", step, " got no signal: ", last_line_of(sent->err)})};
  }
  commands::say(concat({"step ", step, " is asked to stop on ", std::to_string(answers.nodes),
                        answers.nodes == 1 ? " node" : " nodes", ": by its stop file",
                        answers.signal != 0 ? concat({" and signal ", std::to_string(answers.signal)}) : ""}));
  return std::nullopt;
}

/// In the small step, on each node.
int stop_here(const std::string& step) {
  const auto files = step::StopFiles::of_step(step);
  const auto signal = files ? files->signal() : std::nullopt;
  const bool raised = signal && files->raise();
  return commands::print(concat({node_line, raised ? std::to_string(*signal) : "none", "\n"}));
}

int stop(const StopOptions& options) {
  const auto target = Target::parse(options.target);
  if (!target) {
    commands::say(
        concat({"stop: ", text::quote(options.target), " is not a job or a step: write JOBID or JOBID.STEP"}));
    return commands::exit_usage;
  }
  if (options.here) return stop_here(options.target);
  RunningSteps steps;
  std::optional<Failure> failure = find_steps(*target, steps);
  bool has_stopped = false;
  for (const auto& [step, hosts] : steps.nodes) {
    if (!failure) failure = stop_step(concat({steps.job, ".", step}), hosts, has_stopped);
  }
  if (!failure && !has_stopped) {
    failure = Failure{commands::exit_failed,
                      concat({options.target,
                              " was started without the key stop=: start it with --aml-dist=KIND,stop=60, "
                              "or signal it with scancel --signal"})};
  }
  if (!failure) return commands::exit_done;
  commands::say(concat({"stop: ", failure->sentence}));
  return failure->status;
}

}  // namespace

Command add_stop(CLI::App& app) {
  const auto shared = std::make_shared<StopOptions>();
  CLI::App* const command =
      app.add_subcommand("stop", "Ask the ranks of a step to save and end, all at the same point");
  command->footer(
      "Examples:\n"
      "  aml-dist stop 1234       all steps of the job that have the key stop=\n"
      "  aml-dist stop 1234.0\n"
      "\n"
      "Exit status: 0 asked, 1 no step has the key; others as in aml_dist(7).");
  command->add_option("step", shared->target, "a job's steps, or one step")->required()->type_name("JOBID[.STEP]");
  command->add_flag("--here", shared->here)->group("");
  return {command, [shared] { return stop(*shared); }};
}

}  // namespace amldist::tools
