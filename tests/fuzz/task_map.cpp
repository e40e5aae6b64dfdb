// PMI's process mapping: srun's record, SLURM_PMIX_MAPPING_SERV.
#include "launch/placement/task_map.hpp"

#include <algorithm>

#include "base/text/hostlist.hpp"
#include "base/text/text.hpp"
#include "fuzz.hpp"
#include "task_map_invariants.hpp"

namespace amldist::fuzz::task_map {

const std::string_view separator = ",";

/// Two numbers in the first line, the sizes that the text has to fit; the mapping behind it.
void try_input(std::string_view input) {
  Input lines(input);
  const auto sizes = text::split(lines.line(), ' ');
  const std::string_view mapping = lines.rest();
  const auto size = static_cast<std::uint32_t>(text::to_number(sizes.front(), most_tasks).value_or(8));
  const auto nodes = static_cast<std::uint32_t>(text::to_number(sizes.back(), Hostlist::most_hosts).value_or(4));
  // Both sizes may be the user's, in a heterogeneous step, and slurmstepd reads the text as root.
  constexpr std::size_t most_bytes = 128UL << 20;
  const auto map = within(most_bytes, [&] { return launch::TaskMap::parse(mapping, size, nodes); });
  if (!map) return require_sentence(map.error().message);
  require(map->size() == size && map->nodes() == nodes, "the map has the sizes that were asked for");
  if (size <= most_ranks_checked) check_map(*map);
}

}  // namespace amldist::fuzz::task_map
