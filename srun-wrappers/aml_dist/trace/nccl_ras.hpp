// NCCL's RAS as a second witness: which ranks of a communicator it cannot reach, or have made other calls than the
// rest.
//
// The service is a thread in the job's processes (since NCCL 2.24), which answers lines of text on a port of its node;
// as JSON since NCCL 2.28.7. Another user's process may own that port, so an answer is taken for hostile: it is
// bounded, read as numbers only, and believed of communicators that this step's recorders know. It never changes a
// verdict.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/result.hpp"
#include "trace/record/record_reader.hpp"

namespace amldist::tools {

/// One communicator. Its ranks are NCCL's, ascending.
struct RasGroup {
  std::uint64_t id = 0;  ///< the hash by which NCCL's profiler knows it, too
  std::uint32_t size = 0;
  std::vector<std::uint32_t> silent;   ///< do not answer
  std::vector<std::uint32_t> behind;   ///< have made fewer collective calls than another rank
  std::vector<std::uint32_t> differs;  ///< as many, but not the same as most ranks
};

/// How long it is waited for: it waits for processes that do not answer, for half of that.
inline constexpr std::chrono::milliseconds ras_patience{4000};

struct RasAnswer {
  std::vector<RasGroup> groups;
  std::string problem;  ///< why there is no answer that can be compared, a clause; empty: there is one
};

/// Asks the RAS of the first living process of these recordings that uses NCCL, at the address in its NCCL_RAS_ADDR.
/// nullopt: there is no such process of this user here, or its RAS is switched off.
[[nodiscard]] std::optional<RasAnswer> ask_nccl_ras(std::span<const trace::Recording> recordings,
                                                    std::chrono::milliseconds patience);

/// What a RAS has answered to STATUS in the format json.
[[nodiscard]] RasAnswer judge_ras(std::string_view text);

/// An answer as a node tells it, in lines, and back. Lines that cannot be such are left out.
[[nodiscard]] std::string to_text(const RasAnswer& answer);
[[nodiscard]] RasAnswer parse_ras(std::string_view text);

}  // namespace amldist::tools
