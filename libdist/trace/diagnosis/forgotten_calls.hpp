// Ranks that are still in a call which others have left, while one of those no longer knows its own call of that
// number: a recording keeps the newest calls only, and a node tells fewer still. Pure.
#pragma once

#include <span>

#include "trace/diagnosis/stalls.hpp"
#include "trace/record/record_reader.hpp"

namespace amldist::trace {

/// Changes the stall's `missing` if one of those may have made another call: to the rank whose calls are not in the
/// order of the others, or to all who may be wrong. Leaves other stalls as they are.
void judge_forgotten_calls(std::span<const Recording> recordings, Stall& stall);

}  // namespace amldist::trace
