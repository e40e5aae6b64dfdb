// How nodes of a step exchange texts before its tasks start, when they can only reach srun: each posts notices there,
// and reads those of its peers. In a round each node posts one text. Long texts are cut into pieces.
//
//   aml-dist;1;00c0ffee00c0ffee;notice;0;2;1;3;TEXT    round, node, piece, pieces: to srun, and its answer to a reader
//   aml-dist;1;00c0ffee00c0ffee;read-notice;0;2;1      to srun: round, node, piece
//   aml-dist;1;00c0ffee00c0ffee;heard | not-yet        srun's answers; or the decision, where it has been made
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace amldist::step {

/// Identifies one piece of one node's text.
struct NoticeKey {
  std::uint32_t round = 0;
  std::uint32_t node = 0;
  std::uint32_t piece = 0;

  /// The question for this piece.
  [[nodiscard]] std::string to_datagram(std::uint64_t token) const;
  /// nullopt for a datagram that to_datagram(token) cannot have written.
  [[nodiscard]] static std::optional<NoticeKey> parse(std::string_view datagram, std::uint64_t token);

  friend auto operator<=>(const NoticeKey&, const NoticeKey&) = default;
};

/// One piece.
struct Notice {
  NoticeKey key;
  std::uint32_t pieces = 1;
  std::string text;  ///< without ';'; at most longest_text bytes

  static constexpr std::size_t longest_text = 400;
  static constexpr std::uint32_t most_pieces = 64;

  [[nodiscard]] std::string to_datagram(std::uint64_t token) const;
  /// nullopt for a datagram that to_datagram(token) cannot have written.
  [[nodiscard]] static std::optional<Notice> parse(std::string_view datagram, std::uint64_t token);
};

/// A node's text of a round in pieces; whatever exceeds most_pieces is cut off.
[[nodiscard]] std::vector<Notice> notices_of(std::uint32_t round, std::uint32_t node, std::string_view text);

/// srun's side: keeps the notices.
class TextExchange {
 public:
  static constexpr std::size_t most_bytes = std::size_t{64} << 20;

  /// `most`: bytes; further notices are not kept.
  explicit TextExchange(std::size_t most = most_bytes) : most_(most) {}

  void take(const Notice& notice);
  /// nullptr if it has not arrived.
  [[nodiscard]] const Notice* find(const NoticeKey& key) const;

 private:
  std::map<NoticeKey, Notice> notices_;
  std::size_t bytes_ = 0;
  std::size_t most_;
};

}  // namespace amldist::step
