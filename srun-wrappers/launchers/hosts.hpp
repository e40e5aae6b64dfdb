// Hosts and their slots, as -H, hostfiles and --include give them, laid out as Slurm can.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/result.hpp"
#include "shared/slurm_options.hpp"

namespace amldist::launchers {

struct Host {
  std::string name;
  std::optional<std::uint32_t> slots;  ///< nullopt: not said
  std::uint32_t lines = 1;             ///< how often it is named
  std::string where = {};              ///< "FILE:LINE: ", for messages
};

/// What becomes of a host that is named again.
enum class Repeats {
  one_host,    ///< it has more slots
  neighbours,  ///< it has more slots if it stands directly behind; else it gets another turn (Hydra)
  turns,       ///< it gets another turn (-hosts of Intel MPI)
};

/// Whether a name is another turn, and not more slots of one that stands before.
[[nodiscard]] bool starts_turn(Repeats repeats, const std::vector<Host>& before, std::string_view name);

/// "a:4,b:2,c", with the names of Slurm's nodes. A host without a number has `otherwise` slots; one that is named again
/// has more.
[[nodiscard]] Result<std::vector<Host>> parse_host_list(std::string_view list, std::optional<std::uint32_t> otherwise,
                                                        Repeats repeats = Repeats::one_host);

/// Whether a line with slots= for a host of an earlier line adds to it or replaces it.
enum class Again { adds_slots, is_refused };

/// Lines "name slots=4 ..."; # begins a comment. A name without slots that is repeated has a slot for each line, or one
/// more than its slots=, as with Open MPI. The names are those of Slurm's nodes (node_names.hpp). Errors name file and
/// line.
[[nodiscard]] Result<std::vector<Host>> read_hostfile(const std::string& file, Again again);

/// Hydra's: lines "name" or "name:N". Errors name file and line.
[[nodiscard]] Result<std::vector<Host>> read_machine_file(const std::string& file);

/// Gives hosts the additional slots for more processes than slots: equally many on each, the first ones one more.
void oversubscribe(std::vector<Host>& hosts, std::optional<std::uint32_t> processes);

/// How processes are distributed over hosts.
enum class Distribution {
  by_slot,  ///< fill a host, then the next
  by_node,  ///< one to each host in turn
};

/// Sets the shape of a step that has `processes` (nullopt: all slots) on these hosts, in this order: with --nodelist
/// and
/// --ntasks-per-node where Slurm's own order does it, else task by task (--distribution=arbitrary).
/// Errors: mismatch, more processes than slots.
[[nodiscard]] Result<void> place(const std::vector<Host>& hosts, std::optional<std::uint32_t> processes,
                                 Distribution distribution, commands::SlurmOptions& srun);

/// The host of each rank, in the order of ranks.
[[nodiscard]] Result<std::vector<std::string>> deal_ranks(const std::vector<Host>& hosts,
                                                          std::optional<std::uint32_t> processes,
                                                          Distribution distribution);

}  // namespace amldist::launchers
