// What the pages of a process are, read from /proc/PID/maps and smaps or, for this process, by asking the kernel about
// single mappings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/os/file_descriptor.hpp"
#include "base/text/result.hpp"

namespace amldist {

/// A line of /proc/PID/maps: "BEGIN-END rw-p OFFSET MAJOR:MINOR INODE NAME", hexadecimal except for INODE.
struct MappedRegion {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  std::string_view access;
  std::uint64_t offset = 0;
  std::uint64_t inode = 0;
  std::string_view name;  ///< empty for anonymous memory

  /// nullopt: it is no such line.
  [[nodiscard]] static std::optional<MappedRegion> parse(std::string_view line);
};

/// The text of /proc/self/maps. Errors: unavailable, with the reason alone.
[[nodiscard]] Result<std::string> own_memory_map();
/// The text of /proc/self/smaps, which also has the flags of each mapping; if the kernel lacks it, of maps. The kernel
/// visits every page of the process for it, which takes milliseconds for gigabytes. Errors: as above.
[[nodiscard]] Result<std::string> own_memory_map_with_flags();

/// Whether a whole range is memory that only this process has and that can be replaced by other pages without loss:
/// private, of no file, no stack, readable and writable, not executable, not locked, inherited by children.
[[nodiscard]] Result<void> check_private_memory(std::string_view maps, std::uintptr_t begin, std::size_t bytes);

/// Pages of a file.
struct FilePages {
  std::string_view name;  ///< as its entry in `maps` begins
  std::uint64_t inode = 0;
  std::uint64_t offset = 0;
};

/// Asks the kernel about single mappings: one system call of some 150 ns (PROCMAP_QUERY, Linux 6.11). Thread-safe; a
/// process made by fork() needs an object of its own.
class MappingQuery {
 public:
  MappingQuery() noexcept;
  /// For tests: asks through another file.
  explicit MappingQuery(FileDescriptor maps) noexcept : maps_(std::move(maps)) {}
  /// As is_shared_mapping() at this moment, without comparing the name. nullopt if this kernel cannot be asked.
  [[nodiscard]] std::optional<bool> is_shared(std::uintptr_t begin, std::size_t bytes, const FilePages& pages) const;

 private:
  FileDescriptor maps_;
};

/// Whether a whole range is `pages` and the pages that follow them in their file, shared, readable and writable.
[[nodiscard]] bool is_shared_mapping(std::string_view maps, std::uintptr_t begin, std::size_t bytes,
                                     const FilePages& pages);

}  // namespace amldist
