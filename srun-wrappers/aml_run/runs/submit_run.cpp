#include "aml_run/runs/submit_run.hpp"

#include <algorithm>
#include <cstdio>

#include "base/os/environment.hpp"
#include "base/text/text.hpp"
#include "shared/exit_status.hpp"
#include "shared/programs.hpp"
#include "shared/shell.hpp"
#include "shared/terminal.hpp"

namespace amldist::run {
namespace {

using text::concat;

/// "1-3,7" of numbers in order.
std::string ranges_of(const std::vector<std::uint32_t>& numbers) {
  std::string out;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t end = i;
    while (end + 1 < numbers.size() && numbers[end + 1] == numbers[end] + 1) ++end;
    out += concat({out.empty() ? "" : ",", std::to_string(numbers[i]),
                   end > i ? concat({"-", std::to_string(numbers[end])}) : ""});
    i = end + 1;
  }
  return out;
}

std::string array_of(const RunJob& job, const Share& share) {
  const std::string numbers = share.whole ? concat({"1-", std::to_string(job.trials)}) : ranges_of(share.trials);
  return concat({"--array=", numbers, job.concurrent > 0 ? concat({"%", std::to_string(job.concurrent)}) : ""});
}

/// A dependency of the user's own, which sbatch's command line would hide.
std::string own_dependency(const RunJob& job) {
  constexpr std::string_view directive = "#SBATCH --dependency=";
  for (const std::string_view line : text::split(job.script, '\n')) {
    if (line.starts_with(directive)) return concat({",", line.substr(directive.size())});
  }
  return {};
}

std::vector<std::string> sbatch_words(const Run& run, const RunJob& job, const std::map<std::string, Share>& wanted) {
  std::vector<std::string> words = {"sbatch", "--parsable"};
  std::string ids;
  for (const std::string& need : job.needs) {
    const RunJob* const before = run.find(need);
    if (before != nullptr && wanted.contains(need) && !before->ids.empty()) ids += concat({":", before->ids.back()});
  }
  if (!ids.empty()) {
    words.push_back(concat({"--dependency=", job.after_any_end ? "afterany" : "afterok", ids, own_dependency(job)}));
    words.emplace_back("--kill-on-invalid-dep=yes");
  }
  if (job.trials > 0) words.push_back(array_of(job, wanted.at(job.name)));
  return words;
}

}  // namespace

void place_in_run(const Run& run, const std::string& job_name, Plan& plan) {
  const std::string tool = shell::quote(commands::sibling_program("aml-run"));
  const std::string folder = shell::quote(run.folder);
  plan.record = concat({run.folder, "/state/", job_name});
  plan.record_variable.clear();
  if (!plan.job.has("output"))
    plan.job.set("output", concat({shell::without_patterns(run.folder), "/logs/", job_name, ".out"}));
  plan.first_lines.push_back(concat({tool, " --may-start ", folder, " || exit"}));
  if (!run.continue_on_failure) {
    plan.first_lines.emplace_back("# A job that fails ends the run.");
    plan.first_lines.push_back(concat({"trap 'job_end=$?; ((job_end == 0)) || ", tool, " --stop-run \"$run_folder\" ",
                                       shell::quote(job_name), "' EXIT"}));
    plan.first_lines.insert(plan.first_lines.begin(), concat({"run_folder=", folder}));
  }
}

std::optional<Refusal> submit_run(Run& run, const std::map<std::string, Share>& wanted) {
  for (RunJob& job : run.jobs) {
    if (!wanted.contains(job.name)) continue;
    auto answer = submit(job.script, sbatch_words(run, job, wanted));
    if (auto* const refusal = std::get_if<Refusal>(&answer)) {
      if (auto done = cancel_run(run, concat({job.name, " was refused"})); !done) commands::say(done.error().message);
      return std::move(*refusal);
    }
    const auto& submitted = std::get<Submitted>(answer);
    std::fwrite(submitted.messages.data(), 1, submitted.messages.size(), stderr);
    job.ids.push_back(submitted.id);
    if (const auto state = ask(submitted.id)) {
      if (const auto never = why_never(submitted.id, *state); !never.empty())
        commands::say(concat({job.name, ": ", never}), commands::Tone::bad);
    }
    if (auto saved = save_run(run); !saved) return Refusal{commands::exit_failed, saved.error().message};
    // A first job may have failed before the last one was submitted.
    if (const auto why = why_stopped(run); !why.empty()) {
      if (auto done = cancel_run(run, why); !done) commands::say(done.error().message);
      return std::nullopt;
    }
  }
  return std::nullopt;
}

Result<void> cancel_run(const Run& run, std::string_view why, std::string_view except) {
  mark_stopped(run, why);
  std::vector<std::string> words = {"scancel", "--quiet"};
  for (const RunJob& job : run.jobs) {
    if (!job.ids.empty() && job.ids.back() != except) words.push_back(job.ids.back());
  }
  if (words.size() == 2) return {};
  const auto done = commands::run_program(words);
  if (!done) return done.error();
  if (done->status == 0 || done->err.find("already") != std::string::npos ||
      done->err.find("Invalid job id") != std::string::npos) {
    return {};
  }
  return Error{Errc::unavailable, concat({"the jobs of ", run.name, " cannot be cancelled: ", text::trim(done->err)})};
}

std::optional<int> run_verb(const std::vector<std::string>& words) {
  if (words.size() < 2 || (words[0] != "--stop-run" && words[0] != "--may-start")) return std::nullopt;
  const auto run = open_run(words[1]);
  if (!run) return commands::fail(run.error());
  if (words[0] == "--may-start") {
    const auto why = why_stopped(*run);
    if (why.empty()) return commands::exit_done;
    commands::say(concat({"this job does not start, since the run ", run->name, " was stopped: ", why}));
    return commands::exit_failed;
  }
  const std::string job = words.size() > 2 ? words[2] : std::string("a job");
  if (!why_stopped(*run).empty()) return commands::exit_done;
  commands::say(concat({job, " failed, which ends the other jobs of ", run->name,
                        " (settings.continue_on_step_failure: true lets them go on)"}));
  const auto done = cancel_run(*run, concat({job, " failed"}), own_variable("SLURM_JOB_ID").value_or(""));
  return done ? static_cast<int>(commands::exit_done) : commands::fail(done.error());
}

}  // namespace amldist::run
