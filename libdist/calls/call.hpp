// One call on a communicator as a value: back ends run it, queues hold it, observers and error messages describe it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "calls/buffer_segments.hpp"
#include "calls/call_lists.hpp"
#include "calls/data_type.hpp"

namespace amldist::calls {

/// The arguments of a call. Counts and offsets are in elements; pointers are the caller's and stay valid until the
/// call is complete. Meaning of `count` by operation:
///   allreduce, reduce, broadcast   elements of the buffer
///   allgather, gather              elements that each rank gives
///   reduce_scatter, scatter        elements that each rank gets
///   alltoall                       elements from each rank to each rank
///   allgatherv                     elements that this rank gives (= recv_counts[rank])
///   reduce_scatterv                elements that this rank gets (= send_counts[rank])
///   send, recv                     elements of the message
///   barrier, split                 0; a split has its SplitRequest in `send`, room for those of all ranks in `recv`
struct Call {
  static constexpr int untagged = -1;
  static constexpr int any_source = -1;  ///< as `root` of a receive with a tag

  Operation operation = Operation::none;
  DataType type = DataType::uint8;
  ReduceOp redop = ReduceOp::sum;  ///< reductions only
  int root = 0;                    ///< root of a rooted operation, peer of send and recv
  int tag = untagged;              ///< of send and recv
  std::size_t count = 0;
  const void* send = nullptr;  ///< broadcast: the buffer, on every rank (also in `recv`)
  void* recv = nullptr;
  const CallLists* lists = nullptr;  ///< if is_listed(operation), never null; else null. Lives as long as the call
  const BufferSegments* segments = nullptr;  ///< allreduce in place: parts of the buffer that lie elsewhere, if any
  int* source = nullptr;                     ///< where a receive with a tag stores the sender's rank, or null
  void* stream = nullptr;                    ///< CUDA stream, for device buffers
  std::uint64_t sequence = 0;                ///< 1, 2, ... in the order of the communicator's calls, set by it
};

[[nodiscard]] constexpr bool is_reduction(Operation operation) noexcept {
  return operation == Operation::allreduce || operation == Operation::reduce ||
         operation == Operation::reduce_scatter || operation == Operation::reduce_scatterv;
}
/// Whether ranks have counts of their own, in lists.
[[nodiscard]] constexpr bool is_listed(Operation operation) noexcept {
  return operation == Operation::allgatherv || operation == Operation::alltoallv ||
         operation == Operation::reduce_scatterv;
}
[[nodiscard]] constexpr bool is_point_to_point(Operation operation) noexcept {
  return operation == Operation::send || operation == Operation::recv;
}

/// Whether the operation has a root.
[[nodiscard]] constexpr bool has_root(Operation operation) noexcept {
  return operation == Operation::reduce || operation == Operation::broadcast || operation == Operation::gather ||
         operation == Operation::scatter;
}

[[nodiscard]] constexpr std::uint32_t signature_of(std::uint64_t word, std::uint64_t count) noexcept {
  const auto mixed = [](std::uint64_t digest, std::uint64_t value) {
    digest = (digest ^ value) * 0x9e3779b97f4a7c15ULL;
    return digest ^ (digest >> 29);
  };
  const std::uint64_t digest = mixed(mixed(1, word), count);
  return static_cast<std::uint32_t>(digest ^ (digest >> 32));
}
/// Digest of everything that must be equal on all ranks (operation, type, operator, root, count; not pointers, nor the
/// counts of send, recv and the v-operations). Ranks compare it to notice that they are in different calls.
[[nodiscard]] constexpr std::uint32_t signature_of(const Call& call) noexcept {
  const bool counted = !is_listed(call.operation);
  const auto word = static_cast<std::uint64_t>(call.operation) | static_cast<std::uint64_t>(call.type) << 8 |
                    static_cast<std::uint64_t>(is_reduction(call.operation) ? call.redop : ReduceOp::sum) << 16 |
                    static_cast<std::uint64_t>(static_cast<std::uint32_t>(call.root)) << 32;
  return signature_of(word, counted ? call.count : 0);
}

/// The same of a message: what its sender and its receiver must agree on.
[[nodiscard]] constexpr std::uint32_t signature_of_message(DataType type, std::size_t count) noexcept {
  return signature_of(static_cast<std::uint64_t>(Operation::send) | static_cast<std::uint64_t>(type) << 8, count);
}

/// Digest of the counts that all ranks must pass alike (allgatherv, reduce_scatterv); else 0.
[[nodiscard]] inline std::uint32_t digest_of_lists(const Call& call) noexcept {
  std::uint32_t digest = 0;
  if (!is_listed(call.operation) || call.operation == Operation::alltoallv) return digest;
  for (const std::size_t count :
       call.operation == Operation::allgatherv ? call.lists->recv_counts : call.lists->send_counts) {
    const auto bits = static_cast<std::uint32_t>(count ^ (count >> 32));
    digest = ((digest ^ bits) * 0x85ebca6bU) ^ (digest >> 15);
  }
  return digest;
}

/// "allreduce #17 (1048576 float32, 4 MiB)", "barrier #3".
[[nodiscard]] std::string describe(const Call& call);

}  // namespace amldist::calls
