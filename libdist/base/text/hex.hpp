// Hexadecimal text: bytes and numbers as digits, and back.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace amldist {

/// Appends two lower-case digits: 0x0a gives "0a".
inline void append_hex(std::string& out, unsigned char byte) {
  constexpr char digits[] = "0123456789abcdef";
  out += digits[byte >> 4];
  out += digits[byte & 15];
}

/// The last `bytes` bytes of a number, two lower-case digits each: to_hex(0x1a, 2) is "001a".
[[nodiscard]] inline std::string to_hex(std::uint64_t number, int bytes) {
  std::string out;
  for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8)
    append_hex(out, static_cast<unsigned char>(number >> shift));
  return out;
}

/// The number written as 1 to 16 digits, in either case and without "0x"; nullopt for any other text.
[[nodiscard]] constexpr std::optional<std::uint64_t> from_hex(std::string_view digits) noexcept {
  if (digits.empty() || digits.size() > 16) return std::nullopt;
  std::uint64_t number = 0;
  for (const char c : digits) {
    const int value = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (value < 0) return std::nullopt;
    number = number << 4 | static_cast<std::uint64_t>(value);
  }
  return number;
}

}  // namespace amldist
