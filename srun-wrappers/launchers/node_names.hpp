// Host names as people write them (localhost, long names, addresses) as the names of Slurm's nodes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/text/result.hpp"
#include "launchers/hosts.hpp"

namespace amldist::launchers {

/// The name of a host that may be any node: localhost, where there is no allocation.
inline constexpr std::string_view any_node;

/// The nodes of the allocation in which this runs, in Slurm's order; empty outside one.
[[nodiscard]] std::vector<std::string> allocated_nodes();

/// Gives hosts the names that Slurm knows; what becomes the same node has the slots of both. A plain name stays as it
/// is, and every name does where Slurm is not asked (it is not installed, or does not answer). Errors: not_found, a
/// long name or an address of no node, or this machine where it is not a node.
[[nodiscard]] Result<void> name_nodes(std::vector<Host>& hosts, Repeats repeats);

/// The same of one host.
[[nodiscard]] Result<std::string> node_name(std::string_view host);

}  // namespace amldist::launchers
