// What the pages of this process are, as the kernel lists them in /proc/self/maps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/result.hpp"

namespace amldist {

/// The text of /proc/self/maps. Errors: unavailable, with the reason alone.
[[nodiscard]] Result<std::string> own_memory_map();

/// Whether all of a range is memory that only this process has: private, of no file, no stack, readable and writable,
/// not executable. `maps` is the text of /proc/self/maps. Errors: invalid_argument, with the reason alone.
[[nodiscard]] Result<void> check_private_memory(std::string_view maps, std::uintptr_t begin, std::size_t bytes);

/// Pages of a file.
struct FilePages {
  std::string_view name;  ///< as its entry in `maps` begins
  std::uint64_t inode = 0;
  std::uint64_t offset = 0;
};

/// Whether all of a range is `pages` and what follows them in their file, shared, readable and writable.
[[nodiscard]] bool is_shared_mapping(std::string_view maps, std::uintptr_t begin, std::size_t bytes,
                                     const FilePages& pages);

}  // namespace amldist
