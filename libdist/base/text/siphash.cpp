#include "base/text/siphash.hpp"

#include <bit>

namespace amldist {
namespace {

constexpr std::size_t word_bytes = 8;

struct State {
  std::uint64_t a;
  std::uint64_t b;
  std::uint64_t c;
  std::uint64_t d;

  void rounds(int count) noexcept {
    for (; count > 0; --count) {
      a += b, b = std::rotl(b, 13) ^ a, a = std::rotl(a, 32);
      c += d, d = std::rotl(d, 16) ^ c;
      a += d, d = std::rotl(d, 21) ^ a;
      c += b, b = std::rotl(b, 17) ^ c, c = std::rotl(c, 32);
    }
  }

  void take(std::uint64_t word) noexcept {
    d ^= word;
    rounds(2);
    a ^= word;
  }
};

/// At most eight bytes as a number, the first one lowest.
std::uint64_t word_of(std::string_view bytes) noexcept {
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i)
    word |= std::uint64_t{static_cast<unsigned char>(bytes[i])} << (word_bytes * i);
  return word;
}

}  // namespace

std::uint64_t siphash(const SipKey& key, std::string_view text) noexcept {
  State state{key[0] ^ 0x736f6d6570736575, key[1] ^ 0x646f72616e646f6d, key[0] ^ 0x6c7967656e657261,
              key[1] ^ 0x7465646279746573};
  const std::uint64_t length = std::uint64_t{text.size()} << 56;
  for (; text.size() >= word_bytes; text.remove_prefix(word_bytes)) state.take(word_of(text.substr(0, word_bytes)));
  state.take(length | word_of(text));
  state.c ^= 0xff;
  state.rounds(4);
  return state.a ^ state.b ^ state.c ^ state.d;
}

}  // namespace amldist
