#include "collective/reductions.hpp"

#include <algorithm>
#include <cstdlib>

namespace amldist::collective {
namespace {

InstructionSet supported() noexcept {
#ifdef AMLDIST_X86_KERNELS
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    return InstructionSet::avx512;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c")) {
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

}  // namespace

std::string_view to_string(InstructionSet set) noexcept {
  if (set == InstructionSet::avx512) return "avx512";
  return set == InstructionSet::avx2 ? "avx2" : "plain";
}

InstructionSet best_instruction_set() noexcept {
  InstructionSet best = supported();
  const char* const wish = std::getenv("AMLDIST_ISA");
  if (wish == nullptr) return best;
  for (const auto set : {InstructionSet::plain, InstructionSet::avx2}) {
    if (to_string(set) == wish) best = std::min(best, set);
  }
  return best;
}

Reductions::Reductions(InstructionSet set) noexcept
    : table_(kernels_of(set).folds), copy_(kernels_of(set).copy), set_(set) {}

}  // namespace amldist::collective
