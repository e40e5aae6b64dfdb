#include "step/messages/node_texts.hpp"

#include <algorithm>
#include <memory>
#include <thread>

#include "step/messages/control_message.hpp"
#include "step/messages/datagram.hpp"

namespace amldist::step {
namespace {

/// One node's text in one round.
class Round {
 public:
  Round(const AskSrun& srun, std::uint64_t token, Clock::time_point deadline, std::chrono::milliseconds longest_pause)
      : srun_(srun), token_(token), deadline_(deadline), longest_pause_(longest_pause) {}

  /// Whether srun has all pieces.
  bool put_up(const std::vector<Notice>& own) {
    return std::ranges::all_of(own, [this](const Notice& piece) {
      return until([&] { return is_heard(answer_to(piece.to_datagram(token_))); });
    });
  }

  /// A peer's whole text, or nullopt.
  std::optional<std::string> read(std::uint32_t round, std::uint32_t peer) {
    std::string out;
    std::uint32_t pieces = 1;
    for (std::uint32_t piece = 0; piece < pieces; ++piece) {
      const NoticeKey wanted{round, peer, piece};
      const bool came = until([&] {
        const auto notice = Notice::parse(answer_to(wanted.to_datagram(token_)), token_);
        if (!notice || notice->key != wanted) return false;
        pieces = notice->pieces;
        out += notice->text;
        return true;
      });
      if (!came) return std::nullopt;
    }
    return out;
  }

  [[nodiscard]] bool is_decided() const noexcept { return is_decided_; }
  [[nodiscard]] bool srun_answered() const noexcept { return srun_answered_; }

 private:
  /// Tries until it succeeds, srun has decided, or the time is over.
  template <typename Try>
  bool until(Try attempt) {
    auto pause = std::chrono::milliseconds(2);
    while (!attempt()) {
      if (is_decided_ || Clock::now() >= deadline_) return false;
      std::this_thread::sleep_for(pause);
      pause = std::min(pause * 2, longest_pause_);
    }
    return true;
  }

  std::string answer_to(const std::string& datagram) {
    std::string answer = srun_(datagram);
    const auto word = parse_message_type(answer, token_);
    if (word == MessageType::use_sockets || word == MessageType::refuse_step) is_decided_ = true;
    srun_answered_ = srun_answered_ || !answer.empty();
    return answer;
  }

  [[nodiscard]] bool is_heard(const std::string& answer) const {
    return parse_message_type(answer, token_) == MessageType::heard;
  }

  const AskSrun& srun_;
  std::uint64_t token_;
  Clock::time_point deadline_;
  std::chrono::milliseconds longest_pause_;
  bool is_decided_ = false;
  bool srun_answered_ = false;
};

}  // namespace

AskSrun ask_over(const SrunLink& srun) {
  const auto socket = std::make_shared<NodeSocket>(srun);
  return [socket](const std::string& message) -> std::string {
    constexpr std::chrono::milliseconds patience{100};
    while (!socket->answer(std::chrono::milliseconds(0)).empty()) continue;  // late answers to earlier questions
    socket->send(message);
    return socket->answer(patience);
  };
}

namespace {

/// A node that waits in the first round for a missing node reports it before nodes that wait, in later rounds, for the
/// waiting one: else they would name a node that is present.
Clock::time_point deadline_of(std::uint32_t round, Clock::time_point deadline) {
  constexpr std::uint32_t most = 8;
  return deadline + std::min(round, most) * std::chrono::seconds(1);  // the nodes do not start at the same moment
}

}  // namespace

RoundOutcome exchange_texts(const AskSrun& srun, std::uint64_t token, std::uint32_t round, std::uint32_t node,
                            std::string_view text, std::span<const std::uint32_t> peers, Clock::time_point deadline,
                            std::chrono::milliseconds longest_pause) {
  Round own(srun, token, deadline_of(round, deadline), longest_pause);
  RoundOutcome out;
  const bool up = own.put_up(notices_of(round, node, text));
  for (const std::uint32_t peer : peers) {
    if (!up || own.is_decided() || out.silent) break;
    if (auto said = own.read(round, peer)) out.texts[peer] = std::move(*said);
    else if (!own.is_decided()) out.silent = peer;
  }
  out.is_decided = own.is_decided();
  out.srun_answered = own.srun_answered();
  return out;
}

}  // namespace amldist::step
