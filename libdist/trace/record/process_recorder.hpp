// The flight recorder of a process that may be in several worlds: one file, in which each world is a communicator.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "base/text/result.hpp"
#include "trace/record/flight_recorder.hpp"

namespace amldist::trace {

/// Shared by the worlds of a process that are recorded in one folder. All members may be called from several threads.
class ProcessRecorder {
 public:
  /// The recorder of this process in `folder` if a world still uses it; else a new one. The caller must call leave()
  /// when its world ends. Errors: those of FlightRecorder::create(), and a folder in which this process already records
  /// as another rank.
  [[nodiscard]] static Result<std::shared_ptr<ProcessRecorder>> open(const std::string& folder,
                                                                     const RecorderOwner& owner);

  explicit ProcessRecorder(FlightRecorder recorder) : recorder_(std::move(recorder)) {}

  /// The recorder for the calls themselves.
  [[nodiscard]] FlightRecorder& calls() noexcept { return recorder_; }
  [[nodiscard]] const std::string& path() const noexcept { return recorder_.path(); }

  [[nodiscard]] std::uint32_t add_communicator(const RecordedCommunicator& communicator) noexcept;
  /// As FlightRecorder::note().
  void note(std::string_view sentence, const std::optional<recorder_format::WrongCall>& wrong = {}) noexcept;

  /// Says that a world has ended. After the last one the recorder is closed: the file stays if any of them failed.
  void leave(FlightRecorder::Ending ending) noexcept;

 private:
  [[nodiscard]] bool enter() noexcept;

  std::mutex mutex_;  ///< protects everything except the calls
  FlightRecorder recorder_;
  std::uint32_t worlds_ = 0;
  bool has_failed_ = false;
};

}  // namespace amldist::trace
