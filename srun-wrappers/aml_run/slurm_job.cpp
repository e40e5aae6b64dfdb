#include "aml_run/slurm_job.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <vector>

#include "base/text/text.hpp"
#include "shared/exit_status.hpp"
#include "shared/programs.hpp"
#include "shared/scontrol.hpp"

namespace amldist::run {
namespace {

using text::concat;

/// Messages of Slurm's programs if there is no controller to talk to.
bool is_no_answer(std::string_view messages) {
  constexpr std::array<std::string_view, 6> phrases = {"Unable to contact slurm controller",
                                                       "Could not establish a configuration source",
                                                       "Connection refused",
                                                       "Socket timed out",
                                                       "Unable to process configuration",
                                                       "Zero Bytes were transmitted"};
  return std::ranges::any_of(phrases,
                             [&](std::string_view phrase) { return messages.find(phrase) != std::string_view::npos; });
}

/// The most important sentence: aml-dist's own, else the first error, else the first line.
std::string first_error(std::string_view messages) {
  constexpr std::array<std::string_view, 3> marks = {"aml-dist: ", "error: ", ""};
  for (const std::string_view mark : marks) {
    for (const std::string_view line : text::split(messages, '\n')) {
      const auto at = line.find(mark);
      if (at != std::string_view::npos && at + mark.size() < line.size())
        return std::string(line.substr(at + mark.size()));
    }
  }
  return "it gave no reason";
}

/// Empty for "(null)", too.
std::string value_behind(std::string_view text, std::string_view key, bool whole_line) {
  using commands::ValueEnd;
  const auto value = commands::scontrol_value(text, key, whole_line ? ValueEnd::line : ValueEnd::blank);
  return value == "(null)" ? std::string() : std::string(value);
}

/// "3:0" or "0:9".
void read_exit_code(std::string_view text, JobState& state) {
  const auto parts = text::split(text, ':');
  if (parts.size() != 2) return;
  state.exit_status = static_cast<int>(text::to_number(parts[0], 255).value_or(1));
  state.signal = static_cast<int>(text::to_number(parts[1], 127).value_or(0));
}

Result<JobState> ask_accounting(const std::string& id) {
  const Error unknown{Errc::not_found, concat({"Slurm no longer knows job ", id})};
  const auto done = commands::run_program({"sacct", "-X", "-n", "-P", "-o", "State,ExitCode,NodeList", "-j", id});
  if (!done || done->status != 0) return unknown;
  const auto fields = text::split(text::split(done->out, '\n').front(), '|');
  if (fields.size() != 3) return unknown;
  JobState state;
  state.state = std::string(fields[0].substr(0, fields[0].find(' ')));  // "CANCELLED by 1000"
  state.nodes = std::string(fields[2]);
  read_exit_code(fields[1], state);
  return state;
}

/// Slurm before 24.11 shows a %% of sbatch's file name unchanged, though the file has one %.
std::string shown_path(std::string path) {
  std::error_code unknown;
  if (path.find("%%") == std::string::npos || std::filesystem::exists(path, unknown)) return path;
  for (std::size_t at = path.find("%%"); at != std::string::npos; at = path.find("%%", at + 1)) path.erase(at, 1);
  return path;
}

}  // namespace

bool JobState::ended() const {
  constexpr std::array<std::string_view, 10> ends = {"COMPLETED", "FAILED",    "CANCELLED", "TIMEOUT", "NODE_FAIL",
                                                     "PREEMPTED", "BOOT_FAIL", "DEADLINE",  "REVOKED", "OUT_OF_MEMORY"};
  return std::ranges::find(ends, state) != ends.end();
}

std::variant<Submitted, Refusal> submit(const std::string& script, const std::vector<std::string>& sbatch) {
  const auto done = commands::run_program(sbatch, script);
  if (!done) {
    return Refusal{
        commands::exit_no_slurm,
        concat({done.error().message, ": run this on a node that has Slurm, or print the script with --dry-run"})};
  }
  const std::string id(done->out.substr(0, done->out.find_first_of(";\n")));
  if (done->status == 0 && text::to_number(id, UINT32_MAX)) return Submitted{id, done->err};
  const bool no_answer = is_no_answer(done->err);
  return Refusal{
      no_answer ? commands::exit_no_slurm : commands::exit_refused,
      concat({no_answer ? "Slurm does not answer: " : "Slurm does not accept the job: ", first_error(done->err)})};
}

std::optional<JobState> read_scontrol(std::string_view text) {
  JobState state;
  state.state = value_behind(text, "JobState=", false);
  state.reason = value_behind(text, "Reason=", false);
  state.nodes = value_behind(text, "NodeList=", false);
  state.folder = value_behind(text, "WorkDir=", true);
  state.output = shown_path(value_behind(text, "StdOut=", true));
  state.error = shown_path(value_behind(text, "StdErr=", true));
  read_exit_code(value_behind(text, "ExitCode=", false), state);
  state.restarts =
      static_cast<std::uint32_t>(text::to_number(value_behind(text, "Restarts=", false), UINT32_MAX).value_or(0));
  return state.state.empty() ? std::nullopt : std::optional(std::move(state));
}

namespace {

/// What `scontrol show job` prints of one job, or of all tasks of an array.
std::optional<JobState> read_array(std::string_view text, const std::string& id) {
  std::optional<JobState> out;
  std::vector<std::pair<std::string, std::string>> tasks;
  for (auto at = text.find("JobId="); at != std::string_view::npos;) {
    const auto next = text.find("\nJobId=", at);
    const std::string_view record = text.substr(at, next == std::string_view::npos ? next : next - at);
    at = next == std::string_view::npos ? next : next + 1;
    auto state = read_scontrol(record);
    if (!state) continue;
    const std::string task = value_behind(record, "ArrayTaskId=", false);
    if (!task.empty() && value_behind(record, "ArrayJobId=", false) == id)
      tasks.emplace_back(concat({id, "_", task}), state->state);
    if (!out || (out->ended() && !state->ended())) out = std::move(state);
  }
  if (out) out->tasks = std::move(tasks);
  return out;
}

}  // namespace

Result<JobState> ask(const std::string& id) {
  const auto done = commands::run_program({"scontrol", "show", "job", id});
  if (!done) return done.error();
  if (auto state = read_array(done->out, id)) return std::move(*state);
  if (is_no_answer(done->err))
    return Error{Errc::unavailable, concat({"Slurm does not answer: ", first_error(done->err)})};
  return ask_accounting(id);
}

bool is_hopeless(std::string_view reason) {
  constexpr std::array<std::string_view, 6> reasons = {"PartitionConfig", "PartitionNodeLimit", "PartitionTimeLimit",
                                                       "BadConstraints",  "InvalidAccount",     "InvalidQOS"};
  return std::ranges::find(reasons, reason) != reasons.end();
}

std::string why_never(const std::string& id, const JobState& state) {
  if (state.state != "PENDING" || !is_hopeless(state.reason)) return {};
  return concat({"job ", id, " can never start as it is (", state.reason,
                 "): it asks for more nodes, processors, memory or time than its partition has; see ",
                 "scontrol show partition, and end it with scancel ", id});
}

Result<void> cancel(const std::string& id) {
  const auto done = commands::run_program({"scancel", id});
  if (!done) return done.error();
  if (done->status == 0) return {};
  return Error{Errc::unavailable, concat({"job ", id, " cannot be cancelled: ", first_error(done->err)})};
}

int exit_status_of(const JobState& state) {
  if (state.state == "COMPLETED") return commands::exit_done;
  if (state.state == "TIMEOUT" || state.state == "DEADLINE") return 124;
  if (state.state == "OUT_OF_MEMORY") return 137;
  if (state.state == "CANCELLED") return 130;
  if (state.state != "FAILED") return commands::exit_failed;
  if (state.exit_status != 0) return state.exit_status;
  return state.signal != 0 ? 128 + state.signal : commands::exit_failed;
}

}  // namespace amldist::run
