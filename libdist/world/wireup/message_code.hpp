// A code after each message between nodes, which detects that a message was changed, left out, repeated or moved. `crc`
// finds errors of memory, adapters and switches that TCP's own checksum misses; `mac` also finds what an attacker on
// the network does.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "world/settings.hpp"
#include "world/wireup/key.hpp"

namespace amldist::world {

/// Bytes appended to a message under `crc` and `mac`.
inline constexpr std::size_t message_code_bytes = 16;
using MessageCode = std::array<std::byte, message_code_bytes>;

/// Makes the codes of one direction of one connection.
class MessageCodes {
 public:
  /// `key` belongs to this direction alone.
  MessageCodes(Integrity integrity, const Key& key) : integrity_(integrity), key_(key) {}
  /// The code of the next message: over its place in the sequence, its header and its data.
  [[nodiscard]] MessageCode next(std::span<const std::byte> header, std::span<const std::byte> data) noexcept;

 private:
  Integrity integrity_;
  Key key_;
  std::uint64_t sequence_ = 0;
};

/// CRC-32C (Castagnoli) of bytes that follow others with the value `before`.
[[nodiscard]] std::uint32_t crc32c(std::uint32_t before, std::span<const std::byte> bytes) noexcept;

}  // namespace amldist::world
