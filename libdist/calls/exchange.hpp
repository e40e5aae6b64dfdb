// A small all-gather over the control channel, which is up before any data path; it carries NCCL's id.
#pragma once

#include <string>
#include <vector>

#include "base/text/result.hpp"
#include "base/time/clock.hpp"

namespace amldist::calls {

/// Collective over the communicator; pieces may differ in length. Used by one thread at a time.
class Exchange {
 public:
  virtual ~Exchange() = default;
  Exchange() = default;
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  [[nodiscard]] virtual int rank() const noexcept = 0;
  [[nodiscard]] virtual int size() const noexcept = 0;
  /// Every rank's piece, in rank order. Errors name the ranks that did not come before `deadline`.
  [[nodiscard]] virtual Result<std::vector<std::string>> gather_all(std::string piece, Clock::time_point deadline) = 0;
};

}  // namespace amldist::calls
