// Which nodes of a step have which Slurm node features. Only features that the site's rules mention are kept.
//
//   ib:0-3+h100:1,3      nodes 0 to 3 have ib, 1 and 3 have h100 too
//
// Node numbers are indices into the step's host list.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/result.hpp"

namespace amldist::launch {

/// Features by name, each with the nodes that have it. A value; const members are thread-safe.
class NodeFeatures {
 public:
  /// Adds a feature to a node. The nodes of one feature must come in ascending order.
  void add(std::string_view feature, std::uint32_t node);

  [[nodiscard]] bool empty() const noexcept { return nodes_of_.empty(); }
  [[nodiscard]] bool on_any(std::string_view feature) const noexcept;
  [[nodiscard]] bool on(std::string_view feature, std::uint32_t node) const noexcept;

  [[nodiscard]] std::string to_string() const;
  /// Errors: invalid_argument for a text that to_string() cannot have written, including the empty text.
  [[nodiscard]] static Result<NodeFeatures> parse(std::string_view text);

  friend bool operator==(const NodeFeatures&, const NodeFeatures&) = default;

 private:
  struct Range {
    std::uint32_t low;
    std::uint32_t high;  ///< inclusive

    friend bool operator==(const Range&, const Range&) = default;
  };
  static bool parse_range(std::string_view text, std::vector<Range>& ranges);

  std::map<std::string, std::vector<Range>, std::less<>> nodes_of_;
};

/// Whether a feature may have this name: printable, at most 64 characters, without + : , ; and =.
[[nodiscard]] bool is_feature_name(std::string_view name) noexcept;

}  // namespace amldist::launch
