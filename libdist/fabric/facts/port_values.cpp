#include "fabric/facts/port_values.hpp"

#include <algorithm>
#include <span>

#include "base/text/hex.hpp"
#include "base/text/text.hpp"

namespace amldist::fabric {
namespace {

/// The number before the colon. The word after it is for people and differs between kernels.
std::optional<std::uint64_t> leading_number(std::string_view text, std::uint64_t most) noexcept {
  const auto colon = text.find(':');
  if (colon != std::string_view::npos && text::trim(text.substr(colon + 1)).empty()) return std::nullopt;
  return text::to_number(text::trim(text.substr(0, colon)), most);
}

/// Whether a text such as "4: ACTIVE" has this word, if any. Of a value that means health the word counts, too: one
/// that only begins like it is of no kernel.
bool has_word(std::string_view text, std::string_view word) {
  const auto colon = text.find(':');
  return colon == std::string_view::npos || text::to_lower(text::trim(text.substr(colon + 1))) == word;
}

std::optional<std::uint16_t> hex_number(std::string_view digits) noexcept {
  const auto number = digits.size() <= 4 ? from_hex(digits) : std::nullopt;
  return number ? std::optional(static_cast<std::uint16_t>(*number)) : std::nullopt;
}

bool all_zero(std::span<const std::uint8_t> bytes) noexcept {
  return std::ranges::all_of(bytes, [](std::uint8_t byte) { return byte == 0; });
}

/// "400" or "2.5", up to 100,000 Gb/s.
std::optional<double> parse_gigabits(std::string_view text) noexcept {
  const auto point = text.find('.');
  const auto whole = text::to_number(text.substr(0, point), 100'000);
  if (!whole) return std::nullopt;
  if (point == std::string_view::npos) return static_cast<double>(*whole);
  const auto tenth = text::to_number(text.substr(point + 1), 9);
  if (!tenth) return std::nullopt;
  return static_cast<double>(*whole) + static_cast<double>(*tenth) / 10;
}

}  // namespace

std::optional<PortState> parse_state(std::string_view text) {
  const auto number = leading_number(text, 5);
  if (!number || (*number == 4 && !has_word(text, "active"))) return std::nullopt;
  return static_cast<PortState>(*number);
}

PhysicalState parse_physical_state(std::string_view text) {
  const auto number = leading_number(text, 7);
  if (!number || (*number == 5 && !has_word(text, "linkup"))) return PhysicalState::unknown;
  return static_cast<PhysicalState>(*number);
}

std::optional<Rate> parse_rate(std::string_view text) {
  constexpr std::string_view unit = " Gb/sec";
  const auto end = text.find(unit);
  if (end == std::string_view::npos) return std::nullopt;
  const auto gbps = parse_gigabits(text.substr(0, end));
  std::string_view rest = text::trim(text.substr(end + unit.size()));
  if (!gbps || !rest.starts_with('(') || !rest.ends_with(')')) return std::nullopt;
  rest = rest.substr(1, rest.size() - 2);
  const auto x = rest.find('X');
  if (x == std::string_view::npos) return std::nullopt;
  const auto lanes = text::to_number(rest.substr(0, x), 64);
  if (!lanes || *lanes == 0) return std::nullopt;
  return Rate{*gbps, static_cast<std::uint32_t>(*lanes), std::string(text::trim(rest.substr(x + 1)))};
}

std::optional<std::uint16_t> parse_hex16(std::string_view text) noexcept {
  if (!text.starts_with("0x") && !text.starts_with("0X")) return std::nullopt;
  return hex_number(text.substr(2));
}

std::optional<Gid> Gid::parse(std::string_view text) noexcept {
  Gid gid;
  for (std::size_t group = 0; group < 8; ++group) {
    const bool last = group == 7;
    const std::size_t length = last ? text.size() : text.find(':');
    if (length != 4) return std::nullopt;
    const auto number = hex_number(text.substr(0, 4));
    if (!number) return std::nullopt;
    gid.bytes.at(2 * group) = static_cast<std::uint8_t>(*number >> 8);
    gid.bytes.at(2 * group + 1) = static_cast<std::uint8_t>(*number & 0xff);
    text.remove_prefix(last ? 4 : 5);
  }
  return gid;
}

bool Gid::is_zero() const noexcept { return all_zero(bytes); }

bool Gid::is_link_local() const noexcept {
  return bytes[0] == 0xfe && bytes[1] == 0x80 && all_zero(std::span(bytes).subspan(2, 6));
}

bool Gid::is_unconfigured() const noexcept { return is_link_local() && all_zero(std::span(bytes).subspan(8)); }

bool Gid::is_ipv4() const noexcept {
  const bool marked = bytes[10] == 0xff && bytes[11] == 0xff;
  const bool multicast = bytes[0] == 0xff && bytes[1] == 0x0e && all_zero(std::span(bytes).subspan(2, 8));
  return marked && (multicast || all_zero(std::span(bytes).first(10)));
}

bool Gid::is_ipv4_link_local() const noexcept { return is_ipv4() && bytes[12] == 169 && bytes[13] == 254; }

std::uint16_t Gid::flid() const noexcept { return static_cast<std::uint16_t>(bytes[4] << 8 | bytes[5]); }

std::string Gid::to_string() const {
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (i > 0 && i % 2 == 0) out += ':';
    append_hex(out, bytes.at(i));
  }
  return out;
}

LinkLayer parse_link_layer(std::string_view text) noexcept {
  if (text == "InfiniBand") return LinkLayer::infiniband;
  return text == "Ethernet" ? LinkLayer::ethernet : LinkLayer::other;
}

}  // namespace amldist::fabric
