// Where in a program's files an address of its memory is. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace amldist::trace {

/// A place in a program or library.
struct CodePlace {
  std::string module;         ///< path of the file
  std::uint64_t offset = 0;   ///< from where the file is loaded
  std::uint64_t address = 0;  ///< in memory: what a program without a free place counts by

  /// "libfoo.so+0x1234".
  [[nodiscard]] std::string words() const;
};

/// By the content of /proc/PID/maps, which the process's user may have forged. nullopt: in no file, in MPI itself
/// (whose Fortran calls its C), or in a module of Python's, whose caller only a stack tells.
[[nodiscard]] std::optional<CodePlace> find_code(std::string_view maps, std::uint64_t address);

}  // namespace amldist::trace
