// Keys that only the processes of a step know. HMAC-SHA-256, comparison and erasure are libsodium's.
//
// A key is never printed, and no message contains one. derive() makes keys for other purposes, so that a code made for
// one purpose is invalid for another.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "base/text/result.hpp"

namespace amldist::world {

/// Sizes of a key, of a code and of a nonce, in bytes.
inline constexpr std::size_t key_bytes = 32;

/// An authentication code, or a hash.
using Code = std::array<unsigned char, key_bytes>;

[[nodiscard]] std::string_view as_text(const Code& code) noexcept;
/// Compares in constant time.
[[nodiscard]] bool are_equal(const Code& code, std::string_view bytes) noexcept;
/// Fresh bytes from the kernel's generator. Errors: unavailable.
[[nodiscard]] Result<Code> random_bytes();
/// SHA-256.
[[nodiscard]] Code hash_of(std::string_view bytes) noexcept;

class Key {
 public:
  /// The public key of an open world.
  Key() noexcept = default;
  ~Key();
  Key(const Key&) noexcept = default;
  Key& operator=(const Key&) noexcept = default;

  /// Errors: unavailable if the kernel gives no random bytes.
  [[nodiscard]] static Result<Key> random();
  /// The key written as 64 hexadecimal digits.
  [[nodiscard]] static std::optional<Key> from_hex(std::string_view digits);
  /// A key derived from a secret of any length.
  [[nodiscard]] static Key from_secret(std::string_view secret) noexcept;
  /// Only for passing the key to another process of the step.
  [[nodiscard]] std::string to_hex() const;

  /// Only for libsodium's functions.
  [[nodiscard]] std::string_view view() const noexcept { return as_text(bytes_); }

  /// A separate key for a purpose.
  [[nodiscard]] Key derive(std::string_view purpose) const noexcept;
  /// The code of a sequence of texts. No other sequence has the same code, however its bytes are divided.
  [[nodiscard]] Code code_of(std::initializer_list<std::string_view> parts) const noexcept;

  friend bool operator==(const Key& one, const Key& other) noexcept {
    return are_equal(one.bytes_, as_text(other.bytes_));
  }

 private:
  Code bytes_{};
};

/// How well a world's key keeps strangers out.
enum class Trust : std::uint8_t {
  open,           ///< there is no secret
  unproven,       ///< it came over a service that others may read: a store, PMIx, MPI
  authenticated,  ///< each process got it directly: from the environment, its caller, or a file of the user
};
/// "open", "unproven", "authenticated".
[[nodiscard]] std::string_view to_string(Trust trust) noexcept;

/// A secret, and how far it can be trusted.
struct Credentials {
  Key key;
  Trust trust = Trust::open;
};

}  // namespace amldist::world
