// Where a recorded process is: its Python stacks if they can be had, else the states of its threads. No signal is ever
// sent to it, and it is not traced.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "trace/record/record_reader.hpp"

namespace amldist::trace {

/// Longest text, in bytes.
inline constexpr std::size_t longest_stack = 3500;

/// At most longest_stack bytes of lines for people, which may contain any printable text. In this order:
/// - what the process's own thread writes on a request in the recorder's header (source "torch"; see
///   libdist/api/python/amldist_trace), waiting at most `patience`;
/// - for any other Python process the output of py-spy, if it is in the PATH of that process and the kernel permits it;
/// - the state of each thread and the kernel's function that it waits in.
/// The first two only for recorders of the calling user. "" if the process is gone. It must be one of this machine:
/// on another machine the same number is another process.
[[nodiscard]] std::string stack_of(const Recording& recording, std::chrono::milliseconds patience);

/// "train_step at train.py:33": the innermost call of the first thread in such a text that lies outside installed
/// packages, or else the innermost of all; "" if the text has no Python stack.
[[nodiscard]] std::string innermost_call(std::string_view stack);

/// The value of an environment variable when a process of this user started; "" if it was not set.
[[nodiscard]] std::string environment_of(std::int32_t pid, std::string_view name);

}  // namespace amldist::trace
