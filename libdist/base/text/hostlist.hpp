// Slurm's compressed host lists.
//
//   node1                       one host
//   node[1-3,7]                 four
//   n[001-003]                  n001 n002 n003: the width of the lower bound is kept
//   rack[0-1]b[0-2]             six, the last bracket runs fastest
//   c[1-2]-ib0                  a bracket in the middle
//   a1,b[2-3]                   several entries
//
// The list stays compressed: 10,240 hosts take as much memory as their text, and host i is found without expanding it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/result.hpp"

namespace amldist {

/// An ordered list of host names. A value; const members are thread-safe.
class Hostlist {
 public:
  /// Most hosts in one list: 2^20. No cluster is larger; a longer list is an attack.
  static constexpr std::uint64_t most_hosts = 1ULL << 20;
  /// Longest text that is read, in bytes: the kernel's limit for one environment string.
  static constexpr std::size_t longest_text = std::size_t{128} * 1024;
  /// Longest host name, in bytes (the DNS limit). Without it, a text within the limit above could expand to 2^20 names
  /// of 100 kB, or to brackets nested 40,000 deep.
  static constexpr std::size_t longest_name = 253;

  /// Errors: limit, or invalid_argument with the offending entry and its column.
  [[nodiscard]] static Result<Hostlist> parse(std::string_view text);
  /// Builds a list from many names, which together may be longer than longest_text. Each name may be a compressed
  /// entry. Errors: as parse().
  [[nodiscard]] static Result<Hostlist> from_names(std::span<const std::string> names);

  /// Number of hosts, in constant time. Repeated names count each time, as in Slurm.
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }

  /// Name of host `index` (0-based, below size()), in time logarithmic in the number of entries and ranges.
  [[nodiscard]] std::string at(std::size_t index) const;

  /// All names, in order.
  [[nodiscard]] std::vector<std::string> expand() const;

 private:
  struct Range {
    std::uint64_t low;
    std::uint64_t count;
    std::uint64_t first;  ///< numbers of the bracket before this range
    std::uint8_t width;   ///< digits, zero padded
  };
  /// An entry is stored as literal, ranges, literal, ranges, ...
  struct Part {
    std::string literal;        ///< in front of the bracket
    std::vector<Range> ranges;  ///< empty in the last part, which has only a literal
    std::uint64_t count;        ///< numbers in the bracket; 1 if there is no bracket
    std::size_t digits;         ///< of the longest number in it
  };
  struct Entry {
    std::vector<Part> parts;
    std::uint64_t first;  ///< index of its first host in the list
    std::uint64_t count;
  };

  static Result<Entry> parse_entry(std::string_view entry);
  [[nodiscard]] Result<void> append(std::string_view piece);
  static Result<Part> parse_bracket(std::string_view literal, std::string_view inside);
  static void append_host(std::string& out, const Entry& entry, std::uint64_t offset);
  static void expand_parts(std::span<const Part> parts, std::string& name, std::vector<std::string>& names);

  std::vector<Entry> entries_;
  std::size_t size_ = 0;
};

}  // namespace amldist
