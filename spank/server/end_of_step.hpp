// What outlives a step: the record of its end, and srun's exit status.
#pragma once

#include <string>
#include <vector>

#include "step/messages/end_record.hpp"

namespace amldist::spank {

/// Appends the record to each of these files, with the rights of this process. A file that is not there is made; a
/// link, a FIFO or a device is not written to. Returns the sentence for the user about the first that could not be
/// written; empty: all were.
[[nodiscard]] std::string append_end_record(const step::EndRecord& record, const std::vector<std::string>& files);

/// The same in a copy of this process, which is killed where a file system has not answered in time.
[[nodiscard]] std::string write_end_record(const step::EndRecord& record, const std::vector<std::string>& files);

/// From now on this srun exits with `status`, however its tasks end.
void end_srun_with(int status) noexcept;

/// When this srun exits, it writes `good` if its status is 0, else `bad`, each with its status. If `good` is a failure,
/// srun prints its sentence and exits with its status instead.
void end_srun_with_record(step::EndRecord good, step::EndRecord bad, std::vector<std::string> files) noexcept;

}  // namespace amldist::spank
