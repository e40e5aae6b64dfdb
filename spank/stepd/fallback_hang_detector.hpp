// On rank 0's node under hang=: watches the step for hangs once its srun has gone.
//
// The nodes tell srun what their ranks wait for (hang_watch.hpp). Where it does not answer any more, they tell the
// fallback the same, which does with it what srun would: hang_detector.hpp.
#pragma once

#include <cstdint>
#include <string>
#include <thread>

#include "base/os/answer_as_user.hpp"
#include "base/os/file_descriptor.hpp"

namespace amldist::spank {

/// What the fallback needs to know; its thread reads nothing of the session.
struct FallbackStep {
  std::uint32_t job_id = 0;
  std::uint32_t step_id = 0;
  std::uint32_t tasks = 0;
  std::uint32_t seconds = 0;  ///< hang=
  bool ends = false;          ///< the step is ended then: SIGTERM first, SIGKILL after KillWait
  std::string name;           ///< "42.0"
  std::string folder;         ///< of the tasks: gets the report, which the user writes
  UserRights rights;
  std::uint64_t token = 0;
};

class FallbackHangDetector {
 public:
  /// Opens a port and starts the thread, which sleeps until something comes. Without them there is no stand-in.
  explicit FallbackHangDetector(FallbackStep step) noexcept;
  FallbackHangDetector(const FallbackHangDetector&) = delete;
  FallbackHangDetector& operator=(const FallbackHangDetector&) = delete;
  ~FallbackHangDetector();

  /// 0: there is none.
  [[nodiscard]] std::uint16_t port() const noexcept { return port_; }

 private:
  FileDescriptor socket_;
  FileDescriptor stop_;  ///< an eventfd; readable: slurmstepd ends
  std::uint16_t port_ = 0;
  std::thread thread_;
};

}  // namespace amldist::spank
