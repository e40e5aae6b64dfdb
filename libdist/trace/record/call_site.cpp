#include "trace/record/call_site.hpp"

#include <charconv>
#include <map>

#include "base/memory/memory_map.hpp"
#include "base/text/printable.hpp"
#include "base/text/text.hpp"

namespace amldist::trace {
namespace {

using text::concat;

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
    const auto region = MappedRegion::parse(line);
    if (!region || !region->name.starts_with('/')) continue;
    const std::uint64_t base = first.emplace(region->name, region->begin).first->second;
    if (address < region->begin || address >= region->end) continue;
    if (!is_told(name_of(region->name))) return std::nullopt;
    return CodePlace{std::string(region->name), address - base, address};
  }
  return std::nullopt;
}

}  // namespace amldist::trace
