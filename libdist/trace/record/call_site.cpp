#include "trace/record/call_site.hpp"

#include <charconv>
#include <map>

#include "base/text/hex.hpp"
#include "base/text/printable.hpp"
#include "base/text/text.hpp"

namespace amldist::trace {
namespace {

using text::concat;

struct Mapping {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::string_view path;
};

/// "7f0a1000-7f0a2000 r-xp 00001000 08:01 1234     /usr/lib/libfoo.so".
std::optional<Mapping> mapping_in(std::string_view line) {
  const auto dash = line.find('-');
  const auto blank = line.find(' ');
  const auto slash = line.find('/');
  if (dash == std::string_view::npos || blank == std::string_view::npos || blank < dash ||
      slash == std::string_view::npos)
    return std::nullopt;
  const auto begin = from_hex(line.substr(0, dash));
  const auto end = from_hex(line.substr(dash + 1, blank - dash - 1));
  return begin && end ? std::optional(Mapping{*begin, *end, line.substr(slash)}) : std::nullopt;
}

std::string_view name_of(std::string_view path) { return path.substr(path.rfind('/') + 1); }

bool is_told(std::string_view name) {
  return !name.starts_with("libmpi") && !name.starts_with("libpmpi") && !name.starts_with("libamldist") &&
         name.find(".cpython-") == std::string_view::npos && name.find(".abi3.") == std::string_view::npos;
}

}  // namespace

std::string CodePlace::words() const {
  std::string digits(16, '0');
  const auto [end, problem] = std::to_chars(digits.data(), digits.data() + digits.size(), offset, 16);
  digits.resize(problem == std::errc() ? static_cast<std::size_t>(end - digits.data()) : 0);
  return concat({text::printable(name_of(module), 40), "+0x", digits});
}

std::optional<CodePlace> find_code(std::string_view maps, std::uint64_t address) {
  std::map<std::string_view, std::uint64_t> first;  // where each file begins
  for (const std::string_view line : text::split(maps, '\n')) {
    const auto mapping = mapping_in(line);
    if (!mapping) continue;
    const std::uint64_t base = first.emplace(mapping->path, mapping->begin).first->second;
    if (address < mapping->begin || address >= mapping->end) continue;
    if (!is_told(name_of(mapping->path))) return std::nullopt;
    return CodePlace{std::string(mapping->path), address - base, address};
  }
  return std::nullopt;
}

}  // namespace amldist::trace
