#include "step/cause/cause.hpp"

#include <algorithm>
#include <array>

#include "base/text/text.hpp"

namespace amldist::step {
namespace {

constexpr std::array<std::string_view, 10> words = {"none",   "out_of_memory", "exception", "peer", "space",
                                                    "killed", "fact",          "unhealthy", "link", "lost_process"};

bool is_plain(char c) noexcept { return c >= ' ' && c < 0x7f; }

}  // namespace

std::string_view to_string(Cause::Kind kind) { return words.at(static_cast<std::size_t>(kind)); }

std::optional<Cause::Kind> parse_cause_kind(std::string_view word) {
  const auto* const found = std::ranges::find(words, word);
  return found != words.end() ? std::optional(Cause::Kind{static_cast<std::uint8_t>(found - words.begin())})
                              : std::nullopt;
}

bool is_cause_text(std::string_view text) noexcept {
  return text.size() <= longest_cause && std::ranges::all_of(text, is_plain);
}

std::string clean_cause(std::string_view text, std::size_t most) {
  std::string out;
  for (const char c : text.substr(0, 4 * most)) {
    const char plain = is_plain(c) ? c : ' ';
    if (plain != ' ' || (!out.empty() && out.back() != ' ')) out += plain;
  }
  while (out.ends_with(' ')) out.pop_back();
  if (out.size() > most) out = out.substr(0, most - 3) + "...";
  return out;
}

std::string describe_bytes(std::uint64_t bytes) {
  constexpr std::array<std::string_view, 5> units = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  constexpr std::uint64_t step = 1024;
  constexpr std::uint64_t few = 10;
  std::uint64_t tenths = bytes * few;
  std::size_t unit = 0;
  if (bytes > (std::uint64_t{1} << 60)) return "over 1 EiB";
  while (tenths >= step * few && unit + 1 < units.size()) {
    tenths /= step;
    ++unit;
  }
  const bool whole = tenths % few == 0 || tenths >= few * few;
  return text::concat({std::to_string(tenths / few), whole ? "" : text::concat({".", std::to_string(tenths % few)}),
                       " ", units.at(unit)});
}

}  // namespace amldist::step
