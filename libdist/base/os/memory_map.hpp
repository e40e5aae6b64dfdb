// What the pages of this process are, as the kernel lists them in /proc/self/maps and smaps, or tells on a question.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/os/file_descriptor.hpp"
#include "base/text/result.hpp"

namespace amldist {

/// The text of /proc/self/maps. Errors: unavailable, with the reason alone.
[[nodiscard]] Result<std::string> own_memory_map();
/// The text of /proc/self/smaps, which has the flags of each mapping, too; where the kernel lacks it, of maps. The
/// kernel visits every page of the process for it: milliseconds for gigabytes. Errors: as above.
[[nodiscard]] Result<std::string> own_memory_map_with_flags();

/// Whether all of a range is memory that only this process has, and of which nothing is lost if other pages take its
/// place: private, of no file, no stack, readable and writable, not executable, not locked, inherited by children.
/// `maps` is the text of /proc/self/smaps or maps. Errors: invalid_argument, with the reason alone.
[[nodiscard]] Result<void> check_private_memory(std::string_view maps, std::uintptr_t begin, std::size_t bytes);

/// Pages of a file.
struct FilePages {
  std::string_view name;  ///< as its entry in `maps` begins
  std::uint64_t inode = 0;
  std::uint64_t offset = 0;
};

/// Asks the kernel about single mappings: one system call of some 150 ns (PROCMAP_QUERY, Linux 6.11). Any thread may
/// ask; a process that fork() made needs an object of its own.
class MappingQuery {
 public:
  MappingQuery() noexcept;
  /// Asks through another file, for tests.
  explicit MappingQuery(FileDescriptor maps) noexcept : maps_(std::move(maps)) {}
  /// As is_shared_mapping(), of now; the name does not count. nullopt: this kernel cannot be asked.
  [[nodiscard]] std::optional<bool> is_shared(std::uintptr_t begin, std::size_t bytes, const FilePages& pages) const;

 private:
  FileDescriptor maps_;
};

/// Whether all of a range is `pages` and what follows them in their file, shared, readable and writable.
[[nodiscard]] bool is_shared_mapping(std::string_view maps, std::uintptr_t begin, std::size_t bytes,
                                     const FilePages& pages);

}  // namespace amldist
