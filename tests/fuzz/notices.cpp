// What nodes put up at srun for each other at launch, and what they read there: anybody may send to srun's port, and a
// node believes what seems to come from it.
#include "base/text/text.hpp"
#include "fuzz.hpp"
#include "step/messages/control_message.hpp"
#include "step/messages/datagram.hpp"
#include "step/messages/node_texts.hpp"
#include "step/messages/text_exchange.hpp"

namespace amldist::fuzz::notices {
namespace {

constexpr std::uint64_t token = 0x00c0ffee00c0ffeeULL;
constexpr std::uint64_t other_token = token ^ 1;

void check_key(std::string_view datagram, const step::TextExchange& board) {
  const auto key = step::NoticeKey::parse(datagram, token);
  if (!key) return;
  require(step::NoticeKey::parse(key->to_datagram(token), token) == key, "a question that is written is the same");
  require(!step::NoticeKey::parse(datagram, other_token), "a question bears one token");
  const step::Notice* const found = board.find(*key);
  require(found == nullptr || found->key == *key, "the board has what was asked for");
}

void check_notice(std::string_view datagram, step::TextExchange& board) {
  const auto notice = step::Notice::parse(datagram, token);
  if (!notice) return;
  require(notice->text.size() <= step::Notice::longest_text && notice->text.find(';') == std::string::npos,
          "a piece is a field of a datagram");
  require(notice->pieces >= 1 && notice->pieces <= step::Notice::most_pieces && notice->key.piece < notice->pieces,
          "a piece is one of a few");
  const std::string written = notice->to_datagram(token);
  require(written.size() <= step::longest_datagram, "a piece fits a datagram");
  const auto again = step::Notice::parse(written, token);
  require(again && again->key == notice->key && again->pieces == notice->pieces && again->text == notice->text,
          "a piece that is written is the same");
  require(!step::Notice::parse(datagram, other_token), "a piece bears one token");
  board.take(*notice);
  require(board.find(notice->key) != nullptr, "the board keeps what fits");
}

/// A node's text in pieces gives the same text again.
void check_pieces(std::string_view text) {
  constexpr std::size_t most = step::Notice::longest_text * step::Notice::most_pieces;
  std::string clean(text.substr(0, most));
  for (char& each : clean) each = each >= ' ' && each < 0x7f && each != ';' ? each : '.';
  const auto pieces = step::notices_of(3, 7, clean);
  std::string whole;
  for (const step::Notice& piece : pieces) {
    const auto read = step::Notice::parse(piece.to_datagram(token), token);
    require(read.has_value(), "every piece of a clean text can be read");
    require(read->key.piece == static_cast<std::uint32_t>(&piece - pieces.data()) && read->pieces == pieces.size(),
            "pieces are in order");
    whole += read->text;
  }
  require(whole == clean, "the pieces are the text");
}

/// A node's round against a srun that answers with the input's lines. The deadline has passed, so nothing waits.
void check_round(std::string_view answers) {
  Input lines(answers);
  const step::AskSrun srun = [&lines](const std::string& datagram) {
    require(datagram.size() <= step::longest_datagram, "a question fits a datagram");
    return std::string(lines.line());
  };
  const std::vector<std::uint32_t> peers = {0, 2, 5};
  const auto outcome = within(answers.size() * 64 + (std::size_t{1} << 20), [&] {
    return step::exchange_texts(srun, token, 1, 7, "own text", peers, Clock::time_point::min(),
                                std::chrono::milliseconds(2));
  });
  require(outcome.texts.size() <= peers.size(), "only peers are heard");
  for (const auto& [node, text] : outcome.texts) {
    require(node == 0 || node == 2 || node == 5, "only peers are heard");
    require(text.size() <= step::Notice::longest_text * step::Notice::most_pieces, "a peer's text has a limit");
  }
  require(!outcome.silent || outcome.texts.size() < peers.size(), "who is silent is not heard");
}

}  // namespace

const std::string_view separator = "\n";

/// One datagram in each line, all to one board; then the same lines as srun's answers to a node.
void try_input(std::string_view input) {
  step::TextExchange board;
  for (Input lines(input); !lines.ended();) {
    const std::string_view datagram = lines.line();
    check_notice(datagram, board);
    check_key(datagram, board);
  }
  check_pieces(input);
  check_round(input);
}

}  // namespace amldist::fuzz::notices
