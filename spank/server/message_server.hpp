// What srun, or its stand-in, answers to the messages of a step's nodes.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "base/time/clock.hpp"
#include "fabric/between_nodes/node_settings.hpp"
#include "launch/option/spec.hpp"
#include "step/messages/control_message.hpp"
#include "step/messages/fabric_vote.hpp"
#include "step/messages/failure_report.hpp"
#include "step/messages/server_release.hpp"
#include "step/messages/text_exchange.hpp"
#include "step/server/last_states.hpp"

namespace amldist::spank {

/// Keeps what the nodes report, and answers their questions. Any process with the step's token can send anything: what
/// does not fit the step's size is dropped, so memory is bounded by that size and the limit of notices.
class MessageServer {
 public:
  struct Step {
    std::uint64_t token = 0;
    std::uint32_t tasks = 0;  ///< 0: not known
    std::uint32_t nodes = 0;  ///< 0: not known
    std::string record = {};  ///< the launch record, for nodes that ask; may be empty
    std::size_t most_notices = step::TextExchange::most_bytes;
    void (*tell)(std::string_view line) noexcept = nullptr;  ///< prints lines for the user
  };

  explicit MessageServer(Step step);

  /// The reply to a message; nullopt for a message that is not for this step.
  [[nodiscard]] std::optional<std::string> take(std::string_view datagram, Clock::time_point now);

  [[nodiscard]] const step::FirstFailure& failure() const noexcept { return failure_; }
  [[nodiscard]] const step::LastStates& last_states() const noexcept { return last_states_; }
  /// Takes the state of a rank that is still alive after others have ended.
  void take_state(std::string_view state) { last_states_.take(state); }

 private:
  [[nodiscard]] std::optional<std::string> take_end(std::string_view datagram, Clock::time_point now);
  [[nodiscard]] std::optional<std::string> take_vote(std::string_view datagram);
  [[nodiscard]] std::optional<std::string> take_notice(std::string_view datagram, Clock::time_point now);
  void decide_after_failure(launch::RdmaPolicy policy);
  void tell_decision();
  void take_presence(const step::Notice& notice, Clock::time_point now);
  [[nodiscard]] bool are_all_present(Clock::time_point now);
  void compare_nodes(std::uint32_t node);
  [[nodiscard]] std::optional<std::string> answer(step::MessageType type, Clock::time_point now);
  [[nodiscard]] std::string text_or_not_yet(step::Subject subject, const std::string& text) const;
  [[nodiscard]] bool has_task(std::uint32_t rank) const noexcept { return step_.tasks == 0 || rank < step_.tasks; }
  [[nodiscard]] bool has_node(std::uint32_t node) const noexcept { return step_.nodes == 0 || node < step_.nodes; }

  Step step_;
  step::FirstFailure failure_;
  step::LastStates last_states_;
  step::ServerRelease release_;
  step::FabricTally fabric_;
  std::set<std::uint32_t> present_;               ///< nodes whose tasks have come
  std::optional<fabric::NodePresence> presence_;  ///< of one of them
  Clock::time_point wait_since_;                  ///< when the first node came that is going to write
  bool is_wait_told_ = false;
  step::TextExchange texts_;
  fabric::SettingsComparison settings_;
  std::string address_;      ///< from rank 0's node
  bool no_address_ = false;  ///< rank 0's node has no address
};

}  // namespace amldist::spank
