// Interfaces: Gloo takes exact names (torch's ProcessGroupGloo), NCCL prefixes, with ^ for "not" and = for "exactly".
// The behaviour of NCCL follows from its source and was not tried on GPUs.
#include <algorithm>

#include "aml_dist/doctor/rules.hpp"
#include "base/text/text.hpp"

namespace amldist::doctor {
namespace {

using text::concat;

bool is_interface(const Machine& machine, std::string_view name) {
  return !machine.interfaces || std::ranges::find(*machine.interfaces, name) != machine.interfaces->end();
}

/// Whether NCCL would use this interface.
bool nccl_takes(std::string_view pattern, std::string_view interface) {
  const bool inverted = pattern.starts_with('^');
  if (inverted) pattern.remove_prefix(1);
  const bool exact = pattern.starts_with('=');
  if (exact) pattern.remove_prefix(1);
  for (const std::string_view word : text::split(pattern, ',')) {
    if (exact ? interface == word : interface.starts_with(word)) return !inverted;
  }
  return inverted;
}

}  // namespace

std::optional<Problem> gloo_problem(const TaskContext& here) {
  const std::string names = here.text("GLOO_SOCKET_IFNAME");
  if (names.empty()) {
    if (here.nodes() == 1 || here.machine().own_name_is_loopback != true) return std::nullopt;
    return Problem{
        Outcome::fails,
        "this node's own name is loopback in /etc/hosts, and Gloo gives that address to its peers: Connection refused, "
        "remote=[127.0.1.1]",
        "export GLOO_SOCKET_IFNAME=INTERFACE, or give the name its real address in /etc/hosts"};
  }
  for (const std::string_view name : text::split(names, ',')) {
    if (name.starts_with('^') || !is_interface(here.machine(), name)) {
      return Problem{Outcome::fails,
                     concat({"GLOO_SOCKET_IFNAME=", text::quote(names), ": Unable to find address for: ", name}),
                     "GLOO_SOCKET_IFNAME takes names of interfaces, without ^"};
    }
    if (name == "lo" && here.nodes() > 1) {
      return Problem{Outcome::fails, "GLOO_SOCKET_IFNAME=lo reaches no other node", "unset GLOO_SOCKET_IFNAME"};
    }
  }
  return std::nullopt;
}

FrameworkResult examine_gloo(const TaskContext& here) {
  FrameworkResult result{.environment = here.has("GLOO_SOCKET_IFNAME")
                                            ? "GLOO_SOCKET_IFNAME=" + here.text("GLOO_SOCKET_IFNAME")
                                            : "the node's own name"};
  if (auto problem = gloo_problem(here)) return with(result, std::move(*problem));
  return result;
}

FrameworkResult examine_nccl(const TaskContext& here) {
  const std::string pattern = here.text("NCCL_SOCKET_IFNAME");
  FrameworkResult result{.environment = pattern.empty() ? "its own choice" : "NCCL_SOCKET_IFNAME=" + pattern};
  if (pattern.empty()) return result;
  const auto& interfaces = here.machine().interfaces;
  const bool none =
      interfaces && std::ranges::none_of(*interfaces, [&](const auto& name) { return nccl_takes(pattern, name); });
  if (none || (here.nodes() > 1 && (pattern == "lo" || pattern == "=lo"))) {
    Problem problem{Outcome::fails,
                    none ? concat({"NCCL_SOCKET_IFNAME=", text::quote(pattern),
                                   " matches no interface of this node: no socket interface found"})
                         : std::string("NCCL_SOCKET_IFNAME=lo reaches no other node"),
                    "unset NCCL_SOCKET_IFNAME"};
    if (here.gpus() == 0) problem.outcome = Outcome::warns;  // nothing here uses NCCL
    return with(result, std::move(problem));
  }
  const std::string gloo = here.text("GLOO_SOCKET_IFNAME");
  if (!gloo.empty() && !nccl_takes(pattern, text::split(gloo, ',').front())) {
    return with(result, {Outcome::warns,
                         concat({"NCCL_SOCKET_IFNAME=", text::quote(pattern),
                                 " and GLOO_SOCKET_IFNAME=", text::quote(gloo), " are different networks"}),
                         "name the same interface in both"});
  }
  return result;
}

}  // namespace amldist::doctor
