#include "os/memory_map.hpp"

#include <algorithm>
#include <charconv>
#include <optional>

#include "core/text.hpp"
#include "os/whole_file.hpp"

namespace amldist {
namespace {

using text::concat;

/// A line of /proc/PID/maps: "BEGIN-END rw-p OFFSET MAJOR:MINOR INODE   NAME", the numbers but INODE in base 16.
struct MappedRegion {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  std::string_view access;
  std::uint64_t offset = 0;
  std::uint64_t inode = 0;
  std::string_view name;
};

std::optional<std::uint64_t> to_hex_number(std::string_view digits) {
  constexpr int base = 16;
  std::uint64_t number = 0;
  const char* const end = digits.data() + digits.size();
  const auto [stopped, problem] = std::from_chars(digits.data(), end, number, base);
  return problem == std::errc() && stopped == end ? std::optional(number) : std::nullopt;
}

/// Up to the separator, which is taken, too.
std::string_view take_until(std::string_view& text, char separator) {
  const std::size_t at = std::min(text.find(separator), text.size());
  const std::string_view word = text.substr(0, at);
  text.remove_prefix(std::min(at + 1, text.size()));
  return word;
}

bool is_access(std::string_view word) {
  const auto is_one_of = [&](std::size_t at, std::string_view letters) {
    return letters.find(word[at]) != std::string_view::npos;
  };
  return word.size() == 4 && is_one_of(0, "r-") && is_one_of(1, "w-") && is_one_of(2, "x-") && is_one_of(3, "ps");
}

std::optional<MappedRegion> parse_region(std::string_view line) {
  const auto begin = to_hex_number(take_until(line, '-'));
  const auto end = to_hex_number(take_until(line, ' '));
  const std::string_view access = take_until(line, ' ');
  const auto offset = to_hex_number(take_until(line, ' '));
  const std::string_view device = take_until(line, ' ');
  const auto inode = text::to_number(take_until(line, ' '), UINT64_MAX);
  const bool is_whole = begin && end && *begin < *end && is_access(access) && offset &&
                        device.find(':') != std::string_view::npos && inode;
  if (!is_whole) return std::nullopt;
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  return MappedRegion{*begin, *end, access, *offset, *inode, line};
}

std::optional<std::string> why_not_private(const MappedRegion& region) {
  if (region.access[3] == 's') return "it is shared memory already";
  if (region.inode != 0 || region.name.starts_with('/'))
    return concat({"it is mapped from the file ", text::quote(region.name)});
  if (!region.name.empty() && region.name != "[heap]" && !region.name.starts_with("[anon:"))
    return concat({"it is the process's ", text::quote(region.name)});
  if (region.access[0] != 'r' || region.access[1] != 'w')
    return concat({"it cannot be read and written (", region.access, ")"});
  if (region.access[2] == 'x') return concat({"it can be executed (", region.access, ")"});
  return std::nullopt;
}

/// Asks `judge` for a reason against each region that has a part of the range. Errors: invalid_argument, with that
/// reason, or because the regions leave a gap or are none.
template <typename Judge>
Result<void> judge_regions(std::string_view maps, std::uintptr_t begin, std::size_t bytes, Judge judge) {
  const auto refuse = [](std::string why) { return Error{Errc::invalid_argument, std::move(why)}; };
  if (bytes > UINTPTR_MAX - begin) return refuse("it goes beyond the address space");
  const std::uintptr_t end = begin + bytes;
  std::uintptr_t at = begin;  // until here every region is fine
  std::uintptr_t last = 0;
  while (!maps.empty()) {
    const auto region = parse_region(take_until(maps, '\n'));
    if (!region || region->begin < last) return refuse("/proc/self/maps has a line that this library does not know");
    last = region->end;
    if (at >= end || region->begin > at || region->end <= at) continue;
    if (auto why = judge(*region, at)) return refuse(std::move(*why));
    at = region->end;
  }
  if (at < end) return refuse("part of it is not mapped");
  return {};
}

}  // namespace

Result<std::string> own_memory_map() {
  constexpr std::size_t most = 1UL << 28;  // a million regions and more
  auto maps = read_whole_file("/proc/self/maps", most);
  if (maps && maps->empty()) return Error{Errc::unavailable, "/proc/self/maps is empty"};
  if (!maps) return Error{Errc::unavailable, concat({"/proc/self/maps cannot be read: ", maps.error().message})};
  return maps;
}

Result<void> check_private_memory(std::string_view maps, std::uintptr_t begin, std::size_t bytes) {
  return judge_regions(maps, begin, bytes,
                       [](const MappedRegion& region, std::uintptr_t) { return why_not_private(region); });
}

bool is_shared_mapping(std::string_view maps, std::uintptr_t begin, std::size_t bytes, const FilePages& pages) {
  const auto judge = [&](const MappedRegion& region, std::uintptr_t at) -> std::optional<std::string> {
    const bool is_it = region.access == "rw-s" && region.inode == pages.inode && region.name.starts_with(pages.name) &&
                       region.offset + (at - region.begin) == pages.offset + (at - begin);
    return is_it ? std::nullopt : std::optional<std::string>("other memory");
  };
  return judge_regions(maps, begin, bytes, judge).ok();
}

}  // namespace amldist
