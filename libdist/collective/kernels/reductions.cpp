#include "collective/kernels/reductions.hpp"

#include <algorithm>

#include "collective/kernels/cpuid.hpp"
#include "collective/kernels/string_copy.hpp"

namespace amldist::collective {
namespace {

#ifdef AMLDIST_X86_KERNELS
/// Conversions of half precision, for which some compilers have no intrinsics by name (clang 14).
bool has_half_conversions() noexcept {
  constexpr unsigned f16c = 1U << 29;
  return (cpuid(1)[2] & f16c) != 0;
}
#endif

InstructionSet supported() noexcept {
#ifdef AMLDIST_X86_KERNELS
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    return InstructionSet::avx512;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_half_conversions()) {
    return InstructionSet::avx2;
  }
#endif
  return InstructionSet::plain;
}

KernelTable kernels_of(InstructionSet set) noexcept {
#ifdef AMLDIST_X86_KERNELS
  if (set == InstructionSet::avx512) return avx512_kernels();
  if (set == InstructionSet::avx2) return avx2_kernels();
#endif
  static_cast<void>(set);
  return plain_kernels();
}

/// A string instruction announces that it will overwrite whole cache lines. The processor then neither reads them first
/// nor waits, line by line, until the reader's copy is invalidated. Writing 64 KiB that another processor has read
/// takes 0.7 us instead of 1.7 us with a shared cache, and 1.5 us instead of 8 us without one; reading it afterwards
/// takes as long as before. (Streaming stores: 2.4 and 1.4 us, but reading then takes three times as long.)
void copy_whole_lines(void* dst, const void* src, std::size_t bytes, Store /*store*/) { string_copy(dst, src, bytes); }

Reductions::CopyFunction whole_line_copy_or(Reductions::CopyFunction other) noexcept {
  return has_string_copy() ? &copy_whole_lines : other;
}

}  // namespace

InstructionSet best_instruction_set(InstructionSet highest) noexcept { return std::min(supported(), highest); }

Reductions::Reductions(InstructionSet set) noexcept
    : table_(kernels_of(set).folds),
      copy_(kernels_of(set).copy),
      copy_whole_lines_(whole_line_copy_or(copy_)),
      set_(set) {}

}  // namespace amldist::collective
