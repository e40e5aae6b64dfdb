// Programs on MPI that end because a call of it has returned an error: mpi4py raises an exception then, and Python
// calls MPI_Finalize before it ends. Pure.
#pragma once

#include <set>
#include <span>

#include "trace/record/record_reader.hpp"

namespace amldist::trace {

/// The call that MPI failed and after which the program called nothing but MPI_Finalize. nullptr if no call failed, or
/// if the program went on after the error.
[[nodiscard]] const CallRecord* given_up_in(const Recording& recording);

/// Those whose MPI_Finalize only follows from an error in the call before: what they have not reached they will not
/// call. Where all members have failed that call, as of a file that is not there, it has decided nothing.
[[nodiscard]] std::set<const Recording*> ranks_that_gave_up(std::span<const Recording> recordings);

}  // namespace amldist::trace
