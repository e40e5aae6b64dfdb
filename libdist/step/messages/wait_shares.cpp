#include "step/messages/wait_shares.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <span>

#include "base/text/text.hpp"

namespace amldist::step {
namespace {

using text::concat;
using trace::OwnWaits;
using trace::WaitedFor;

constexpr std::uint64_t whole = 1000;
constexpr std::size_t longest_host = 64;
constexpr int hexadecimal = 16;

std::string in_thousandths(double part) {
  return std::to_string(std::lround(std::clamp(part, 0.0, 1.0) * static_cast<double>(whole)));
}

std::optional<double> part_of(std::string_view digits) {
  const auto number = text::to_number(digits, whole);
  return number ? std::optional(static_cast<double>(*number) / static_cast<double>(whole)) : std::nullopt;
}

std::string in_hexadecimal(std::uint64_t number) {
  std::array<char, hexadecimal> digits{};
  const auto end = std::to_chars(digits.begin(), digits.end(), number, hexadecimal).ptr;
  return {digits.begin(), end};
}

std::string entry_of(const OwnWaits& rank) {
  std::string entry =
      concat({std::to_string(rank.rank), ":", std::to_string(rank.local_rank), ":", std::to_string(rank.calls), ":",
              in_thousandths(rank.part), ":", in_thousandths(rank.at_most), ":"});
  const std::size_t most = std::min(rank.awaited.size(), OwnWaits::most_awaited);
  std::string_view separator;
  for (const WaitedFor& each : std::span(rank.awaited).first(most)) {
    const std::string part = in_thousandths(each.part);
    if (!each.is_group && part == "0") continue;
    entry += concat({separator, each.is_group ? "g" : "r",
                     each.is_group ? in_hexadecimal(each.id) : std::to_string(each.id), "=", part});
    separator = "+";
  }
  return entry;
}

std::optional<WaitedFor> parse_awaited(std::string_view word, std::uint32_t tasks) {
  const std::size_t sign = word.find('=');
  if (word.empty() || sign == std::string_view::npos) return std::nullopt;
  const std::string_view id = word.substr(1, sign - 1);
  const auto part = part_of(word.substr(sign + 1));
  if (!part) return std::nullopt;
  if (word[0] == 'r') {
    const auto rank = text::to_number(id, tasks - 1);
    return rank ? std::optional(WaitedFor{false, *rank, *part}) : std::nullopt;
  }
  WaitedFor group{true, 0, *part};
  const auto [end, problem] = std::from_chars(id.data(), id.data() + id.size(), group.id, hexadecimal);
  if (word[0] != 'g' || problem != std::errc() || end != id.data() + id.size()) return std::nullopt;
  return group;
}

std::optional<OwnWaits> parse_entry(std::string_view entry, std::uint32_t tasks) {
  constexpr std::size_t fields = 6;
  constexpr std::uint64_t most_calls = 1ULL << 40;
  const auto words = text::split(entry, ':');
  if (words.size() != fields) return std::nullopt;
  const auto rank = text::to_number(words[0], tasks - 1);
  const auto local_rank = text::to_number(words[1], tasks - 1);
  const auto calls = text::to_number(words[2], most_calls);
  const auto part = part_of(words[3]);
  const auto at_most = part_of(words[4]);
  if (!rank || !local_rank || !calls || !part || !at_most || *at_most < *part) return std::nullopt;
  OwnWaits own{static_cast<std::uint32_t>(*rank), static_cast<std::uint32_t>(*local_rank), {}, *calls, *part, *at_most};
  if (words[5].empty()) return own;
  for (const std::string_view word : text::split(words[5], '+')) {
    const auto awaited = parse_awaited(word, tasks);
    if (!awaited || own.awaited.size() == OwnWaits::most_awaited) return std::nullopt;
    own.awaited.push_back(*awaited);
  }
  return own;
}

}  // namespace

void add_wait_share(std::string_view host, const OwnWaits& rank, std::vector<std::string>& texts) {
  const std::string entry = entry_of(rank);
  const bool fits = !texts.empty() && texts.back().size() + 1 + entry.size() <= longest_wait_shares;
  if (fits) texts.back() += concat({",", entry});
  else texts.push_back(concat({host.substr(0, longest_host), " ", entry}));
}

std::optional<std::vector<OwnWaits>> parse_wait_shares(std::string_view text, std::uint32_t tasks) {
  const std::size_t blank = text.find(' ');
  if (text.size() > longest_wait_shares || blank == std::string_view::npos || blank > longest_host || tasks == 0)
    return std::nullopt;
  const std::string_view host = text.substr(0, blank);
  if (!std::ranges::all_of(host, [](char c) { return c > ' ' && c < 0x7f; })) return std::nullopt;
  std::vector<OwnWaits> ranks;
  for (const std::string_view entry : text::split(text.substr(blank + 1), ',')) {
    auto own = parse_entry(entry, tasks);
    if (!own) return std::nullopt;
    own->host = host;
    ranks.push_back(std::move(*own));
  }
  return ranks;
}

}  // namespace amldist::step
