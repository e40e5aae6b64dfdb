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

[[nodiscard]] bool has_root(calls::Operation operation) noexcept;

/// "allreduce #42 (1048576 float32, 4 MiB)", "recv (25 float32, 100 bytes, tag 7) from rank 1": as live errors say it.
[[nodiscard]] std::string describe_call(const CallRecord& call);

/// The same, with the root of a call that has one.
[[nodiscard]] std::string describe_with_root(const CallRecord& call);

/// What a rank called that differs from the others' call: "alltoall #3 (1 KiB) instead", and of calls that differ in
/// their root "broadcast #9 (4 KiB) with root 1 instead of root 0". Roots are ranks of the communicator.
[[nodiscard]] std::string describe_difference(const CallRecord& call, const CallRecord& others);

/// "0-2,5" of ascending numbers.
[[nodiscard]] std::string compress_ranks(std::span<const std::uint32_t> ranks);

}  // namespace amldist::trace
