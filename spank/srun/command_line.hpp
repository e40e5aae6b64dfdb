// The command line of the program that loaded us.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace amldist::spank {

/// Whether this process was started with --aml-dist=help and nothing but options. sbatch reads its script, or waits for
/// one on standard input, before it hands a plugin its options: `sbatch --aml-dist=help` must be recognised earlier.
[[nodiscard]] bool asks_only_for_help();

/// The components that this srun starts, by their numbers in the job, ascending and each once; {0} for an ordinary
/// step. Read from the ':' on its command line and its lists of het groups. The program's own arguments are read too:
/// if one of them looks like such an option, the list is wrong.
[[nodiscard]] std::vector<std::uint32_t> component_groups();

/// Whether a word of the command line is a launcher's daemon (orted, ...), which mpirun starts by srun.
[[nodiscard]] bool starts_launcher_daemon();

/// Whether the command line has a ':' as a word of its own, as between components.
[[nodiscard]] bool has_component_separator();

/// Whether the command line names the job (--jobid) in which this srun starts its step. An argument of the program's
/// own that looks like the option counts too.
[[nodiscard]] bool names_a_job();

/// The value of --kill-on-bad-exit, from srun's command line or its environment; nullopt: not given. `program_words`:
/// the program and its arguments, which end the command line. In a step of several components an argument of a program
/// that looks like the option counts too.
[[nodiscard]] std::optional<bool> kills_on_bad_exit(std::size_t program_words);

}  // namespace amldist::spank
