// Bytes as hexadecimal text.
#pragma once

#include <string>

namespace amldist {

/// Appends two lower-case digits: 0x0a gives "0a".
inline void append_hex(std::string& out, unsigned char byte) {
  constexpr char digits[] = "0123456789abcdef";
  out += digits[byte >> 4];
  out += digits[byte & 15];
}

}  // namespace amldist
