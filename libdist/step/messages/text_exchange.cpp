#include "step/messages/text_exchange.hpp"

#include <algorithm>

#include "base/text/text.hpp"
#include "launch/placement/task_map.hpp"
#include "step/messages/datagram.hpp"

namespace amldist::step {
namespace {

constexpr std::uint32_t most_rounds = 100'000;

std::optional<NoticeKey> key_of(std::string_view round, std::string_view node, std::string_view piece) {
  const auto round_number = text::to_number(round, most_rounds);
  const auto node_number = text::to_number(node, most_tasks);
  const auto piece_number = text::to_number(piece, Notice::most_pieces - 1);
  if (!round_number || !node_number || !piece_number) return std::nullopt;
  return NoticeKey{static_cast<std::uint32_t>(*round_number), static_cast<std::uint32_t>(*node_number),
                   static_cast<std::uint32_t>(*piece_number)};
}

}  // namespace

std::string NoticeKey::to_datagram(std::uint64_t token) const {
  return encode(token, {"read-notice", std::to_string(round), std::to_string(node), std::to_string(piece)});
}

std::optional<NoticeKey> NoticeKey::parse(std::string_view datagram, std::uint64_t token) {
  const auto fields = decode(datagram, token);
  if (!fields || fields->size() != 4 || fields->front() != "read-notice") return std::nullopt;
  return key_of((*fields)[1], (*fields)[2], (*fields)[3]);
}

std::string Notice::to_datagram(std::uint64_t token) const {
  return encode(token, {"notice", std::to_string(key.round), std::to_string(key.node), std::to_string(key.piece),
                        std::to_string(pieces), text});
}

std::optional<Notice> Notice::parse(std::string_view datagram, std::uint64_t token) {
  const auto fields = decode(datagram, token);
  if (!fields || fields->size() != 6 || fields->front() != "notice") return std::nullopt;
  const auto key = key_of((*fields)[1], (*fields)[2], (*fields)[3]);
  const auto pieces = text::to_number((*fields)[4], most_pieces);
  if (!key || !pieces || key->piece >= *pieces || fields->back().size() > longest_text) return std::nullopt;
  return Notice{*key, static_cast<std::uint32_t>(*pieces), std::string(fields->back())};
}

std::vector<Notice> notices_of(std::uint32_t round, std::uint32_t node, std::string_view text) {
  text = text.substr(0, Notice::longest_text * Notice::most_pieces);
  const auto pieces = static_cast<std::uint32_t>(
      std::max<std::size_t>(1, (text.size() + Notice::longest_text - 1) / Notice::longest_text));
  std::vector<Notice> out;
  out.reserve(pieces);
  for (std::uint32_t piece = 0; piece < pieces; ++piece) {
    out.push_back({{round, node, piece}, pieces, std::string(text.substr(0, Notice::longest_text))});
    text.remove_prefix(std::min(text.size(), Notice::longest_text));
  }
  return out;
}

void TextExchange::take(const Notice& notice) {
  constexpr std::size_t overhead = 128;
  if (bytes_ + notice.text.size() + overhead > most_) return;
  if (notices_.emplace(notice.key, notice).second) bytes_ += notice.text.size() + overhead;
}

const Notice* TextExchange::find(const NoticeKey& key) const {
  const auto found = notices_.find(key);
  return found == notices_.end() ? nullptr : &found->second;
}

}  // namespace amldist::step
