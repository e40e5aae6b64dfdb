// What tells a message between nodes that was changed, left out, repeated or moved from one that was not: a code behind
// each message. `crc` finds errors of memory, adapters and switches that TCP's own checksum lets pass; `mac` finds what
// an attacker on the network does, too.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "world/settings.hpp"
#include "world/wireup/key.hpp"

namespace amldist::world {

/// Bytes behind a message under `crc` and `mac`.
inline constexpr std::size_t message_code_bytes = 16;
using MessageCode = std::array<std::byte, message_code_bytes>;

/// The codes of one direction of one connection.
class MessageCodes {
 public:
  /// `key` is this direction's own.
  MessageCodes(Integrity integrity, const Key& key) : integrity_(integrity), key_(key) {}
  /// The code of the next message: of its place in the sequence, its header and its data.
  [[nodiscard]] MessageCode next(std::span<const std::byte> header, std::span<const std::byte> data) noexcept;

 private:
  Integrity integrity_;
  Key key_;
  std::uint64_t sequence_ = 0;
};

/// CRC-32C (Castagnoli) of bytes behind others whose value is `before`.
[[nodiscard]] std::uint32_t crc32c(std::uint32_t before, std::span<const std::byte> bytes) noexcept;

}  // namespace amldist::world
