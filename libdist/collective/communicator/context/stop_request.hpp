// Whether this process has heard that it should stop: by a signal, or by the file that the plugin names.
#pragma once

namespace amldist::collective {

/// Thread-safe. Outside a step with the key stop= always false, and nothing happens.
///
/// In such a step the first call takes SIGTERM, which Slurm sends at a preemption, a scancel and the time limit, and
/// the key's signal, each only where the program leaves it to the system: from then on they mean a stop and not the
/// end. Children that the program forks later end of these signals as before. The file is looked for at most ten times
/// a second.
[[nodiscard]] bool stop_is_requested() noexcept;
/// Other ranks have heard of it, and agreed with this one.
void note_stop() noexcept;

}  // namespace amldist::collective
