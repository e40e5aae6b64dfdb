#include "launch/rendezvous/own_identity.hpp"

#include <array>

#include "base/text/tasks_per_node.hpp"
#include "base/text/text.hpp"
#include "launch/rendezvous/stamp.hpp"

namespace amldist::launch {
namespace {

using text::concat;

Result<std::uint32_t> required_number(const EnvironmentReader& environment, std::string_view name) {
  const auto value = environment(name);
  if (!value) return Error{Errc::unavailable, concat({name, " is not set: start the step with srun --aml-dist=KIND"})};
  const auto number = text::to_number(*value, most_tasks);
  if (!number)
    return Error{Errc::invalid_argument,
                 concat({name, "=", text::quote(*value), " ", text::number_problem(*value, most_tasks)})};
  return static_cast<std::uint32_t>(*number);
}

Result<void> must_equal(const EnvironmentReader& environment, std::string_view name, std::uint32_t ours,
                        std::string_view our_name) {
  const auto value = environment(name);
  if (!value) return {};
  const auto number = text::to_number(*value, most_tasks);
  if (number && *number == ours) return {};
  return Error{Errc::mismatch, concat({our_name, "=", std::to_string(ours), " but ", name, "=", text::quote(*value),
                                       ": was one of them changed after the start?"})};
}

Result<void> check_bounds(const Identity& id) {
  const bool inside = id.rank < id.size && id.local_rank < id.local_size && id.node_rank < id.nodes &&
                      id.local_size <= id.size && id.nodes <= id.size && id.local_rank <= id.rank;
  if (inside) return {};
  return Error{Errc::mismatch, concat({"RANK=", std::to_string(id.rank), " of WORLD_SIZE=", std::to_string(id.size),
                                       ", LOCAL_RANK=", std::to_string(id.local_rank), " of LOCAL_WORLD_SIZE=",
                                       std::to_string(id.local_size), ", NODE_RANK=", std::to_string(id.node_rank),
                                       " of ", std::to_string(id.nodes), " nodes contradict each other"})};
}

}  // namespace

Result<OwnIdentity> read_own_identity(const EnvironmentReader& environment) {
  const auto stamp = Stamp::read(environment);
  if (!stamp) return Error{Errc::unavailable, "this process was not started by srun --aml-dist=KIND"};
  OwnIdentity own;
  Identity& id = own.identity;
  const std::array<std::pair<std::string_view, std::uint32_t*>, 5> fields = {{{"RANK", &id.rank},
                                                                              {"WORLD_SIZE", &id.size},
                                                                              {"LOCAL_RANK", &id.local_rank},
                                                                              {"LOCAL_WORLD_SIZE", &id.local_size},
                                                                              {"NODE_RANK", &id.node_rank}}};
  for (const auto& [name, target] : fields) {
    const auto number = required_number(environment, name);
    if (!number) return number.error();
    *target = *number;
  }
  const auto nodes = text::to_number(stamp->value_of("nodes").value_or(""), most_tasks);
  if (!nodes)
    return Error{Errc::invalid_argument, concat({stamp_variable, " was changed: it contains no number of nodes"})};
  id.nodes = static_cast<std::uint32_t>(*nodes);
  if (auto status = check_bounds(id); !status) return status.error();
  if (auto status = must_equal(environment, "SLURM_PROCID", id.rank, "RANK"); !status) return status.error();
  if (auto status = must_equal(environment, "SLURM_NTASKS", id.size, "WORLD_SIZE"); !status) return status.error();
  if (const auto port = text::to_number(environment("MASTER_PORT").value_or(""), 65535)) {
    own.master_port = static_cast<std::uint16_t>(*port);
  }
  return own;
}

}  // namespace amldist::launch
