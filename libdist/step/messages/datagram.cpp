#include "step/messages/datagram.hpp"

#include "base/text/hex.hpp"
#include "base/text/text.hpp"

namespace amldist::step {
namespace {

constexpr std::string_view magic = "aml-dist";
constexpr std::string_view version = "1";
constexpr std::size_t head_fields = 3;
constexpr std::size_t token_digits = 16;

}  // namespace

std::string encode(std::uint64_t token, std::initializer_list<std::string_view> fields) {
  std::string datagram = text::concat({magic, ";", version, ";", to_hexadecimal(token)});
  for (const std::string_view field : fields) datagram += text::concat({";", field});
  return datagram;
}

std::optional<std::vector<std::string_view>> decode(std::string_view datagram, std::uint64_t token) {
  if (datagram.size() > longest_datagram) return std::nullopt;
  auto fields = text::split(datagram, ';');
  const bool ours =
      fields.size() > head_fields && fields[0] == magic && fields[1] == version && from_hexadecimal(fields[2]) == token;
  if (!ours) return std::nullopt;
  fields.erase(fields.begin(), fields.begin() + head_fields);
  return fields;
}

std::string to_hexadecimal(std::uint64_t number) { return to_hex(number, sizeof number); }

std::optional<std::uint64_t> from_hexadecimal(std::string_view digits) noexcept {
  if (digits.size() != token_digits || digits.find_first_of("ABCDEF") != std::string_view::npos) return std::nullopt;
  return from_hex(digits);
}

}  // namespace amldist::step
