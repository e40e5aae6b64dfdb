// Sets of TCP ports, written as administrators and the kernel write them: "20000-29999", "8080,9148-9150".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/result.hpp"

namespace amldist {

/// Ascending, disjoint ranges of ports 1..65535. A value; const members are thread-safe.
class PortRanges {
 public:
  struct Range {
    std::uint16_t low;
    std::uint16_t high;  ///< inclusive

    friend bool operator==(const Range&, const Range&) = default;
  };

  PortRanges() = default;

  /// Parses "LO-HI[,LO-HI|,PORT]...", in any order, overlaps allowed. Errors: invalid_argument, quoting the wrong
  /// piece.
  [[nodiscard]] static Result<PortRanges> parse(std::string_view text);
  [[nodiscard]] std::string to_string() const;

  /// These ports without `taken`.
  [[nodiscard]] PortRanges without(const PortRanges& taken) const;

  [[nodiscard]] std::uint32_t size() const noexcept;
  [[nodiscard]] bool empty() const noexcept { return ranges_.empty(); }
  [[nodiscard]] bool contains(std::uint16_t port) const noexcept;
  /// The `index`-th smallest port of the set, from 0; `index` must be below size().
  [[nodiscard]] std::uint16_t at(std::uint32_t index) const noexcept;

  friend bool operator==(const PortRanges&, const PortRanges&) = default;

 private:
  void normalize();

  std::vector<Range> ranges_;
};

/// The default if the site sets no range: 20000-29999, below the ephemeral ports of Linux.
[[nodiscard]] PortRanges default_port_range();

}  // namespace amldist
