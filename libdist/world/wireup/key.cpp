#include "world/wireup/key.hpp"

#include <sodium.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>

#include "base/text/hex.hpp"
#include "base/text/text.hpp"

namespace amldist::world {
namespace {

static_assert(key_bytes == crypto_auth_hmacsha256_BYTES && key_bytes == crypto_auth_hmacsha256_KEYBYTES &&
              key_bytes == crypto_hash_sha256_BYTES);

const unsigned char* bytes_of(std::string_view text) noexcept {
  return reinterpret_cast<const unsigned char*>(text.data());
}

/// libsodium must be initialised before use; any thread may call this at any time.
void prepare_library() noexcept {
  static const int ready = ::sodium_init();
  static_cast<void>(ready);
}

/// A length as 8 bytes, the same on every machine.
std::array<unsigned char, 8> length_in_bytes(std::size_t length) noexcept {
  std::array<unsigned char, 8> out{};
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<unsigned char>(std::uint64_t{length} >> (8 * i));
  return out;
}

}  // namespace

std::string_view as_text(const Code& code) noexcept {
  return {reinterpret_cast<const char*>(code.data()), code.size()};
}

bool are_equal(const Code& code, std::string_view bytes) noexcept {
  return bytes.size() == code.size() && ::sodium_memcmp(code.data(), bytes.data(), code.size()) == 0;
}

Result<Code> random_bytes() {
  Code out{};
  for (;;) {
    const ssize_t got = ::getrandom(out.data(), out.size(), 0);  // so few bytes come all at once or not at all
    if (got == static_cast<ssize_t>(out.size())) return out;
    if (got < 0 && errno == EINTR) continue;
    return Error{Errc::unavailable, text::concat({"cannot get random bytes from the kernel: ", std::strerror(errno)})};
  }
}

Code hash_of(std::string_view bytes) noexcept {
  prepare_library();
  Code out{};
  static_cast<void>(::crypto_hash_sha256(out.data(), bytes_of(bytes), bytes.size()));
  return out;
}

Key::~Key() { ::sodium_memzero(bytes_.data(), bytes_.size()); }

Result<Key> Key::random() {
  const auto bytes = random_bytes();
  if (!bytes) return bytes.error();
  Key key;
  key.bytes_ = *bytes;
  return key;
}

std::optional<Key> Key::from_hex(std::string_view digits) {
  if (digits.size() != 2 * key_bytes) return std::nullopt;
  Key key;
  for (std::size_t i = 0; i < key_bytes; ++i) {
    const auto byte = amldist::from_hex(digits.substr(2 * i, 2));
    if (!byte) return std::nullopt;
    key.bytes_[i] = static_cast<unsigned char>(*byte);
  }
  return key;
}

Key Key::from_secret(std::string_view secret) noexcept {
  Key key;
  key.bytes_ = hash_of(secret);
  return key;
}

std::string Key::to_hex() const {
  std::string out;
  for (const unsigned char byte : bytes_) append_hex(out, byte);
  return out;
}

Key Key::derive(std::string_view purpose) const noexcept {
  Key key;
  key.bytes_ = code_of({"key for", purpose});
  return key;
}

Code Key::code_of(std::initializer_list<std::string_view> parts) const noexcept {
  prepare_library();
  crypto_auth_hmacsha256_state state;
  static_cast<void>(::crypto_auth_hmacsha256_init(&state, bytes_.data(), bytes_.size()));
  for (const std::string_view part : parts) {
    const auto length = length_in_bytes(part.size());
    static_cast<void>(::crypto_auth_hmacsha256_update(&state, length.data(), length.size()));
    static_cast<void>(::crypto_auth_hmacsha256_update(&state, bytes_of(part), part.size()));
  }
  Code out{};
  static_cast<void>(::crypto_auth_hmacsha256_final(&state, out.data()));
  ::sodium_memzero(&state, sizeof state);
  return out;
}

std::string_view to_string(Trust trust) noexcept {
  switch (trust) {
    case Trust::open:
      return "open";
    case Trust::unproven:
      return "unproven";
    case Trust::authenticated:
      return "authenticated";
  }
  return "open";
}

}  // namespace amldist::world
