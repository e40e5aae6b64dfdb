// What an x86 processor says about itself.
#pragma once

#include <array>
#ifdef __x86_64__
#include <cpuid.h>
#endif

namespace amldist::collective {

/// The registers a, b, c and d of a leaf of cpuid; zero if the processor lacks the leaf, or is another one.
[[nodiscard]] inline std::array<unsigned, 4> cpuid([[maybe_unused]] unsigned leaf) noexcept {
  std::array<unsigned, 4> out = {};
#ifdef __x86_64__
  static_cast<void>(__get_cpuid_count(leaf, 0, out.data(), &out[1], &out[2], &out[3]));
#endif
  return out;
}

}  // namespace amldist::collective
