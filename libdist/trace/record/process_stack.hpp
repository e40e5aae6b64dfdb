// Where a recorded process is: its Python stacks where somebody can tell them, else the states of its threads. No
// signal is ever sent to it, and it is not traced.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "trace/record/record_reader.hpp"

namespace amldist::trace {

/// Longest text, in bytes.
inline constexpr std::size_t longest_stack = 3500;

/// Lines for people, at most longest_stack bytes, with anything printable in them. In this order:
/// - what the process's own thread writes when it is asked in the recorder's header (source "torch"; see
///   libdist/api/python/amldist_trace), waiting at most `patience`;
/// - for another Python process what py-spy says, if it lies in the PATH of that process and the kernel permits it;
/// - the state of each thread and the kernel's function that it waits in.
/// The first two only for recorders of the calling user. "" if the process is gone. It must be one of this machine:
/// another machine's number means another process here.
[[nodiscard]] std::string stack_of(const Recording& recording, std::chrono::milliseconds patience);

/// "train_step at train.py:33": the innermost call of the first thread of such a text that lies outside installed
/// packages, or the innermost of all; "" where the text has no Python stack.
[[nodiscard]] std::string innermost_call(std::string_view stack);

}  // namespace amldist::trace
