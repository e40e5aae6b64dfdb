// A node's side of step/messages/text_exchange.hpp.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/text/result.hpp"
#include "base/time/clock.hpp"
#include "step/messages/srun_link.hpp"
#include "step/messages/text_exchange.hpp"

namespace amldist::step {

/// Sends a message to srun and returns the answer, or an empty text. The caller may have to retry, because UDP may
/// lose either.
using AskSrun = std::function<std::string(const std::string& message)>;

/// The real implementation: waits a tenth of a second for the answer.
[[nodiscard]] AskSrun ask_over(const SrunLink& srun);

/// The result of a round for this node.
struct RoundOutcome {
  std::map<std::uint32_t, std::string> texts;  ///< of the peers
  bool is_decided = false;                     ///< srun has decided meanwhile: a node has not passed, no more rounds
  std::optional<std::uint32_t> silent;         ///< a peer whose text did not come before the deadline
  bool srun_answered = false;
};

/// Publishes this node's text of a round and waits for those of its peers. Reads again after a pause that grows from 2
/// ms to `longest_pause`. A later round has up to 8 s more than `deadline`, so that a failure of the first one is
/// reported first.
[[nodiscard]] RoundOutcome exchange_texts(const AskSrun& srun, std::uint64_t token, std::uint32_t round,
                                          std::uint32_t node, std::string_view text,
                                          std::span<const std::uint32_t> peers, Clock::time_point deadline,
                                          std::chrono::milliseconds longest_pause);

}  // namespace amldist::step
