// From which line of C, C++ or Fortran a rank has made the call that it is in.
#pragma once

#include <span>

#include "trace/record/record_reader.hpp"

namespace amldist::tools {

/// The most informative call of a rank: the oldest that has not ended, else the newest. The end of NCCL's calls is not
/// reported, so the last of each communicator is open.
[[nodiscard]] const trace::CallRecord* telling_call(const trace::Recording& recording);

/// Sets Recording::place of those whose processes live on this machine and are this user's: their files are read with
/// the caller's rights. The line is found by addr2line if that is in PATH, and the program was compiled with -g.
void add_places(std::span<trace::Recording> recordings);

}  // namespace amldist::tools
