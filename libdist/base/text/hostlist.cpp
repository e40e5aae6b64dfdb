#include "base/text/hostlist.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <charconv>

#include "base/text/text.hpp"

namespace amldist {
namespace {

using text::concat;
using text::quote;

constexpr std::size_t longest_number = 18;  // digits: fits 64 bits with room for arithmetic

Error bad(std::string_view what, std::string_view piece) {
  return {Errc::invalid_argument, concat({"host list: ", what, " in ", quote(piece)})};
}

Error too_long(std::string_view entry) {
  return {Errc::limit, concat({"host list: a name of more than ", std::to_string(Hostlist::longest_name),
                               " characters in ", quote(entry)})};
}

bool is_name_character(char c) {
  // What Slurm and DNS allow. Other characters would break a reader of the result (JSON, shells, lists).
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
}

/// End of the entry that begins at `start`: the next comma outside brackets.
std::size_t entry_end(std::string_view text, std::size_t start) {
  bool inside = false;
  for (std::size_t i = start; i < text.size(); ++i) {
    if (text[i] == '[') inside = true;
    if (text[i] == ']') inside = false;
    if (text[i] == ',' && !inside) return i;
  }
  return text.size();
}

void append_padded(std::string& out, std::uint64_t number, std::size_t width) {
  std::array<char, 24> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
  const auto length = static_cast<std::size_t>(end - digits.data());
  if (length < width) out.append(width - length, '0');
  out.append(digits.data(), length);
}

/// Adds one to the decimal number that begins at `start` and goes to the end; 999 becomes 1000.
void increment(std::string& text, std::size_t start) {
  std::size_t i = text.size();
  while (i > start && text[i - 1] == '9') text[--i] = '0';
  if (i > start) ++text[i - 1];
  else text.insert(start, 1, '1');
}

}  // namespace

Result<Hostlist::Part> Hostlist::parse_bracket(std::string_view literal, std::string_view inside) {
  Part part{std::string(literal), {}, 0, 0};
  for (const std::string_view piece : text::split(inside, ',')) {
    const auto dash = piece.find('-');
    const std::string_view low_text = piece.substr(0, dash);
    const std::string_view high_text = dash == std::string_view::npos ? low_text : piece.substr(dash + 1);
    if (low_text.size() > longest_number || high_text.size() > longest_number)
      return bad("the number is too long", piece);
    constexpr std::uint64_t any = 999'999'999'999'999'999;
    const auto low = text::to_number(low_text, any);
    const auto high = text::to_number(high_text, any);
    if (!low || !high) return bad("not a number", inside);
    if (*high < *low) return bad("the range is reversed", piece);
    const std::uint64_t count = *high - *low + 1;
    const std::uint64_t first = part.count;
    part.count += count;
    if (part.count > most_hosts)
      return Error{Errc::limit, concat({"host list: more than 2^20 hosts in ", quote(inside)})};
    part.digits = std::max({part.digits, low_text.size(), high_text.size()});
    part.ranges.push_back({*low, count, first, static_cast<std::uint8_t>(low_text.size())});
  }
  return part;
}

Result<Hostlist::Entry> Hostlist::parse_entry(std::string_view entry) {
  Entry out{{}, 0, 1};
  std::size_t longest = 0;
  std::string_view rest = entry;
  while (!rest.empty()) {
    const auto open = rest.find('[');
    const std::string_view literal = rest.substr(0, open);
    longest += literal.size();
    if (longest > longest_name) return too_long(entry);
    if (!std::ranges::all_of(literal, is_name_character))
      return bad("a node name cannot contain this character", entry);
    if (open == std::string_view::npos) {
      out.parts.push_back({std::string(literal), {}, 1, 0});
      break;
    }
    const auto close = rest.find(']', open);
    if (close == std::string_view::npos) return bad("'[' without ']'", entry);
    auto part = parse_bracket(literal, rest.substr(open + 1, close - open - 1));
    if (!part) return part.error();
    if (out.count > most_hosts / part->count) {
      return Error{Errc::limit, concat({"host list: more than 2^20 hosts in ", quote(entry)})};
    }
    longest += part->digits;
    if (longest > longest_name) return too_long(entry);
    out.count *= part->count;
    out.parts.push_back(std::move(*part));
    rest.remove_prefix(close + 1);
  }
  return out;
}

Result<Hostlist> Hostlist::parse(std::string_view text) {
  if (text.size() > longest_text) {
    return Error{Errc::limit, concat({"host list: ", std::to_string(text.size()), " bytes long; the limit is ",
                                      std::to_string(longest_text), " bytes"})};
  }
  Hostlist list;
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t end = entry_end(text, start);
    const std::string_view piece = text.substr(start, end - start);
    if (piece.empty()) return bad(text.empty() ? "the list is empty" : "empty entry", text);
    if (auto status = list.append(piece); !status) return status.error();
    start = end + 1;
  }
  return list;
}

Result<Hostlist> Hostlist::from_names(std::span<const std::string> names) {
  Hostlist list;
  for (const std::string& name : names) {
    if (name.empty()) return bad("empty entry", name);
    if (auto status = list.append(name); !status) return status.error();
  }
  return list;
}

Result<void> Hostlist::append(std::string_view piece) {
  auto entry = parse_entry(piece);
  if (!entry) return entry.error();
  entry->first = size_;
  size_ += entry->count;
  if (size_ > most_hosts) return Error{Errc::limit, "host list: more than 2^20 hosts"};
  entries_.push_back(std::move(*entry));
  return {};
}

void Hostlist::append_host(std::string& out, const Entry& entry, std::uint64_t offset) {
  std::uint64_t remaining = entry.count;
  for (const Part& part : entry.parts) {
    out += part.literal;
    if (part.ranges.empty()) continue;
    remaining /= part.count;  // hosts for each number of this bracket
    const std::uint64_t index = offset / remaining;
    offset %= remaining;
    const Range& range = *std::prev(std::ranges::upper_bound(part.ranges, index, {}, &Range::first));
    append_padded(out, range.low + (index - range.first), range.width);
  }
}

void Hostlist::expand_parts(std::span<const Part> parts, std::string& name, std::vector<std::string>& names) {
  if (parts.empty()) {
    names.push_back(name);
    return;
  }
  const std::size_t before = name.size();
  const Part& part = parts.front();
  name += part.literal;
  const std::size_t digits = name.size();
  if (part.ranges.empty()) expand_parts(parts.subspan(1), name, names);
  for (const Range& range : part.ranges) {
    name.resize(digits);
    append_padded(name, range.low, range.width);
    for (std::uint64_t i = 0; i < range.count; ++i) {
      if (i > 0) increment(name, digits);
      expand_parts(parts.subspan(1), name, names);
    }
  }
  name.resize(before);
}

std::string Hostlist::at(std::size_t index) const {
  assert(index < size_);
  const auto after = std::ranges::upper_bound(entries_, static_cast<std::uint64_t>(index), {}, &Entry::first);
  const Entry& entry = *std::prev(after);
  std::string name;
  append_host(name, entry, index - entry.first);
  return name;
}

std::vector<std::string> Hostlist::expand() const {
  std::vector<std::string> names;
  names.reserve(size_);
  std::string name;
  for (const Entry& entry : entries_) expand_parts(entry.parts, name, names);
  return names;
}

}  // namespace amldist
