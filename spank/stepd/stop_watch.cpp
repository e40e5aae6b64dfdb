#include "spank/stepd/stop_watch.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <optional>
#include <utility>

#include "base/os/whole_file.hpp"
#include "base/text/text.hpp"
#include "base/time/clock.hpp"
#include "step/messages/control_message.hpp"
#include "step/messages/stop_files.hpp"

namespace amldist::spank {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds file_timeout{2000};
constexpr milliseconds between_questions{5000};
constexpr std::uint64_t longest_answer_ms = 1ULL << 40;

/// Where Slurm's cgroups look for a step's processes that they signal: the file that takes their numbers. Empty: the
/// task is in no such group, and Slurm finds all children of slurmstepd.
std::string group_file(std::string_view proc_cgroup) {
  for (const std::string_view line :
       text::split(proc_cgroup, '\n')) {  // "4:freezer:/slurm/uid_0/job_1/step_0", "0::/..."
    const auto fields = text::split(line, ':');
    const bool counts = fields.size() == 3 && (fields[1] == "freezer" || fields[1].empty());
    if (counts && fields[2].find("/step_") != std::string_view::npos)
      return text::concat({"/sys/fs/cgroup", fields[1].empty() ? "" : "/", fields[1], fields[2], "/cgroup.procs"});
  }
  return {};
}

/// Until one of the signals that mean a stop comes; then the file appears.
std::string raise_at_signal(const std::string& step, int signal) {
  ::prctl(PR_SET_NAME, "aml-dist-stop");  // proctrack/linuxproc spares what is called slurmstepd
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  if (signal != 0) sigaddset(&set, signal);
  while (::sigwaitinfo(&set, nullptr) < 0 && errno == EINTR) {
  }
  const auto files = step::StopFiles::of_step(step);
  static_cast<void>(files && files->raise());
  return {};
}

class StopThread {
 public:
  StopThread(StopWatch::Node node, int stop) : node_(std::move(node)), stop_(stop) {}

  void run() {
    listen();
    std::optional<Clock::time_point> due;
    while (!is_raised_ && (!due || Clock::now() < *due)) {
      if (ends_within(pause_until(due))) return finish();
      if (!is_raised_) due = next(due);
    }
    if (!is_raised_) with_files([](const step::StopFiles& files) { static_cast<void>(files.raise()); });
    constexpr milliseconds forever{-1};
    while (!ends_within(forever)) {
    }
    finish();
  }

 private:
  /// Slurm signals all processes of the step, or with cgroups all that are slurmstepd's children: so a copy of this
  /// process hears of scancel --signal and of a preemption.
  void listen() {
    listener_ = UserCopy::start(node_.rights, [this] { return raise_at_signal(node_.step, node_.signal); });
    if (!listener_ || node_.group_file.empty()) return;
    const FileDescriptor file(::open(node_.group_file.c_str(), O_WRONLY | O_CLOEXEC));
    static_cast<void>(file && write_all(file.get(), std::to_string(listener_->id())));
  }

  static milliseconds pause_until(const std::optional<Clock::time_point>& due) {
    if (!due) return between_questions;
    const auto left = std::chrono::ceil<milliseconds>(*due - Clock::now());
    return std::clamp(left, milliseconds(0), between_questions);
  }

  /// What srun says now; what it said last if it does not answer. "never": no time is known.
  [[nodiscard]] std::optional<Clock::time_point> next(std::optional<Clock::time_point> before) const {
    constexpr int attempts = 3;
    const auto answer = step::ask(node_.srun, step::MessageType::when_stop, step::Subject::stop_in, attempts);
    if (!answer) return before;
    const auto left = text::to_number(*answer, longest_answer_ms);
    return left ? std::optional(Clock::now() + milliseconds(*left)) : std::nullopt;
  }

  /// Or until the listener has raised the file, or was killed.
  [[nodiscard]] bool ends_within(milliseconds time) {
    std::array<pollfd, 2> files = {{{stop_, POLLIN, 0}, {listener_ ? listener_->descriptor() : -1, POLLIN, 0}}};
    static_cast<void>(::poll(files.data(), files.size(), static_cast<int>(time.count())));
    if (files[1].revents != 0) {
      is_raised_ = is_raised_ || listener_->answer(Clock::now() + file_timeout).has_value();
      listener_.reset();
    }
    return files[0].revents != 0;
  }

  template <typename Act>
  void with_files(Act act) const {
    const auto work = [&]() -> std::string {
      if (const auto files = step::StopFiles::of_step(node_.step)) act(*files);
      return {};
    };
    static_cast<void>(answer_as_user(node_.rights, work, file_timeout));
  }

  void finish() {
    listener_.reset();
    with_files([](const step::StopFiles& files) { files.remove(); });
  }

  const StopWatch::Node node_;
  const int stop_;
  std::optional<UserCopy> listener_;
  bool is_raised_ = false;
};

}  // namespace

StopWatch::StopWatch(Node node) noexcept {
  const auto run = [node = std::move(node)](int stop) { StopThread(node, stop).run(); };
  static_cast<void>(thread_.start(run));
}

std::unique_ptr<StopWatch> watch_for_stop(const NodeStart& node, const Handle& handle) {
  const NodePlan* const plan = node.plan();
  if (plan == nullptr || !plan->step.spec.stop || !node.srun) return nullptr;
  const auto user = handle.number(S_JOB_UID, "S_JOB_UID");
  const auto group = handle.number(S_JOB_GID, "S_JOB_GID");
  if (!user || !group) return nullptr;
  const auto task = handle.number(S_TASK_PID, "S_TASK_PID");
  constexpr std::size_t longest = 65536;
  const std::string groups =
      task ? read_file_start(text::concat({"/proc/", std::to_string(*task), "/cgroup"}), longest) : std::string();
  return std::make_unique<StopWatch>(StopWatch::Node{
      *node.srun, {*user, *group}, plan->step.step_name, plan->step.spec.stop->signal, group_file(groups)});
}

}  // namespace amldist::spank
