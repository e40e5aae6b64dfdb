// Instruction sets for which reductions are compiled.
#pragma once

#include <cstdint>
#include <string_view>

namespace amldist {

/// From the least to the most capable.
enum class InstructionSet : std::uint8_t { plain, avx2, avx512 };

[[nodiscard]] constexpr std::string_view to_string(InstructionSet set) noexcept {
  if (set == InstructionSet::avx512) return "avx512";
  return set == InstructionSet::avx2 ? "avx2" : "plain";
}

}  // namespace amldist
