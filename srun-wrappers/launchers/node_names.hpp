// Host names as people write them (localhost, long names, addresses) as the names of Slurm's nodes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/text/result.hpp"
#include "launchers/hosts.hpp"

namespace amldist::launchers {

/// The name of a host that may be any node: localhost outside of an allocation.
inline constexpr std::string_view any_node;

/// The nodes of the allocation in which this runs, in Slurm's order; empty outside one.
[[nodiscard]] std::vector<std::string> allocated_nodes();

/// Gives hosts the names that Slurm knows; hosts that turn out to be the same node have the slots of both. A plain name
/// is left as it is, and so is every name if Slurm cannot be asked (it is not installed, or does not answer in ten
/// seconds). Errors: not_found, a long name or an address of no node, or this machine if it is not a node. Slurm is
/// asked once for all calls.
[[nodiscard]] Result<void> name_nodes(std::vector<Host>& hosts, Repeats repeats);

/// The same for one host.
[[nodiscard]] Result<std::string> node_name(std::string_view host);

}  // namespace amldist::launchers
