#include "spank/stepd/stop_watch.hpp"

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

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

class StopThread {
 public:
  StopThread(StopWatch::Node node, int stop) : node_(std::move(node)), stop_(stop) {}

  void run() const {
    std::optional<Clock::time_point> due;
    while (!due || Clock::now() < *due) {
      if (ends_within(pause_until(due))) return finish();
      due = next(due);
    }
    with_files([](const step::StopFiles& files) { static_cast<void>(files.raise()); });
    constexpr milliseconds forever{-1};
    static_cast<void>(ends_within(forever));
    finish();
  }

 private:
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

  [[nodiscard]] bool ends_within(milliseconds time) const {
    pollfd stop = {stop_, POLLIN, 0};
    return ::poll(&stop, 1, static_cast<int>(time.count())) != 0;
  }

  template <typename Act>
  void with_files(Act act) const {
    const auto work = [&]() -> std::string {
      if (const auto files = step::StopFiles::of_step(node_.step)) act(*files);
      return {};
    };
    static_cast<void>(answer_as_user(node_.rights, work, file_timeout));
  }

  void finish() const {
    with_files([](const step::StopFiles& files) { files.remove(); });
  }

  const StopWatch::Node node_;
  const int stop_;
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
  return std::make_unique<StopWatch>(StopWatch::Node{*node.srun, {*user, *group}, plan->step.step_name});
}

}  // namespace amldist::spank
