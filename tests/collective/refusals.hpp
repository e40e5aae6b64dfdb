#pragma once

#include <string>

#include "calls/watchdog.hpp"

namespace amldist::collective {

/// A watchdog for calls that never wait.
class Refusals : public calls::Watchdog {
 public:
  [[nodiscard]] Result<void> keep_waiting(int /*rank*/) override { return Error{Errc::timeout, "waits"}; }
  [[nodiscard]] Error differs(int rank) override { return {Errc::peer, "differs " + std::to_string(rank)}; }
  [[nodiscard]] Error lost(int rank, std::string_view what) override {
    return {Errc::peer, "lost " + std::to_string(rank) + ": " + std::string(what)};
  }
  [[nodiscard]] Clock::time_point deadline() const noexcept override { return Clock::time_point::max(); }
};

/// For calls that wait for a rank which comes.
class Patience final : public Refusals {
 public:
  [[nodiscard]] Result<void> keep_waiting(int /*rank*/) override { return {}; }
};

}  // namespace amldist::collective
