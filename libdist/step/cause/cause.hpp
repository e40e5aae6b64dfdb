// Why a task ended, as its node found out. It travels in the report of the failure (step/messages/failure_report.hpp)
// and becomes a part of the one line that srun prints.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace amldist::step {

/// Longest text of a cause, in bytes.
inline constexpr std::size_t longest_cause = 240;

/// One finding. The text is printable ASCII, because it may have come from a user's program.
struct Cause {
  enum class Kind : std::uint8_t {
    none,
    out_of_memory,  ///< of the task, the step, the job or the node: "the step may use 300 GiB on this node and used it"
    exception,      ///< "RuntimeError: shape mismatch at train.py:88 in forward"
    peer,           ///< an exception about another rank
    space,          ///< a file system was full: "/dev/shm is full (64 GiB)"
    killed,         ///< SIGKILL, and not for memory
    fact,           ///< what may explain it: "its address space is limited to 8 GiB (ulimit -v)"
    unhealthy,      ///< the kernel reports about this node: "the kernel reports Xid 79 for GPU ..."
    link,           ///< or about its network
    lost_process,   ///< the kernel killed a process of the task long ago, or the task lives on
  };
  Kind kind = Kind::none;
  std::string text = {};

  friend bool operator==(const Cause&, const Cause&) = default;
};

[[nodiscard]] std::string_view to_string(Cause::Kind kind);
[[nodiscard]] std::optional<Cause::Kind> parse_cause_kind(std::string_view word);

/// Whether a text can be that of a cause.
[[nodiscard]] bool is_cause_text(std::string_view text) noexcept;

/// Untrusted text as that of a cause: what is not printable becomes one blank, and what exceeds `most` bytes "...".
[[nodiscard]] std::string clean_cause(std::string_view text, std::size_t most = longest_cause);

/// "512 MiB", "1.5 GiB", "300 GiB".
[[nodiscard]] std::string describe_bytes(std::uint64_t bytes);

}  // namespace amldist::step
