// Messages that were sent and that nobody has received, by sender, receiver and tag. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trace/record/record_reader.hpp"

namespace amldist::trace {

struct UnreceivedMessages {
  std::uint32_t from = 0;  ///< ranks of the step
  std::uint32_t to = 0;
  std::uint16_t tag = 0;
  std::uint64_t count = 0;
};

/// By number, most first. Receivers that have forgotten their oldest calls, or receive from any rank, are left out: it
/// is not known which messages they have received. So are tags that share a number.
[[nodiscard]] std::vector<UnreceivedMessages> find_unreceived(std::span<const Recording> recordings);

/// "3 messages from rank 1 to rank 0 with tag 7".
[[nodiscard]] std::string describe(const UnreceivedMessages& messages);

}  // namespace amldist::trace
