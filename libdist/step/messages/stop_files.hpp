// How the tasks of a step with the key stop= learn on their node that they should stop: a file appears.
//
//   /dev/shm/aml-dist-1000/stop-42.0       the stop file, AMLDIST_STOP_FILE: it appears, and stays until the step ends
//   /dev/shm/aml-dist-1000/may-stop-42.0   says that the step has the key, with the number of its signal, or 0
//
// The folder is that of the user's flight recorders (trace/record/record_folder.hpp), closed to others. Everything here
// needs the user's rights: root never does it.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "base/text/result.hpp"

namespace amldist::step {

struct StopFiles {
  std::string stop;
  std::string may_stop;

  /// Of this process's user. `step`: "42.0". Makes the folder. Errors: unavailable, with the reason.
  [[nodiscard]] static Result<StopFiles> of_step(std::string_view step);

  /// Before the step's tasks: writes may_stop, and removes what a step of the same number left before this one came to
  /// the node. The stop of this step may be raised already: what comes before its tasks takes a while.
  [[nodiscard]] Result<void> begin(int signal, std::chrono::system_clock::time_point came) const;
  /// Makes the stop file; no error if it is there. Errors: unavailable.
  [[nodiscard]] Result<void> raise() const;
  /// The signal of the key stop=, or 0; nullopt: no such step runs here.
  [[nodiscard]] std::optional<int> signal() const;
  void remove() const noexcept;
};

}  // namespace amldist::step
