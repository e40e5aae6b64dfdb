// The command line of the program that loaded us.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace amldist::spank {

/// Whether this process was started with --aml-dist=help and nothing but options. sbatch reads its script, or waits for
/// one on standard input, before it looks at a plugin's options, so `sbatch --aml-dist=help` has to be seen earlier.
[[nodiscard]] bool asks_only_for_help();

/// The components that this srun starts, by their numbers in the job, ascending and each once; {0} for an ordinary
/// step. From the ':' on its command line and its lists of het groups; a word of the program's own that looks like the
/// option counts too, so the list may be wrong.
[[nodiscard]] std::vector<std::uint32_t> component_groups();

/// Whether a ':' of its own stands on the command line, as between components.
[[nodiscard]] bool has_component_separator();

/// What this srun was told about --kill-on-bad-exit, on its command line or in its environment; nullopt: nothing. A
/// word of the program's own that looks like the option counts too.
[[nodiscard]] std::optional<bool> kills_on_bad_exit();

}  // namespace amldist::spank
