// Element-wise combination of several arrays: the arithmetic of every host reduction.
//
// One pass over memory: all sources are folded in registers, in their order, and each result is stored once (or twice,
// to a second place). Chosen at run time for the processor: AVX-512, AVX2, or plain code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "collective/calls/data_type.hpp"

namespace amldist::collective {

/// How results reach memory.
enum class Store : std::uint8_t {
  cached,     ///< ordinary stores
  streaming,  ///< past the caches, for results that would only push others out of them
  handed,     ///< for lines that another processor has read and will read again: copies only, folds take it as cached
};

/// dst[i] = sources[0][i] op sources[1][i] op ..., for `count` elements; also to `second` unless it is null. With
/// ReduceOp::avg the sum is divided by `divisor`, a number of ranks (1 to INT32_MAX), integers towards zero. Sources
/// may be `dst` or `second` themselves, but not overlap them otherwise. float16 and bfloat16 are folded in float32 and
/// rounded once. Thread-safe; at least one source.
struct Fold {
  void* dst = nullptr;
  void* second = nullptr;
  const void* const* sources = nullptr;
  std::size_t source_count = 0;
  std::size_t count = 0;
  std::size_t divisor = 1;
  Store store = Store::cached;         ///< of dst
  Store second_store = Store::cached;  ///< of second; counts only where dst is streamed and both lie alike in a vector
};

/// Instruction sets that the kernels are compiled for, from the least to the most capable.
enum class InstructionSet : std::uint8_t { plain, avx2, avx512 };
[[nodiscard]] std::string_view to_string(InstructionSet set) noexcept;
/// The best that this processor and the build have; AMLDIST_ISA=plain|avx2|avx512 lowers it.
[[nodiscard]] InstructionSet best_instruction_set() noexcept;

/// The kernels of one instruction set. A value without state.
class Reductions {
 public:
  /// `set` must not be above what the processor has.
  explicit Reductions(InstructionSet set = best_instruction_set()) noexcept;

  void fold(const Fold& work, DataType type, ReduceOp op) const noexcept { table_[index(type, op)](work); }
  /// Copies bytes; ranges do not overlap.
  void copy(void* dst, const void* src, std::size_t bytes, Store store) const noexcept {
    (store == Store::handed && bytes >= handed_from ? hand_over_ : copy_)(dst, src, bytes, store);
  }
  [[nodiscard]] InstructionSet instruction_set() const noexcept { return set_; }

  using FoldFunction = void (*)(const Fold&);
  using CopyFunction = void (*)(void*, const void*, std::size_t, Store);

 private:
  static constexpr std::size_t index(DataType type, ReduceOp op) noexcept {
    return static_cast<std::size_t>(type) * reduce_ops + static_cast<std::size_t>(op);
  }

  static constexpr std::size_t handed_from = 128;  ///< bytes; below, starting a string instruction costs more

  const FoldFunction* table_;
  CopyFunction copy_;
  CopyFunction hand_over_;
  InstructionSet set_;
};

/// What each compiled instruction set exports. Internal to reductions*.cpp.
struct KernelTable {
  const Reductions::FoldFunction* folds;  ///< [type][op]
  Reductions::CopyFunction copy;
};
[[nodiscard]] KernelTable plain_kernels() noexcept;
[[nodiscard]] KernelTable avx2_kernels() noexcept;    ///< only where AMLDIST_X86_KERNELS is defined
[[nodiscard]] KernelTable avx512_kernels() noexcept;  ///< only where AMLDIST_X86_KERNELS is defined

}  // namespace amldist::collective
