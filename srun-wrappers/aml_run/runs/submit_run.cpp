#include "aml_run/runs/submit_run.hpp"

#include <algorithm>
#include <cstdio>

#include "base/os/environment.hpp"
#include "base/text/text.hpp"
#include "shared/exit_status.hpp"
#include "shared/programs.hpp"
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

std::optional<Refusal> submit_run(Run& run, const std::map<std::string, Share>& wanted) {
  for (RunJob& job : run.jobs) {
    if (!wanted.contains(job.name)) continue;
    auto answer = submit(job.script, sbatch_words(run, job, wanted));
    if (auto* const refusal = std::get_if<Refusal>(&answer)) {
      if (auto status = cancel_run(run, concat({job.name, " was refused"})); !status)
        commands::say(status.error().message);
      return std::move(*refusal);
    }
    const auto& submitted = std::get<Submitted>(answer);
    std::fwrite(submitted.messages.data(), 1, submitted.messages.size(), stderr);
    job.ids.push_back(submitted.id);
    if (const auto state = ask(submitted.id)) {
      if (const auto never = why_never(submitted.id, *state); !never.empty())
        commands::say(concat({job.name, ": ", never}), commands::Tone::bad);
    }
    if (auto status = save_run(run); !status) return Refusal{commands::exit_failed, status.error().message};
    // A first job may have failed before the last one was submitted.
    if (const auto why = why_stopped(run); !why.empty()) {
      if (auto status = cancel_run(run, why); !status) commands::say(status.error().message);
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

int may_start(const std::string& folder) {
  const auto run = open_run(folder);
  if (!run) return commands::fail(run.error());
  const auto why = why_stopped(*run);
  if (why.empty()) return commands::exit_done;
  commands::say(concat({"this job does not start, because the run ", run->name, " was stopped: ", why}));
  return commands::exit_failed;
}

int stop_run(const std::string& folder, const std::string& job) {
  const auto run = open_run(folder);
  if (!run) return commands::fail(run.error());
  if (!why_stopped(*run).empty()) return commands::exit_done;
  commands::say(concat({job, " failed, which ends the other jobs of ", run->name,
                        " (settings.continue_on_step_failure: true lets them go on)"}));
  const auto status = cancel_run(*run, concat({job, " failed"}), own_variable("SLURM_JOB_ID").value_or(""));
  return status ? static_cast<int>(commands::exit_done) : commands::fail(status.error());
}

}  // namespace amldist::run
