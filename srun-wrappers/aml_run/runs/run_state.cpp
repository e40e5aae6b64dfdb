#include "aml_run/runs/run_state.hpp"

#include <unistd.h>

#include <algorithm>
#include <optional>

#include "aml_run/slurm_job.hpp"
#include "base/text/text.hpp"
#include "shared/exit_status.hpp"
#include "shared/programs.hpp"
#include "step/messages/job_record.hpp"

namespace amldist::run {
namespace {

using text::concat;

using Queue = std::map<std::string, WorkState, std::less<>>;

/// "17_3|RUNNING|None|node1|0:0"
std::optional<WorkState> read_line(std::string_view line) {
  const auto fields = text::split(line, '|');
  if (fields.size() < 4) return std::nullopt;
  WorkState work;
  work.job_id = std::string(text::trim(fields[0]));
  work.state = std::string(text::trim(fields[1]));
  work.reason = std::string(text::trim(fields[2]));
  work.nodes = std::string(text::trim(fields[3]));
  return work;
}

Result<Queue> read_queue(const Run& run) {
  std::string ids;
  for (const RunJob& job : run.jobs) {
    for (const std::string& id : job.ids) ids += concat({ids.empty() ? "" : ",", id});
  }
  Queue queue;
  if (ids.empty()) return queue;
  const auto done = commands::run_program({"squeue", "-h", "-r", "-t", "all", "-o", "%i|%T|%r|%N", "-j", ids});
  if (!done) return done.error();
  if (done->status != 0 && done->err.find("Invalid job id") == std::string::npos) {
    return Error{Errc::unavailable, concat({"Slurm does not answer: ", text::trim(done->err)})};
  }
  for (const std::string_view line : text::split(done->out, '\n')) {
    if (auto work = read_line(line)) queue.insert_or_assign(work->job_id, *work);
  }
  return queue;
}

/// The record written by a job's script.
std::optional<step::JobRecord> read_record(const std::string& path) {
  const auto text = commands::read_file(path, step::longest_job_record);
  return text ? step::JobRecord::parse(*text) : std::nullopt;
}

/// Adds the record's information: how a job ended, if Slurm has forgotten it, and with which status.
WorkState complete(WorkState work, const std::string& record_path) {
  const bool needs_record = work.state.empty() || work.state == "FAILED";
  const auto record = needs_record ? read_record(record_path) : std::nullopt;
  if (work.state.empty()) {
    if (record && record->ended) work.state = *record->ended == 0 ? "COMPLETED" : "FAILED";
    else if (auto told = work.job_id.empty() ? Result<JobState>(Error{Errc::not_found, ""}) : ask(work.job_id)) {
      work.state = told->state;
      work.exit_status = exit_status_of(*told);
    } else {
      work.state = "UNKNOWN";
    }
  }
  if (work.state == "FAILED") {
    work.exit_status = commands::exit_failed;
    if (record && record->first_failure && record->first_failure->status != 0)
      work.exit_status = record->first_failure->status;
    else if (record && record->ended && *record->ended != 0) work.exit_status = *record->ended;
  } else if (work.ended() && !work.good() && work.exit_status == 0) {
    JobState state;
    state.state = work.state;
    work.exit_status = exit_status_of(state);
  }
  return work;
}

WorkState not_submitted(const Run& run) {
  WorkState work;
  work.state = why_stopped(run).empty() ? "WAITING" : "STOPPED";
  work.exit_status = commands::exit_failed;
  return work;
}

WorkState find_work(const Queue& queue, const std::string& id) {
  const auto found = queue.find(id);
  if (found != queue.end()) return found->second;
  WorkState work;
  work.job_id = id;
  return work;
}

/// The last submission that includes this trial; one that Slurm has forgotten may have included any.
WorkState find_trial(const Queue& queue, const RunJob& job, std::uint32_t number) {
  for (auto id = job.ids.rbegin(); id != job.ids.rend(); ++id) {
    const auto found = queue.find(concat({*id, "_", std::to_string(number)}));
    if (found != queue.end()) return found->second;
  }
  WorkState work;
  work.job_id = concat({job.ids.back(), "_", std::to_string(number)});
  return work;
}

/// The state of all trials together: that of the least advanced; when all ended, that of the first that did not end
/// well.
WorkState together(const std::vector<WorkState>& trials) {
  for (const std::string_view state : {"RUNNING", "COMPLETING", "CONFIGURING"}) {
    const auto found = std::ranges::find(trials, state, &WorkState::state);
    if (found != trials.end()) return *found;
  }
  const auto open = std::ranges::find_if(trials, [](const WorkState& trial) { return !trial.ended(); });
  if (open != trials.end()) return *open;
  const auto bad = std::ranges::find_if(trials, [](const WorkState& trial) { return !trial.good(); });
  return bad != trials.end() ? *bad : trials.front();
}

RunJobState state_of(const Run& run, const RunJob& job, const Queue& queue) {
  RunJobState out;
  if (job.ids.empty()) {
    out.whole = not_submitted(run);
    out.trials.resize(job.trials, out.whole);
    return out;
  }
  for (std::uint32_t number = 1; number <= job.trials; ++number) {
    const std::string folder = concat({sweep_folder_of(run, job), "/trials/", std::to_string(number)});
    out.trials.push_back(complete(find_trial(queue, job, number), folder + "/record"));
    WorkState& trial = out.trials.back();
    if (trial.ended() && !trial.good() && ::access((folder + "/terminated").c_str(), F_OK) == 0)
      trial.state = "TERMINATED";
  }
  out.whole = job.trials > 0 ? together(out.trials)
                             : complete(find_work(queue, job.ids.back()), concat({run.folder, "/state/", job.name}));
  if (job.trials > 0) out.whole.job_id = job.ids.back();
  return out;
}

}  // namespace

bool WorkState::ended() const {
  JobState slurm;
  slurm.state = state;
  return slurm.ended() || state == "STOPPED" || state == "UNKNOWN" || state == "TERMINATED";
}

bool RunState::ended() const {
  return std::ranges::all_of(jobs, [](const RunJobState& job) {
    return job.whole.ended() && std::ranges::all_of(job.trials, [](const WorkState& trial) { return trial.ended(); });
  });
}

bool RunState::good() const {
  return std::ranges::all_of(jobs, [](const RunJobState& job) {
    return job.trials.empty() ? job.whole.good()
                              : std::ranges::any_of(job.trials, [](const WorkState& trial) { return trial.good(); });
  });
}

Result<RunState> ask_run(const Run& run) {
  const auto queue = read_queue(run);
  if (!queue) return queue.error();
  RunState out;
  for (const RunJob& job : run.jobs) out.jobs.push_back(state_of(run, job, *queue));
  return out;
}

int exit_status_of(const Run& run, const RunState& state) {
  int cancelled = commands::exit_done;
  for (std::size_t i = 0; i < run.jobs.size(); ++i) {
    const RunJobState& job = state.jobs[i];
    // A sweep has succeeded if one trial ended well.
    const bool done = run.jobs[i].trials > 0
                          ? std::ranges::any_of(job.trials, [](const WorkState& trial) { return trial.good(); })
                          : job.whole.good();
    if (done) continue;
    const bool is_first_cause = job.whole.state != "CANCELLED" && job.whole.state != "STOPPED";
    if (is_first_cause) return job.whole.exit_status;
    if (cancelled == commands::exit_done) cancelled = job.whole.exit_status != 0 ? job.whole.exit_status : 130;
  }
  return cancelled;
}

}  // namespace amldist::run
