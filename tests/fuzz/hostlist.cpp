// Slurm's host lists: SLURM_STEP_NODELIST, and the components in srun's record.
#include "base/text/hostlist.hpp"

#include <algorithm>

#include "fuzz.hpp"
#include "launch/placement/components.hpp"

namespace amldist::fuzz::hostlist {
namespace {

constexpr std::size_t most_checked = 4096;  // hosts that are looked at one by one

void check_names(const Hostlist& list) {
  const auto names = list.expand();
  require(names.size() == list.size(), "expand() gives size() names");
  for (std::size_t i = 0; i < names.size(); ++i) require(list.at(i) == names[i], "at() is a name of expand()");
  const auto again = Hostlist::from_names(names);
  require(again && again->size() == list.size() && again->expand() == names, "names make the same list");
}

}  // namespace

const std::string_view separator = ",";

void try_input(std::string_view input) {
  // An entry of two bytes costs about two hundred.
  const auto list = within(input.size() * 256 + 4096, [input] { return Hostlist::parse(input); });
  if (!list) return require_sentence(list.error().message);
  require(!list->empty() && list->size() <= Hostlist::most_hosts, "a list has 1 to 2^20 hosts");
  for (const std::size_t index : {std::size_t{0}, list->size() / 2, list->size() - 1}) {
    const std::string name = list->at(index);
    require(!name.empty() && name.size() <= 253, "a host's name has at most 253 characters");
  }
  if (list->size() <= most_checked) check_names(*list);
  // What slurmstepd makes of it when it comes in a heterogeneous step's record.
  const launch::Component components[] = {{1, 1, std::string(input)}, {2, 1, std::string(input)}};
  constexpr std::size_t most_bytes = 128UL << 20;
  const auto distinct = within(most_bytes, [&components] { return distinct_hosts(components); });
  if (!distinct) return require_sentence(distinct.error().message);
  require(distinct->size() <= list->size(), "a host that is named again is the same host");
}

}  // namespace amldist::fuzz::hostlist
