#include "step/messages/fabric_vote.hpp"

#include "base/text/text.hpp"
#include "launch/placement/task_map.hpp"
#include "step/messages/datagram.hpp"

namespace amldist::step {
namespace {

using text::concat;

constexpr std::size_t field_count = 7;
constexpr std::size_t longest_text = 360;  // so that the whole datagram fits longest_datagram

/// Replaces semicolons, which separate fields.
std::string without_separators(std::string_view text) {
  std::string out(text.substr(0, longest_text));
  for (char& c : out) {
    if (c == ';') c = ',';
    if (c < ' ' || c >= 0x7f) c = '?';
  }
  return out;
}

std::string_view state_of(const FabricVote& vote) {
  if (vote.passed) return "good";
  if (vote.killed) return "ended";
  return vote.link_failed ? "torn" : "sick";
}

}  // namespace

std::string FabricVote::to_datagram(std::uint64_t token) const {
  return encode(token, {"fabric", std::to_string(node), std::to_string(nodes), to_string(policy), state_of(*this),
                        without_separators(traits.substr(0, 64)), without_separators(text)});
}

std::optional<FabricVote> FabricVote::parse(std::string_view datagram, std::uint64_t token) {
  const auto fields = decode(datagram, token);
  if (!fields || fields->size() != field_count || fields->front() != "fabric") return std::nullopt;
  const auto& each = *fields;
  const auto nodes = text::to_number(each[2], most_tasks);
  const auto node = nodes && *nodes > 0 ? text::to_number(each[1], *nodes - 1) : std::nullopt;
  const bool known_policy = each[3] == "require" || each[3] == "prefer";
  const bool known_state = each[4] == "good" || each[4] == "sick" || each[4] == "torn" || each[4] == "ended";
  if (!node || !known_policy || !known_state || each[6] != without_separators(each[6])) return std::nullopt;
  return FabricVote{static_cast<std::uint32_t>(*node),
                    static_cast<std::uint32_t>(*nodes),
                    each[3] == "require" ? launch::RdmaPolicy::require : launch::RdmaPolicy::prefer,
                    each[4] == "good",
                    std::string(each[5]),
                    std::string(each[6]),
                    each[4] == "torn",
                    each[4] == "ended"};
}

void FabricTally::take(const FabricVote& vote) {
  if (nodes_ == 0) nodes_ = vote.nodes;
  if (vote.nodes != nodes_ || !reason_.empty()) return;
  policy_ = vote.policy;
  if (!vote.passed) {
    reason_ = vote.text;
    link_failed_ = vote.link_failed;
    killed_ = vote.killed;
    return;
  }
  if (passed_.empty()) {
    traits_ = vote.traits;
    first_host_ = vote.text;
  } else if (vote.traits != traits_) {
    differs_ = true;
    reason_ = concat({"P_Key is ", traits_, " on ", first_host_, " and ", vote.traits, " on ", vote.text});
    return;
  }
  passed_.insert(vote.node);
}

void FabricTally::reject(launch::RdmaPolicy policy, const std::string& reason) {
  if (!reason_.empty()) return;
  policy_ = policy;
  reason_ = reason;
  link_failed_ = true;
}

MessageType FabricTally::answer() const noexcept {
  if (!reason_.empty()) {
    return policy_ == launch::RdmaPolicy::require ? MessageType::refuse_step : MessageType::use_sockets;
  }
  return nodes_ > 0 && passed_.size() == nodes_ ? MessageType::use_fabric : MessageType::not_yet;
}

std::optional<std::string> FabricTally::line() {
  if (reason_.empty() || told_) return std::nullopt;
  told_ = true;
  if (policy_ == launch::RdmaPolicy::prefer) {
    return concat({"rdma=prefer: the whole step uses sockets instead of RDMA (NCCL_IB_DISABLE, UCX_TLS): ", reason_});
  }
  if (killed_) return reason_;
  if (link_failed_) return concat({"rdma=require failed between nodes: ", reason_});
  if (!differs_) return std::nullopt;
  return concat({"rdma=require failed between nodes: ", reason_,
                 ": their ports are in different partitions, ask for nodes of one scale set"});
}

}  // namespace amldist::step
