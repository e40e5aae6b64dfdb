#include "step/messages/datagram.hpp"

#include "base/text/hex.hpp"
#include "base/text/siphash.hpp"
#include "base/text/text.hpp"

namespace amldist::step {
namespace {

constexpr std::string_view magic = "aml-dist";
constexpr std::string_view version = "1";
constexpr std::size_t head_fields = 3;
constexpr std::size_t token_digits = 16;

/// Before the stamp of a sealed message; three numbers of fixed width follow, each with its ';'.
constexpr std::string_view sealed_head = "aml-dist;2;";
constexpr std::size_t field_bytes = token_digits + 1;

std::string code_of(const Token& token, Direction direction, const Stamp& stamp, std::string_view fields) {
  const std::string covered = text::concat({std::string_view(reinterpret_cast<const char*>(&direction), 1),
                                            to_hexadecimal(stamp.sender), to_hexadecimal(stamp.time), fields});
  return to_hexadecimal(siphash({token.mark, token.rest}, covered));
}

/// Takes as long wherever the two differ: how many digits of a forged code are right cannot be measured.
bool are_equal(std::string_view one, std::string_view other) noexcept {
  unsigned char difference = one.size() == other.size() ? 0 : 1;
  for (std::size_t i = 0; i < one.size() && i < other.size(); ++i)
    difference |= static_cast<unsigned char>(one[i] ^ other[i]);
  return difference == 0;
}

}  // namespace

std::string seal(const Token& token, Direction direction, const Stamp& stamp, std::string_view message) {
  const std::string head = encode(token, {});
  const std::string_view fields = message.starts_with(head) ? message.substr(head.size()) : std::string_view();
  return text::concat({sealed_head, to_hexadecimal(stamp.sender), ";", to_hexadecimal(stamp.time), ";",
                       code_of(token, direction, stamp, fields), fields});
}

std::optional<Unsealed> unseal(const Token& token, Direction direction, std::string_view datagram) {
  constexpr std::size_t head_bytes = sealed_head.size() + 3 * field_bytes - 1;
  if (datagram.size() < head_bytes || datagram.size() > longest_answer || !datagram.starts_with(sealed_head))
    return std::nullopt;
  const auto sender = from_hex(datagram.substr(sealed_head.size(), token_digits));
  const auto time = from_hex(datagram.substr(sealed_head.size() + field_bytes, token_digits));
  if (!sender || !time) return std::nullopt;
  Unsealed out{{*sender, *time}, text::concat({encode(token, {}), datagram.substr(head_bytes)})};
  if (!are_equal(seal(token, direction, out.stamp, out.message), datagram)) return std::nullopt;
  return out;
}

std::string encode(std::uint64_t token, std::initializer_list<std::string_view> fields) {
  std::string datagram = text::concat({magic, ";", version, ";", to_hexadecimal(token)});
  for (const std::string_view field : fields) datagram += text::concat({";", field});
  return datagram;
}

std::optional<std::vector<std::string_view>> decode(std::string_view datagram, std::uint64_t token) {
  if (datagram.size() > longest_datagram) return std::nullopt;
  auto fields = text::split(datagram, ';');
  const bool ours =
      fields.size() > head_fields && fields[0] == magic && fields[1] == version && fields[2] == to_hexadecimal(token);
  if (!ours) return std::nullopt;
  fields.erase(fields.begin(), fields.begin() + head_fields);
  return fields;
}

std::string to_hexadecimal(std::uint64_t number) { return to_hex(number, sizeof number); }

}  // namespace amldist::step
