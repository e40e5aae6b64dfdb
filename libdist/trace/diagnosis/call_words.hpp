// The words for recorded calls and ranks: libamldist's errors, `hang=` and `aml-dist trace` all use them. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "trace/record/record_reader.hpp"

namespace amldist::trace {

/// The name of a recorded operation, also of those that libamldist does not have; "unknown" for any other number.
[[nodiscard]] std::string_view name_of(calls::Operation operation) noexcept;

/// That of its function where several share the operation: "MPI_File_write_at_all".
[[nodiscard]] std::string_view name_of(const CallRecord& call) noexcept;

[[nodiscard]] bool is_rooted(calls::Operation operation) noexcept;

/// "rank 3 (local 1) on node2", and "rank 3" where its host is not known.
[[nodiscard]] std::string describe_rank(std::uint32_t rank, std::uint32_t local_rank, std::string_view host);

/// "allreduce #42 (1048576 float32, 4 MiB)", "recv (25 float32, 100 bytes, tag 7) from rank 1": as live errors say it.
[[nodiscard]] std::string describe_call(const CallRecord& call);

/// The same, with the root of a call that has one, and with a reduction other than the sum.
[[nodiscard]] std::string describe_in_full(const CallRecord& call);

/// What a rank called that differs from the others' call: "alltoall #3 (1 KiB) instead", and of calls that differ in
/// little "broadcast #9 (4 KiB) with root 1 instead of root 0", "... with max instead of sum", "... with other counts".
/// Roots are ranks of the communicator.
[[nodiscard]] std::string describe_difference(const CallRecord& call, const CallRecord& others);

/// "ranks 0-3,8": the name given to a communicator that has no name.
[[nodiscard]] std::string name_of_members(std::span<const std::uint32_t> ranks);

/// "0-2,5" of ascending numbers.
[[nodiscard]] std::string compress_ranks(std::span<const std::uint32_t> ranks);

}  // namespace amldist::trace
