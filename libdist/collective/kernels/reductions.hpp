// Element-wise combination of several arrays: the arithmetic of all host reductions.
//
// One pass over memory: all sources are combined ("folded") in registers, in their order, and each result is stored
// once, or twice if there is a second destination. The instruction set is chosen at run time: AVX-512, AVX2, or plain
// code.
#pragma once

#include <cstddef>
#include <cstdint>

#include "calls/data_type.hpp"
#include "collective/kernels/instruction_set.hpp"
#include "collective/kernels/shared_copy.hpp"

namespace amldist::collective {

/// How results are stored.
enum class Store : std::uint8_t {
  cached,       ///< ordinary stores
  streaming,    ///< non-temporal stores past the caches, for results larger than the cache
  whole_lines,  ///< string instructions that overwrite whole cache lines, for memory that another processor has cached
                ///< and reads next; copies only, folds treat it as cached
};

/// dst[i] = sources[0][i] op sources[1][i] op ..., for `count` elements; also stored to `second` unless it is null.
/// With ReduceOp::avg the sum is divided by `divisor`, the number of ranks (1 to INT32_MAX), integers towards zero. A
/// source may be `dst` or `second` itself, but must not overlap them otherwise. float16 and bfloat16 are combined in
/// float32 and rounded once. Thread-safe; at least one source.
struct Fold {
  void* dst = nullptr;
  void* second = nullptr;
  const void* const* sources = nullptr;
  std::size_t source_count = 0;
  std::size_t count = 0;
  std::size_t divisor = 1;
  Store store = Store::cached;  ///< of dst
  /// Of second. Streaming counts only if dst is streamed and both have the same alignment within a vector, or if
  /// can_stream_second() and second begins a cache line.
  Store second_store = Store::cached;
};

/// Whether a second result can be streamed beside a first one that is not: only for gradients' sums, because each such
/// loop makes the library larger.
[[nodiscard]] constexpr bool can_stream_second(calls::DataType type, calls::ReduceOp op) noexcept {
  return type == calls::DataType::float32 && op == calls::ReduceOp::sum;
}

/// The best set of this processor and this build, at most `highest`.
[[nodiscard]] InstructionSet best_instruction_set(InstructionSet highest = InstructionSet::avx512) noexcept;

/// The kernels of one instruction set. A stateless value.
class Reductions {
 public:
  /// `set` must be supported by the processor.
  explicit Reductions(InstructionSet set = best_instruction_set()) noexcept;

  void fold(const Fold& work, calls::DataType type, calls::ReduceOp op) const noexcept {
    table_[index(type, op)](work);
  }
  /// Copies bytes; the ranges must not overlap.
  void copy(void* dst, const void* src, std::size_t bytes, Store store) const noexcept {
    if (store != Store::streaming && is_slow_to_copy(dst, src, bytes)) {
      copy_by_vectors(static_cast<std::byte*>(dst), static_cast<const std::byte*>(src), bytes);
      return;
    }
    (store == Store::whole_lines && bytes >= whole_lines_from ? copy_whole_lines_ : copy_)(dst, src, bytes, store);
  }
  [[nodiscard]] InstructionSet instruction_set() const noexcept { return set_; }

  using FoldFunction = void (*)(const Fold&);
  using CopyFunction = void (*)(void*, const void*, std::size_t, Store);

 private:
  static constexpr std::size_t index(calls::DataType type, calls::ReduceOp op) noexcept {
    return static_cast<std::size_t>(type) * calls::reduce_ops + static_cast<std::size_t>(op);
  }

  static constexpr std::size_t whole_lines_from =
      128;  ///< bytes; for less, starting a string instruction costs too much

  const FoldFunction* table_;
  CopyFunction copy_;
  CopyFunction copy_whole_lines_;
  InstructionSet set_;
};

/// The functions of one compiled instruction set. Internal to reductions*.cpp.
struct KernelTable {
  const Reductions::FoldFunction* folds;  ///< [type][op]
  Reductions::CopyFunction copy;
};
[[nodiscard]] KernelTable plain_kernels() noexcept;
[[nodiscard]] KernelTable avx2_kernels() noexcept;    ///< only if AMLDIST_X86_KERNELS is defined
[[nodiscard]] KernelTable avx512_kernels() noexcept;  ///< only if AMLDIST_X86_KERNELS is defined

}  // namespace amldist::collective
