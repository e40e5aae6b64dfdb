#include "base/memory/memory_map.hpp"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <utility>

#include "base/os/whole_file.hpp"
#include "base/text/hex.hpp"
#include "base/text/text.hpp"

namespace amldist {
namespace {

using text::concat;

/// Takes the text up to the separator, and the separator.
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

}  // namespace

std::optional<MappedRegion> MappedRegion::parse(std::string_view line) {
  const auto begin = from_hex(take_until(line, '-'));
  const auto end = from_hex(take_until(line, ' '));
  const std::string_view access = take_until(line, ' ');
  const auto offset = from_hex(take_until(line, ' '));
  const std::string_view device = take_until(line, ' ');
  const auto inode = text::to_number(take_until(line, ' '), UINT64_MAX);
  const bool is_whole = begin && end && *begin < *end && is_access(access) && offset &&
                        device.find(':') != std::string_view::npos && inode;
  if (!is_whole) return std::nullopt;
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  return MappedRegion{*begin, *end, access, *offset, *inode, line};
}

namespace {

/// In smaps, lines like "Rss: 8 kB" follow the line of a region. Addresses are in lower case.
bool is_field(std::string_view line) { return !line.empty() && line.front() >= 'A' && line.front() <= 'Z'; }

constexpr std::string_view flags_field = "VmFlags:";

/// `flags`: the words after "VmFlags:" (Linux: Documentation/filesystems/proc.rst).
std::optional<std::string> why_not_plain(std::string_view flags) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 5> reasons = {{
      {"lo", "it is locked (mlock)"},
      {"gd", "it is a stack"},
      {"dc", "children do not inherit it (MADV_DONTFORK)"},
      {"wf", "children find it empty (MADV_WIPEONFORK)"},
      {"dd", "it is kept out of core dumps (MADV_DONTDUMP)"},
  }};
  const auto words = text::split(flags, ' ');
  for (const auto& [flag, why] : reasons) {
    if (std::ranges::find(words, flag) != words.end()) return std::string(why);
  }
  return std::nullopt;
}

std::optional<std::string> why_not_private(const MappedRegion& region) {
  if (region.access[3] == 's') return "it is shared memory already";
  if (region.inode != 0 || region.name.starts_with('/'))
    return concat({"it is mapped from the file ", text::quote(region.name)});
  const bool is_anonymous = region.name.starts_with("[anon:") && region.name.find("stack") == std::string_view::npos;
  if (!region.name.empty() && region.name != "[heap]" && !is_anonymous)
    return concat({"it is the process's ", text::quote(region.name)});
  if (region.access[0] != 'r' || region.access[1] != 'w')
    return concat({"it cannot be read and written (", region.access, ")"});
  if (region.access[2] == 'x') return concat({"it can be executed (", region.access, ")"});
  return std::nullopt;
}

/// Asks `judge` for a reason against each region that overlaps the range, and why_not_plain() for one against its flags
/// if the list has them. If other threads map memory while the kernel writes the list, a region may overlap the one
/// before it; what stays mapped all the time is in the list. Errors: invalid_argument with that reason, or because part
/// of the range is not mapped.
template <typename Judge>
Result<void> judge_regions(std::string_view maps, std::uintptr_t begin, std::size_t bytes, Judge judge) {
  const auto refuse = [](std::string why) { return Error{Errc::invalid_argument, std::move(why)}; };
  if (bytes > UINTPTR_MAX - begin) return refuse("it goes beyond the address space");
  const std::uintptr_t end = begin + bytes;
  std::uintptr_t at = begin;  // up to here every region qualifies
  bool has_part = false;      // whether the last region read overlaps the range
  while (!maps.empty()) {
    const std::string_view line = take_until(maps, '\n');
    if (is_field(line)) {
      if (!has_part || !line.starts_with(flags_field)) continue;
      if (auto why = why_not_plain(line.substr(flags_field.size()))) return refuse(std::move(*why));
      continue;
    }
    const auto region = MappedRegion::parse(line);
    if (!region) return refuse("/proc/self/maps has a line that this library cannot parse");
    has_part = at < end && region->begin <= at && at < region->end;
    if (!has_part) continue;
    if (auto why = judge(*region, at)) return refuse(std::move(*why));
    at = region->end;
  }
  if (at < end) return refuse("part of it is not mapped");
  return {};
}

constexpr std::size_t longest_list = 1UL << 28;  // hundreds of thousands of regions

/// Linux: struct procmap_query, include/uapi/linux/fs.h; spelled out, since older headers lack it.
struct MappingAnswer {
  std::uint64_t size;
  std::uint64_t query;
  std::uint64_t address;
  std::uint64_t begin;
  std::uint64_t end;
  std::uint64_t access;  ///< bits: 1 readable, 2 writable, 4 executable, 8 shared
  std::uint64_t page_size;
  std::uint64_t offset;
  std::uint64_t inode;
  std::uint32_t device_major;
  std::uint32_t device_minor;
  std::uint32_t name_size;
  std::uint32_t build_id_size;
  std::uint64_t name;
  std::uint64_t build_id;
};
static_assert(sizeof(MappingAnswer) == 104);

}  // namespace

MappingQuery::MappingQuery() noexcept : maps_(::open("/proc/self/maps", O_RDONLY | O_CLOEXEC)) {}

std::optional<bool> MappingQuery::is_shared(std::uintptr_t begin, std::size_t bytes, const FilePages& pages) const {
  constexpr unsigned long procmap_query = _IOWR('f', 17, MappingAnswer);
  constexpr std::uint64_t shared_and_open = 1 + 2 + 8;
  constexpr std::uint64_t access_bits = 15;
  const std::uintptr_t end = begin + bytes;
  for (std::uintptr_t at = begin; at < end;) {  // neighbouring pages of a file may be several mappings
    MappingAnswer answer = {};
    answer.size = sizeof answer;
    answer.address = at;
    if (::ioctl(maps_.get(), procmap_query, &answer) != 0) {
      return errno == ENOENT ? std::optional(false) : std::nullopt;  // ENOENT: not mapped
    }
    const bool is_it = (answer.access & access_bits) == shared_and_open && answer.inode == pages.inode &&
                       answer.offset + (at - answer.begin) == pages.offset + (at - begin);
    if (!is_it) return false;
    at = answer.end;
  }
  return true;
}

Result<std::string> own_memory_map() {
  auto maps = read_whole_file("/proc/self/maps", longest_list);
  if (maps && maps->empty()) return Error{Errc::unavailable, "/proc/self/maps is empty"};
  if (!maps) return Error{Errc::unavailable, concat({"/proc/self/maps cannot be read: ", maps.error().message})};
  return maps;
}

Result<std::string> own_memory_map_with_flags() {
  auto maps = read_whole_file("/proc/self/smaps", longest_list);
  return maps && !maps->empty() ? std::move(maps) : own_memory_map();
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
