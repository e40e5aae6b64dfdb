// The format of all messages between srun and the nodes of its step, in two forms:
//
//   aml-dist;1;00c0ffee00c0ffee;failed;2;0;9;1234;node2                           in one process: begins with a mark
//   aml-dist;2;5a5af00d5a5af00d;0001c2d3e4f50617;1f2e3d4c5b6a7988;failed;2;0;...  on the network: sender, time, code
//
// A message on the network bears a code (SipHash) that only the step's key gives, and which srun makes and sends to the
// nodes in Slurm's launch message; no datagram contains the key. The code covers all else of the datagram, and whether
// it goes to srun or to a node. What tells a new one from one that was recorded and repeated is its stamp.
#pragma once

#include <compare>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace amldist::step {

/// Longest message that most parsers accept, in bytes.
inline constexpr std::size_t longest_datagram = 1400;
/// Longest message that srun sends, in bytes: the limit of UDP.
inline constexpr std::size_t longest_answer = 65507;

/// Longer on the network than in a process, by so many bytes.
inline constexpr std::size_t seal_bytes = 34;

/// The key of a step's datagrams. Its first half marks messages inside a process that has the key: what does not come
/// out of unseal() cannot be taken for a message.
struct Token {
  std::uint64_t mark = 0;
  std::uint64_t rest = 0;

  // NOLINTNEXTLINE(google-explicit-constructor): each message takes the mark
  constexpr operator std::uint64_t() const noexcept { return mark; }
  friend constexpr bool operator==(const Token&, const Token&) = default;
};

/// Who sent a datagram, and when: the number of a node's process and of its copies, and nanoseconds of its own steady
/// clock. No two datagrams to srun have the same. An answer has the stamp of its question.
struct Stamp {
  std::uint64_t sender = 0;
  std::uint64_t time = 0;

  friend auto operator<=>(const Stamp&, const Stamp&) = default;
};

enum class Direction : char { to_srun = 'q', to_node = 'a' };

/// The form for the network of a message with the token's mark.
[[nodiscard]] std::string seal(const Token& token, Direction direction, const Stamp& stamp, std::string_view message);

struct Unsealed {
  Stamp stamp;
  std::string message;
};
/// nullopt for a datagram that seal(token, direction, ...) cannot have written, of any length.
[[nodiscard]] std::optional<Unsealed> unseal(const Token& token, Direction direction, std::string_view datagram);

[[nodiscard]] std::string encode(std::uint64_t token, std::initializer_list<std::string_view> fields);

/// The fields, if the datagram has this version, the right token and at least one field; nullopt otherwise.
[[nodiscard]] std::optional<std::vector<std::string_view>> decode(std::string_view datagram, std::uint64_t token);

/// A token as 16 hexadecimal digits.
[[nodiscard]] std::string to_hexadecimal(std::uint64_t number);

}  // namespace amldist::step
