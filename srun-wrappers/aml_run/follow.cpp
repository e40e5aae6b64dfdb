#include "aml_run/follow.hpp"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <optional>
#include <vector>

#include "aml_run/growing_file.hpp"
#include "core/text.hpp"
#include "os/file_descriptor.hpp"
#include "shared/signals.hpp"
#include "shared/terminal.hpp"

namespace amldist::run {
namespace {

using Clock = std::chrono::steady_clock;
using commands::say;
using text::concat;

constexpr std::chrono::milliseconds output_interval{500};
constexpr std::chrono::milliseconds shortest_question{1000};
constexpr std::chrono::milliseconds longest_question{5000};  // many followers must not be a load for slurmctld

/// Interrupts as something to poll, for as long as this lives.
class Interrupts {
 public:
  Interrupts() {
    const sigset_t set = commands::HeldInterrupts::interrupts();
    descriptor_ = FileDescriptor(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  }

  /// The signal that came within `time`, if one did.
  std::optional<int> wait(std::chrono::milliseconds time) {
    pollfd end{descriptor_.get(), POLLIN, 0};
    if (::poll(&end, 1, static_cast<int>(time.count())) <= 0) return std::nullopt;
    signalfd_siginfo info{};
    if (::read(descriptor_.get(), &info, sizeof info) != sizeof info) return std::nullopt;
    return static_cast<int>(info.ssi_signo);
  }

  [[nodiscard]] int descriptor() const { return descriptor_.get(); }

 private:
  commands::HeldInterrupts held_;
  FileDescriptor descriptor_;
};

/// Finds srun's line about the first failure in output that arrives in pieces.
class FailureWatch {
 public:
  void look(std::string_view piece) {
    if (!found_.empty()) return;
    for (const char c : piece) {
      if (c != '\n') {
        if (line_.size() < longest_line) line_ += c;
        continue;
      }
      const auto at = line_.find(mark);
      if (at != std::string::npos) {
        found_ = line_.substr(at + mark.size());
        return;
      }
      line_.clear();
    }
  }
  [[nodiscard]] const std::string& found() const noexcept { return found_; }

 private:
  static constexpr std::string_view mark = "aml-dist: first failure: ";
  static constexpr std::size_t longest_line = 1024;
  std::string line_;
  std::string found_;
};

class Follower {
 public:
  Follower(std::string id, bool output_on_stderr)
      : id_(std::move(id)), sink_(output_on_stderr ? stderr : stdout), began_(Clock::now()) {}

  Result<Followed> run() {
    for (;;) {
      if (Clock::now() >= next_question_) {
        if (auto asked = question(); !asked) return asked.error();
      }
      if (state_.state != "PENDING") copy_output();
      if (state_.ended()) return finish();
      if (const auto signal = interrupts_.wait(output_interval)) {
        if (answer(*signal)) return Followed{state_, failure_.found(), seconds(), true};
      }
    }
  }

 private:
  Result<void> question() {
    auto state = ask(id_);
    next_question_ = Clock::now() + pause_;
    pause_ = std::min(longest_question, pause_ + pause_ / 4);
    if (!state) {
      if (state.error().code == Errc::not_found) return state.error();
      if (!silent_) say(concat({state.error().message, "; asking on"}), commands::Tone::bad);
      silent_ = true;
      return {};
    }
    silent_ = false;
    const bool changed = state->state != state_.state || state->reason != state_.reason || state->nodes != state_.nodes;
    // The accounting does not know the files.
    if (state->output.empty()) state->output = state_.output;
    if (state->error.empty()) state->error = state_.error;
    state_ = std::move(*state);
    if (changed) tell_state();
    return {};
  }

  void tell_state() {
    if (state_.state == "PENDING") {
      const bool no_reason = state_.reason.empty() || state_.reason == "None";
      say(concat({"job ", id_, " waits", no_reason ? "" : ": ", no_reason ? "" : state_.reason}),
          commands::Tone::faint);
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
      file.read_new([this](std::string_view piece) {
        failure_.look(piece);
        std::fwrite(piece.data(), 1, piece.size(), sink_);
      });
    }
    std::fflush(sink_);
  }

  Followed finish() {
    // The last lines may still be on their way through the shared file system.
    interrupts_.wait(output_interval);
    copy_output();
    return {state_, failure_.found(), seconds(), false};
  }

  /// What an interrupt means. true: stop following.
  bool answer(int signal) {
    const bool ask_first =
        signal == SIGINT && ::isatty(STDIN_FILENO) == 1 && ::isatty(STDERR_FILENO) == 1 && !cancelled_;
    const char choice = ask_first ? ask_user() : 'y';
    if (choice == 'd') {
      say(concat({"job ", id_, " goes on alone; scancel ", id_, " ends it"}));
      return true;
    }
    if (choice != 'y') return false;
    say(concat({"cancelling job ", id_}));
    if (auto done = cancel(id_); !done) say(done.error().message, commands::Tone::bad);
    cancelled_ = true;
    next_question_ = Clock::now();
    pause_ = shortest_question;
    return false;
  }

  /// 'y', 'n' or 'd'. A second Ctrl-C means yes.
  char ask_user() {
    std::fprintf(stderr, "\naml-dist: cancel job %s? y: yes, d: no, but stop following it, n: no [n] ", id_.c_str());
    std::array<pollfd, 2> ends = {pollfd{STDIN_FILENO, POLLIN, 0}, pollfd{interrupts_.descriptor(), POLLIN, 0}};
    while (::poll(ends.data(), ends.size(), -1) < 0) {
    }
    if (ends[1].revents != 0) {
      interrupts_.wait(std::chrono::milliseconds(0));
      std::fputc('\n', stderr);
      return 'y';
    }
    std::array<char, 256> line{};
    const ssize_t count = ::read(STDIN_FILENO, line.data(), line.size());
    if (count <= 0) return 'd';  // the terminal is gone
    return static_cast<char>(line[0] | 0x20);
  }

  [[nodiscard]] double seconds() const { return std::chrono::duration<double>(Clock::now() - began_).count(); }

  std::string id_;
  std::FILE* sink_;
  Clock::time_point began_;
  Clock::time_point next_question_;
  std::chrono::milliseconds pause_ = shortest_question;
  Interrupts interrupts_;
  FailureWatch failure_;
  JobState state_;
  std::string told_;
  std::vector<GrowingFile> files_;
  bool silent_ = false;
  bool cancelled_ = false;
};

}  // namespace

int exit_status_of(const Followed& followed) {
  const int own = exit_status_of(followed.state);
  if (followed.state.state != "FAILED") return own;
  for (const auto& [words, base] : {std::pair<std::string_view, int>("exit status ", 0), {"signal ", 128}}) {
    const auto at = followed.first_failure.find(words);
    if (at == std::string::npos) continue;
    const auto digits = std::string_view(followed.first_failure).substr(at + words.size());
    const auto number = text::to_number(digits.substr(0, digits.find_first_not_of("0123456789")), 255);
    if (number && *number > 0) return base + static_cast<int>(*number);
  }
  return own;
}

Result<Followed> follow(const std::string& id, bool output_on_stderr) { return Follower(id, output_on_stderr).run(); }

}  // namespace amldist::run
