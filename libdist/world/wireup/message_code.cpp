#include "world/wireup/message_code.hpp"

#include <sodium.h>

#include <cstring>
#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace amldist::world {
namespace {

constexpr std::uint32_t polynomial = 0x82f63b78;  // Castagnoli's, reflected

constexpr std::array<std::uint32_t, 256> make_table() noexcept {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < table.size(); ++i) {
    std::uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value & 1) != 0 ? value >> 1 ^ polynomial : value >> 1;
    table[i] = value;
  }
  return table;
}

std::uint32_t crc_by_table(std::uint32_t value, std::span<const std::byte> bytes) noexcept {
  static constexpr auto table = make_table();
  for (const std::byte each : bytes) {
    value = table[(value ^ static_cast<std::uint32_t>(each)) & 0xff] ^ value >> 8;
  }
  return value;
}

#if defined(__x86_64__)
[[gnu::target("sse4.2")]] std::uint32_t crc_by_instruction(std::uint32_t value,
                                                           std::span<const std::byte> bytes) noexcept {
  std::uint64_t wide = value;
  for (; bytes.size() >= sizeof wide; bytes = bytes.subspan(sizeof wide)) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data(), sizeof word);
    wide = _mm_crc32_u64(wide, word);
  }
  return crc_by_table(static_cast<std::uint32_t>(wide), bytes);
}
#endif

std::array<std::byte, 8> in_bytes(std::uint64_t number) noexcept {
  std::array<std::byte, 8> out{};
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<std::byte>(number >> (8 * i));
  return out;
}

const unsigned char* raw(std::span<const std::byte> bytes) noexcept {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

}  // namespace

std::uint32_t crc32c(std::uint32_t before, std::span<const std::byte> bytes) noexcept {
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2") != 0;
  if (has_instruction) return ~crc_by_instruction(~before, bytes);
#endif
  return ~crc_by_table(~before, bytes);
}

MessageCode MessageCodes::next(std::span<const std::byte> header, std::span<const std::byte> data) noexcept {
  const auto sequence = in_bytes(sequence_++);
  MessageCode code{};
  if (integrity_ == Integrity::crc) {
    const auto value = in_bytes(crc32c(crc32c(crc32c(0, sequence), header), data));
    std::memcpy(code.data(), value.data(), value.size());
  } else if (integrity_ == Integrity::mac) {
    const std::string_view key = key_.view();
    crypto_generichash_state state;
    static_cast<void>(
        ::crypto_generichash_init(&state, reinterpret_cast<const unsigned char*>(key.data()), key.size(), code.size()));
    for (const std::span<const std::byte> part : {std::span<const std::byte>(sequence), header, data}) {
      static_cast<void>(::crypto_generichash_update(&state, raw(part), part.size()));
    }
    static_cast<void>(::crypto_generichash_final(&state, reinterpret_cast<unsigned char*>(code.data()), code.size()));
  }
  return code;
}

}  // namespace amldist::world
