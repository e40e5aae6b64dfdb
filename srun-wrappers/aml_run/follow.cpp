#include "aml_run/follow.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <vector>

#include "aml_run/owned_folder.hpp"
#include "base/os/file_descriptor.hpp"
#include "base/text/text.hpp"
#include "base/time/clock.hpp"
#include "shared/interrupts.hpp"
#include "shared/programs.hpp"
#include "shared/terminal.hpp"

namespace amldist::run {
namespace {

using commands::Interrupts;
using commands::say;
using text::concat;

constexpr std::chrono::milliseconds output_interval{500};
constexpr std::chrono::milliseconds shortest_question{1000};
constexpr int most_waits_for_record = 4;                     // a killed script writes no end
constexpr std::chrono::milliseconds longest_question{5000};  // many followers must not overload slurmctld

/// What the job's script and srun have recorded so far; nullopt if nothing, or if it concerns another run of the job.
/// The file must belong to the user.
std::optional<step::JobRecord> read_record(const std::string& path, const JobState& state, const std::string& id) {
  const auto text = read_own_file(path, step::longest_job_record);
  auto record = text ? step::JobRecord::parse(*text) : std::nullopt;
  const bool is_current = record && std::to_string(record->job) == id && record->restarts >= state.restarts;
  return is_current ? std::move(record) : std::nullopt;
}

/// A file that another process writes, read as it grows.
class GrowingFile {
 public:
  explicit GrowingFile(std::string path) : path_(std::move(path)) {}

  /// Gives what is new to `sink`. A file that is not there yet has nothing; one that became shorter (a requeued job) is
  /// read from its beginning.
  template <typename Sink>
  void read_new(Sink sink) {
    const FileDescriptor file(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    struct stat info {};
    if (!file || ::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) return;
    if (static_cast<std::uint64_t>(info.st_size) < read_) read_ = 0;
    std::vector<char> buffer(65536);
    for (;;) {
      const ssize_t count = ::pread(file.get(), buffer.data(), buffer.size(), static_cast<off_t>(read_));
      if (count <= 0) return;
      read_ += static_cast<std::uint64_t>(count);
      sink({buffer.data(), static_cast<std::size_t>(count)});
    }
  }

 private:
  std::string path_;
  std::uint64_t read_ = 0;
};

class Follower {
 public:
  Follower(std::string id, std::string record, bool output_on_stderr)
      : id_(std::move(id)),
        record_(std::move(record)),
        sink_(output_on_stderr ? stderr : stdout),
        began_(Clock::now()) {}

  Result<Followed> run() {
    for (;;) {
      if (Clock::now() >= next_question_) {
        if (auto status = question(); !status) return status.error();
      }
      if (state_.state != "PENDING") copy_output();
      if (state_.ended()) return finish();
      if (const auto signal = interrupts_.wait(output_interval)) {
        if (answer(*signal)) return Followed{state_, std::nullopt, seconds(), true};
      }
    }
  }

 private:
  Result<void> question() {
    auto state = ask(id_);
    next_question_ = Clock::now() + pause_;
    pause_ = std::min(longest_question, pause_ + pause_ / 4);
    if (!state) {
      if (state.error().code == Errc::not_found) return end_by_record() ? Result<void>() : state.error();
      if (!silent_) say(concat({state.error().message, "; still trying"}), commands::Tone::bad);
      silent_ = true;
      return {};
    }
    silent_ = false;
    const bool changed = state->state != state_.state || state->reason != state_.reason || state->nodes != state_.nodes;
    // The accounting does not store the files.
    if (state->output.empty()) state->output = state_.output;
    if (state->error.empty()) state->error = state_.error;
    state->restarts = std::max(state->restarts, state_.restarts);
    state_ = std::move(*state);
    if (changed) tell_state();
    return {};
  }

  void tell_state() {
    if (state_.state == "PENDING") {
      const bool no_reason = state_.reason.empty() || state_.reason == "None";
      const bool never = is_hopeless(state_.reason);
      say(concat({"job ", id_, " waits", no_reason ? "" : ": ", no_reason ? "" : state_.reason,
                  never ? ", which no waiting changes: cancel it and ask for less, or for another partition" : ""}),
          never ? commands::Tone::bad : commands::Tone::faint);
    } else if (state_.state == "RUNNING") {
      say(concat({"job ", id_, " runs on ", state_.nodes}), commands::Tone::faint);
      pause_ = shortest_question;
    } else if (!state_.ended() && state_.state != told_) {
      say(concat({"job ", id_, " is ", text::to_lower(state_.state)}), commands::Tone::faint);
    }
    told_ = state_.state;
  }

  void copy_output() {
    if (files_.empty() && !state_.output.empty()) {
      files_.emplace_back(state_.output);
      if (!state_.error.empty() && state_.error != state_.output) files_.emplace_back(state_.error);
    }
    for (GrowingFile& file : files_) {
      file.read_new([this](std::string_view piece) { std::fwrite(piece.data(), 1, piece.size(), sink_); });
    }
    std::fflush(sink_);
  }

  Followed finish() {
    // The last lines may still be on their way through the shared file system.
    interrupts_.wait(output_interval);
    copy_output();
    auto record = read_record(record_, state_, id_);
    for (int i = 0; state_.state == "FAILED" && record && !record->ended && i < most_waits_for_record; ++i) {
      interrupts_.wait(output_interval);
      record = read_record(record_, state_, id_);
    }
    ::unlink(record_.c_str());
    return {state_, record ? std::move(record->first_failure) : std::nullopt, seconds(), false};
  }

  /// Slurm has forgotten the job, and keeps no accounting: it ended as its script has recorded. false if there is no
  /// record.
  bool end_by_record() {
    const auto record = read_record(record_, state_, id_);
    if (!record || !record->ended) return false;
    state_.state = *record->ended == 0 ? "COMPLETED" : "FAILED";
    state_.exit_status = *record->ended;
    state_.signal = 0;
    return true;
  }

  /// Handles an interrupt. true: stop following.
  bool answer(int signal) {
    const auto choice =
        cancelled_ ? Interrupts::Choice::cancel : interrupts_.choice_after(signal, concat({"job ", id_}));
    if (choice == Interrupts::Choice::detach) {
      say(concat({"job ", id_, " keeps running; scancel ", id_, " ends it"}));
      return true;
    }
    if (choice == Interrupts::Choice::go_on) return false;
    say(concat({"cancelling job ", id_}));
    if (auto status = cancel(id_); !status) say(status.error().message, commands::Tone::bad);
    cancelled_ = true;
    next_question_ = Clock::now();
    pause_ = shortest_question;
    return false;
  }

  [[nodiscard]] double seconds() const { return std::chrono::duration<double>(Clock::now() - began_).count(); }

  std::string id_;
  std::string record_;
  std::FILE* sink_;
  Clock::time_point began_;
  Clock::time_point next_question_;
  std::chrono::milliseconds pause_ = shortest_question;
  Interrupts interrupts_;
  JobState state_;
  std::string told_;
  std::vector<GrowingFile> files_;
  bool silent_ = false;
  bool cancelled_ = false;
};

}  // namespace

int exit_status_of(const Followed& followed) {
  const int own = exit_status_of(followed.state);
  const bool task_failed = followed.state.state == "FAILED" && followed.first_failure;
  return task_failed && followed.first_failure->status != 0 ? followed.first_failure->status : own;
}

Result<Followed> follow(const std::string& id, const std::string& record, bool output_on_stderr) {
  return Follower(id, record, output_on_stderr).run();
}

}  // namespace amldist::run
