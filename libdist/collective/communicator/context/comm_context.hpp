// The facts about a communicator that all its parts use: its members, how long a call may take, and how it is aborted.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "world/control/control_channel.hpp"

namespace amldist::collective {

using std::chrono::milliseconds;

/// Thread-safe: the program's thread, the progress thread and the thread that watches device calls share it.
class CommContext {
 public:
  CommContext(world::ControlChannel& channel, std::shared_ptr<world::CommWatch> watch, milliseconds timeout)
      : channel_(channel), watch_(std::move(watch)), timeout_(timeout.count()) {}

  [[nodiscard]] world::ControlChannel& channel() const noexcept { return channel_; }
  [[nodiscard]] world::CommWatch& watch() const noexcept { return *watch_; }
  [[nodiscard]] const std::shared_ptr<world::CommWatch>& shared_watch() const noexcept { return watch_; }

  [[nodiscard]] std::uint32_t rank() const noexcept { return watch_->rank(); }
  [[nodiscard]] std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(watch_->members().size()); }
  /// Host name of a rank of the communicator.
  [[nodiscard]] const std::string& host_of(std::uint32_t rank) const {
    return channel_.host_of(watch_->members()[rank]);
  }

  /// "rank 3 (local 1) on node2", with the world's number of a rank of the communicator.
  [[nodiscard]] std::string name_of(std::uint32_t rank) const { return channel_.name_of(watch_->members()[rank]); }

  /// The deadline of a call, counted from its start.
  [[nodiscard]] milliseconds timeout() const noexcept { return milliseconds(timeout_.load()); }
  void set_timeout(milliseconds timeout) noexcept { timeout_.store(timeout.count()); }

  [[nodiscard]] bool is_lost() const noexcept { return watch_->is_lost(); }
  /// Ends the communicator on all its ranks because the program does not want to wait any longer.
  void interrupt() {
    const std::string where = name_of(rank()) + " in " + describe(watch_->activity().call);
    give_up({Errc::aborted, "the communicator was aborted: the program interrupted " + where});
  }
  /// Ends the communicator on all its ranks because of an error on this one, unless it is lost already.
  void give_up(const Error& error) {
    if (!watch_->is_lost()) channel_.abort(watch_, error.message);
  }

 private:
  world::ControlChannel& channel_;
  const std::shared_ptr<world::CommWatch> watch_;
  std::atomic<milliseconds::rep> timeout_;
};

}  // namespace amldist::collective
