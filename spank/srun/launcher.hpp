// srun, sbatch and salloc: the user's own process. Nothing here throws on bad input; what is thrown for lack of memory
// stops in plugin.cpp.
#pragma once

#include <string_view>

#include "base/text/result.hpp"
#include "spank/slurm/handle.hpp"
#include "spank/srun/submitter_session.hpp"

namespace amldist::spank {

/// Refuses a bad option before anything is submitted.
[[nodiscard]] Result<void> check_option(const SubmitterSession& session);

/// srun, before anything exists: opens the port on which the nodes' messages arrive, and tells the nodes. Without a
/// port the step runs all the same. Here and not later, because only what is put into the environment here reaches
/// every component of a heterogeneous step.
void open_server(SrunSession& session);

/// srun, before anything exists: makes the step's secret, where the step may get a kind.
[[nodiscard]] Result<void> make_secret(const SrunSession& session);

/// srun, before anything exists: tells the nodes that they are on their own, should this srun never come to
/// prepare_launch(), which replaces the word. So it is under --async.
[[nodiscard]] Result<void> expect_no_srun(const SrunSession& session);

/// srun, when the step exists and its tasks do not: checks the counts, chooses the master's address, and sends both
/// with the exact task map to the nodes. Starts the listener's thread.
[[nodiscard]] Result<void> prepare_launch(SrunSession& session, const Handle& handle);

/// srun, for a step that is refused: takes back what those above have done.
void withdraw_launch(SrunSession& session) noexcept;

/// srun, for a step that is refused: leaves the reason as the job's comment, where the site wants that.
void note_refusal(const SrunSession& session, const Handle& handle, std::string_view reason);

/// srun, for a step that is refused inside a job. Neither srun nor scancel can end a step that was never launched:
/// Slurm would keep it, and its CPUs, to the end of the job, and the next srun in that job would wait for ever. So the
/// step is launched, and the nodes start none of its tasks. Returns whether the nodes will know that; those of a
/// heterogeneous step do not.
[[nodiscard]] bool leave_refusal_to_nodes(const SrunSession& session) noexcept;

}  // namespace amldist::spank
