#include "spank/server/message_server.hpp"

#include <utility>

#include "base/net/ipv4.hpp"
#include "base/text/text.hpp"

namespace amldist::spank {

MessageServer::MessageServer(Step step)
    : step_(std::move(step)), failure_(step_.tasks), last_states_(step_.tasks), texts_(step_.most_notices) {}

std::optional<std::string> MessageServer::take(std::string_view datagram, Clock::time_point now) {
  if (const auto report = step::FailureReport::parse(datagram, step_.token)) {
    failure_.take(*report);
    return to_datagram(step::MessageType::heard, step_.token);
  }
  if (const auto state = parse_text(step::Subject::last_state, datagram, step_.token)) {
    last_states_.take(*state);
    return to_datagram(step::MessageType::heard, step_.token);
  }
  if (auto heard = take_end(datagram, now)) return heard;
  if (const auto address = parse_text(step::Subject::address, datagram, step_.token);
      address && Ipv4::parse(*address)) {
    if (address_.empty()) address_ = *address;
    return to_datagram(step::MessageType::heard, step_.token);
  }
  if (auto decision = take_vote(datagram)) return decision;
  if (auto notice = take_notice(datagram, now)) return notice;
  const auto type = step::parse_message_type(datagram, step_.token);
  return type ? answer(*type, now) : std::nullopt;
}

std::optional<std::string> MessageServer::take_end(std::string_view datagram, Clock::time_point now) {
  const auto end = step::WorkerEnd::parse(datagram, step_.token);
  if (!end || !has_task(end->rank)) return std::nullopt;
  release_.take(*end, now);
  return to_datagram(step::MessageType::heard, step_.token);
}

std::optional<std::string> MessageServer::take_vote(std::string_view datagram) {
  const auto vote = step::FabricVote::parse(datagram, step_.token);
  if (!vote || (step_.nodes != 0 && vote->nodes != step_.nodes)) return std::nullopt;
  fabric_.take(*vote);
  present_.insert(vote->node);  // one that writes to no other node says nothing else
  decide_after_failure(vote->policy);
  tell_decision();
  return to_datagram(fabric_.answer(), step_.token);
}

/// The node of a task that has ended may never vote.
void MessageServer::decide_after_failure(launch::RdmaPolicy policy) {
  if (fabric_.answer() == step::MessageType::not_yet && failure_.stands())
    fabric_.reject(policy, "a task has ended before all nodes were verified");
}

void MessageServer::tell_decision() {
  if (const auto line = fabric_.line(); line && step_.tell != nullptr) step_.tell(*line);
}

void MessageServer::take_presence(const step::Notice& notice, Clock::time_point now) {
  const auto presence = fabric::NodePresence::parse(notice.text);
  if (!presence || (step_.nodes != 0 && presence->nodes != step_.nodes) || notice.key.node >= presence->nodes) return;
  if (!presence_) wait_since_ = now;
  present_.insert(notice.key.node);
  presence_ = *presence;
}

/// Whether the nodes that are there may write to each other: all of the step's are. They have not voted yet.
bool MessageServer::are_all_present(Clock::time_point now) {
  constexpr std::chrono::seconds long_wait{30};
  if (!presence_) return false;
  decide_after_failure(presence_->policy);
  tell_decision();
  if (present_.size() >= presence_->nodes) return true;
  if (!is_wait_told_ && step_.tell != nullptr && now - wait_since_ > long_wait) {
    is_wait_told_ = true;
    step_.tell(text::concat({std::to_string(present_.size()), " of ", std::to_string(presence_->nodes),
                             " nodes wait to write to each other before the program starts (rdma_pairs=): the tasks of "
                             "the others have not come so far"}));
  }
  return false;
}

/// For a node that posts or reads a notice. A node that waits for the notice of a sick one is told that the step has
/// been decided.
std::optional<std::string> MessageServer::take_notice(std::string_view datagram, Clock::time_point now) {
  if (const auto notice = step::Notice::parse(datagram, step_.token)) {
    if (!has_node(notice->key.node)) return std::nullopt;
    texts_.take(*notice);
    if (notice->key.round == fabric::presence_round) take_presence(*notice, now);
    if (notice->key.round == fabric::settings_round) compare_nodes(notice->key.node);
    return to_datagram(fabric_.is_lost() ? fabric_.answer() : step::MessageType::heard, step_.token);
  }
  const auto wanted = step::NoticeKey::parse(datagram, step_.token);
  if (!wanted) return std::nullopt;
  const bool is_early = wanted->round == fabric::presence_round && !are_all_present(now);
  if (fabric_.is_lost()) return to_datagram(fabric_.answer(), step_.token);
  const step::Notice* const notice = is_early ? nullptr : texts_.find(*wanted);
  return notice != nullptr ? notice->to_datagram(step_.token) : to_datagram(step::MessageType::not_yet, step_.token);
}

/// Takes a node's traits once they are complete; when those of all nodes are, reports the differences.
void MessageServer::compare_nodes(std::uint32_t node) {
  std::string text;
  std::uint32_t pieces = 1;
  for (std::uint32_t piece = 0; piece < pieces; ++piece) {
    const step::Notice* const notice = texts_.find({fabric::settings_round, node, piece});
    if (notice == nullptr) return;
    pieces = notice->pieces;
    text += notice->text;
  }
  settings_.take(node, text);
  for (const fabric::Difference& each : settings_.differences()) {
    const std::string sentence = text::concat({each.check, ": ", each.finding.evidence, ": ", each.finding.remedy});
    if (each.finding.verdict == fabric::Verdict::fail) fabric_.reject(settings_.policy(), sentence);
    else if (step_.tell != nullptr) step_.tell(text::concat({"the nodes differ: ", sentence}));
  }
  tell_decision();
}

std::optional<std::string> MessageServer::answer(step::MessageType type, Clock::time_point now) {
  switch (type) {
    case step::MessageType::may_i_end:
      return to_datagram(release_.due(now) ? step::MessageType::end : step::MessageType::not_yet, step_.token);
    case step::MessageType::which_record:
      return text_or_not_yet(step::Subject::record, step_.record);
    case step::MessageType::which_address:
      return no_address_ ? to_datagram(step::MessageType::no_address, step_.token)
                         : text_or_not_yet(step::Subject::address, address_);
    case step::MessageType::no_address:
      no_address_ = true;
      return to_datagram(step::MessageType::heard, step_.token);
    default:
      return std::nullopt;  // messages that only srun sends
  }
}

std::string MessageServer::text_or_not_yet(step::Subject subject, const std::string& text) const {
  return text.empty() ? to_datagram(step::MessageType::not_yet, step_.token) : to_datagram(subject, text, step_.token);
}

}  // namespace amldist::spank
