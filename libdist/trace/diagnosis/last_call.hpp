// The last call of a task that has ended, from a file that its user may have forged.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace amldist::trace {

struct Recording;

/// Longest text that describe_last_call() makes.
inline constexpr std::size_t longest_last_call = 120;

/// "in allreduce #42 (1048576 float32, 4 MiB)", or "after allreduce #41 (...)" if it was in no call, or "before its
/// first call". "in allreduce #42 (...) broken by another rank" if the call failed because another process had died or
/// left; "in broadcast #7 (...), where a message was too long" if MPI failed it for that. ", and called MPI_Abort"
/// follows if the process said so. The text consists only of fixed words and numbers, whatever the file contains.
[[nodiscard]] std::optional<std::string> describe_last_call(const Recording& recording);

/// Whether describe_last_call() can have written the text: then it fits a datagram and is safe for a terminal.
[[nodiscard]] bool is_last_call(std::string_view text) noexcept;

/// Whether such a text says that another rank broke the call: then the task's end is a consequence, not the cause.
[[nodiscard]] bool is_broken_by_another(std::string_view text) noexcept;

/// Whether such a text says that MPI failed the call of a message that was too long: this rank's call does not match
/// another's, and either may be wrong.
[[nodiscard]] bool was_cut_short(std::string_view text) noexcept;

/// Whether such a text says that the rank was in no call.
[[nodiscard]] bool is_between_calls(std::string_view text) noexcept;

/// Whether such a text says that the rank asked for the end of all: then the other ranks' ends are consequences.
[[nodiscard]] bool has_aborted(std::string_view text) noexcept;

/// The recorders of a rank that has ended, under `roots`: node-local folders such as /dev/shm/aml-dist-1000, or one
/// that the user has named. Call it with the rights of `user`, not as root, because the path belongs to the user. The
/// step's folder and the file must belong to `user` and must not be a symbolic link, nor must a root that anybody could
/// make (trace_roots() without a name). `source`: only this library's recorder; empty: any.
[[nodiscard]] std::vector<Recording> recordings_of(std::span<const std::string> roots, unsigned user,
                                                   std::string_view step, std::uint32_t rank,
                                                   std::string_view source = {});

/// The last call of a rank, by the one of its recorders that has the newest; nullopt: it has no recorder.
[[nodiscard]] std::optional<std::string> last_call_of(std::span<const Recording> recordings);

}  // namespace amldist::trace
