#include "aml_run/sweep/trial_calls.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <thread>

#include "aml_run/owned_folder.hpp"
#include "aml_run/slurm_job.hpp"
#include "aml_run/sweep/metrics.hpp"
#include "aml_run/sweep/sweep_store.hpp"
#include "base/os/file_descriptor.hpp"
#include "base/text/text.hpp"
#include "shared/exit_status.hpp"
#include "shared/programs.hpp"
#include "shared/terminal.hpp"
#include "step/messages/job_record.hpp"

namespace amldist::run {
namespace {

namespace fs = std::filesystem;
using commands::fail;
using commands::say;
using text::concat;

constexpr std::chrono::seconds watch_interval{3};

/// Seconds since the sweep's first trial began, which this call may be the first to record.
std::uint64_t seconds_since_begin(const std::string& folder) {
  const std::string path = folder + "/began";
  const FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  struct stat info {};
  if (file || ::stat(path.c_str(), &info) != 0) return 0;
  const std::time_t now = std::time(nullptr);
  return now > info.st_mtime ? static_cast<std::uint64_t>(now - info.st_mtime) : 0;
}

bool is_over(const SweepRecord& record, const std::string& folder) {
  return record.timeout_seconds != 0 && seconds_since_begin(folder) >= record.timeout_seconds;
}

bool has_ended(const std::string& folder) {
  const auto text = commands::read_file(folder + "/record", step::longest_job_record);
  const auto record = text ? step::JobRecord::parse(*text) : std::nullopt;
  return record && record->ended;
}

/// Why the trial must end now; empty if it need not.
std::string judge(const SweepRecord& record, const std::string& folder, std::uint32_t number) {
  if (is_over(record, folder))
    return concat({"limits.timeout of the sweep, ", std::to_string(record.timeout_seconds), " s, has passed"});
  if (record.policy.kind == TerminationPolicy::Kind::none) return {};
  Series own;
  std::vector<Series> others;
  for (std::uint32_t each = 1; each <= record.trials.size(); ++each) {
    const std::string its = trial_folder(folder, each);
    Series series{read_trial_metrics(its, record.metric, record.pattern), each != number && has_ended(its)};
    if (each == number) own = std::move(series);
    else others.push_back(std::move(series));
  }
  return why_terminated(record.policy, record.maximize, own, others);
}

/// How a trial ended according to its folder; Slurm need not be asked.
WorkState recorded_state(const std::string& folder) {
  WorkState work;
  work.state = "UNKNOWN";
  if (::access((folder + "/terminated").c_str(), F_OK) == 0) {
    work.state = "TERMINATED";
    return work;
  }
  const auto text = commands::read_file(folder + "/record", step::longest_job_record);
  const auto record = text ? step::JobRecord::parse(*text) : std::nullopt;
  if (record && record->ended) work.state = *record->ended == 0 ? "COMPLETED" : "FAILED";
  return work;
}

/// Makes `to` a link to the best trial's output.
Result<void> publish(const std::string& from, const std::string& to) {
  std::error_code wrong;
  fs::create_directories(fs::path(to).parent_path(), wrong);
  const auto status = fs::symlink_status(to, wrong);
  if (fs::is_symlink(status) || fs::is_directory(status)) fs::remove(to, wrong);  // only removes an empty folder
  fs::create_symlink(from, to, wrong);
  if (wrong)
    return Error{Errc::unavailable,
                 concat({text::quote(to), " cannot be made a link to the best trial's output: ", wrong.message()})};
  return {};
}

}  // namespace

int begin_trial(const std::string& folder, std::uint32_t number) {
  const auto record = read_sweep_record(folder);
  if (!record) return fail(record.error());
  if (auto status = OwnedFolder::open(trial_folder(folder, number)); !status) return fail(status.error());
  std::error_code ignored;
  // Reports of an interrupted trial do not belong to this one.
  for (const char* const name : {"/metrics.jsonl", "/mlruns", "/terminated"})
    fs::remove_all(trial_folder(folder, number) + name, ignored);
  if (!is_over(*record, folder)) return commands::exit_done;
  say(concat({"trial ", std::to_string(number), " does not start: limits.timeout of the sweep, ",
              std::to_string(record->timeout_seconds), " s, has passed"}));
  return commands::exit_failed;
}

int watch_trial(const std::string& folder, std::uint32_t number, const std::string& job) {
  const auto record = read_sweep_record(folder);
  if (!record) return fail(record.error());
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);  // ends with the script
  for (;;) {
    std::this_thread::sleep_for(watch_interval);
    const std::string why = judge(*record, folder, number);
    if (why.empty()) continue;
    const auto own = OwnedFolder::open(trial_folder(folder, number));
    if (!own) return fail(own.error());
    if (auto status = own->write("terminated", why); !status) return fail(status.error());
    say(concat({"trial ", std::to_string(number), " is ended early: ", why}));
    const auto done = cancel(job);
    return done ? static_cast<int>(commands::exit_done) : fail(done.error());
  }
}

int finish_sweep(const std::string& folder) {
  const auto record = read_sweep_record(folder);
  if (!record) return fail(record.error());
  std::vector<WorkState> states;
  for (std::uint32_t number = 1; number <= record->trials.size(); ++number)
    states.push_back(recorded_state(trial_folder(folder, number)));
  const auto results = read_results(folder, states);
  if (!results) return fail(results.error());
  if (!results->best) {
    say(concat({"the sweep has no best trial: no trial that ended well has reported ", record->metric}),
        commands::Tone::bad);
    return commands::exit_failed;
  }
  const std::uint32_t number = results->trials[*results->best].number;
  for (const auto& [name, path] : record->outputs) {
    if (auto status = publish(concat({trial_folder(folder, number), "/", name}), path); !status)
      return fail(status.error());
  }
  say(concat({"the best trial is ", std::to_string(number)}));
  return commands::exit_done;
}

}  // namespace amldist::run
