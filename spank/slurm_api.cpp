#include "spank/slurm_api.hpp"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <memory>
#include <span>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "core/text.hpp"

namespace amldist::spank {
namespace {

using text::concat;

/// A function of libslurm by name, or nullptr.
template <typename Function>
Function* find_function(const char* name) noexcept {
  return reinterpret_cast<Function*>(::dlsym(RTLD_DEFAULT, name));
}

Error lacks(std::string_view name) { return {Errc::unavailable, concat({"this Slurm has no ", name})}; }

std::string slurm_reason() {
  using Strerror = decltype(::slurm_strerror);
  auto* const text_of = find_function<Strerror>("slurm_strerror");
  const char* const reason = text_of != nullptr ? text_of(errno) : std::strerror(errno);
  return reason != nullptr ? reason : "unknown reason";
}

struct LayoutDeleter {
  void operator()(slurm_step_layout_t* layout) const noexcept {
    auto* const destroy = find_function<int(slurm_step_layout_t*)>("slurm_step_layout_destroy");
    if (destroy == nullptr) return;  // leaked once per srun rather than freed by a guess
    destroy(layout);
  }
};
using Layout = std::unique_ptr<slurm_step_layout_t, LayoutDeleter>;

/// slurm_kill_job_step takes two numbers, from 23.11 on with flags, and from 25.11 on a step id; the header at hand says
/// which.
template <typename Kill>
int kill_step(Kill* kill, std::uint32_t job_id, std::uint32_t step_id) {
  if constexpr (std::is_invocable_v<Kill, std::uint32_t, std::uint32_t, std::uint16_t>) {
    return kill(job_id, step_id, SIGKILL);
  } else if constexpr (std::is_invocable_v<Kill, std::uint32_t, std::uint32_t, std::uint16_t, std::uint16_t>) {
    return kill(job_id, step_id, SIGKILL, 0);
  } else {
    slurm_step_id_t id = {};
    id.job_id = job_id;
    id.step_id = step_id;
    id.step_het_comp = NO_VAL;
    return kill(&id, SIGKILL, 0);
  }
}

Result<std::vector<std::uint32_t>> nodes_of_ranks(const slurm_step_layout_t& layout) {
  std::vector<std::uint32_t> node_of_rank(layout.task_cnt, layout.node_cnt);
  for (std::uint32_t node = 0; node < layout.node_cnt; ++node) {
    for (const std::uint32_t rank : std::span(layout.tids[node], layout.tasks[node])) {
      if (rank >= layout.task_cnt)
        return Error{Errc::mismatch, "slurmctld's step layout names a task beyond its count"};
      node_of_rank[rank] = node;
    }
  }
  return node_of_rank;
}

Error miscounted() { return {Errc::mismatch, "slurmctld's step layout names another number of nodes than it counts"}; }

Result<Layout> get_layout(std::uint32_t job_id, std::uint32_t step_id, std::uint32_t component) {
  auto* const get = find_function<decltype(::slurm_job_step_layout_get)>("slurm_job_step_layout_get");
  if (get == nullptr) return lacks("slurm_job_step_layout_get");
  slurm_step_id_t id = {};
  id.job_id = job_id;
  id.step_id = step_id;
  id.step_het_comp = component;
  Layout layout(get(&id));
  if (!layout || layout->node_list == nullptr || layout->tids == nullptr || layout->tasks == nullptr) {
    return Error{Errc::unavailable, concat({"slurmctld did not give the layout of step ", std::to_string(job_id), ".",
                                            std::to_string(step_id), " (", slurm_reason(), "): try again"})};
  }
  return layout;
}

/// The layouts of a heterogeneous step in the order of its ranks. Inside one job the components are numbered; those of
/// a heterogeneous job are jobs of their own with the same step id, some of which may not take part.
std::vector<Layout> find_components(std::uint32_t job_id, std::uint32_t step_id, std::uint32_t tasks,
                                    const HeterogeneousHint& hint) {
  constexpr std::uint32_t most_components = 128;  // MAX_HET_JOB_COMPS in Slurm
  std::vector<Layout> found;
  std::uint64_t placed = 0;
  const auto keep = [&](Result<Layout> layout) {
    if (!layout) return false;
    placed += (*layout)->task_cnt;
    found.push_back(std::move(*layout));
    return true;
  };
  for (std::uint32_t component = 0; component < most_components && placed < tasks; ++component) {
    if (!keep(get_layout(job_id, step_id, component))) break;
  }
  if (!found.empty()) return found;
  for (std::uint32_t i = 0; i < std::min(hint.components, most_components) && placed < tasks; ++i) {
    static_cast<void>(keep(get_layout(hint.leader_job + i, step_id, NO_VAL)));
  }
  return found;
}

/// Components joined to one step: ranks go on where the last component ended, and equal names are one node.
class Components {
 public:
  Result<void> join(const slurm_step_layout_t& layout) {
    const auto hosts = Hostlist::parse(layout.node_list);
    if (!hosts) return hosts.error();
    if (hosts->size() != layout.node_cnt) return miscounted();
    const auto node_of_rank = nodes_of_ranks(layout);
    if (!node_of_rank) return node_of_rank.error();
    std::vector<std::uint32_t> index_of_node;
    for (const std::string& name : hosts->expand()) {
      const auto [found, added] = index_.emplace(name, static_cast<std::uint32_t>(names_.size()));
      if (added) names_.push_back(name);
      index_of_node.push_back(found->second);
    }
    for (const std::uint32_t node : *node_of_rank) {
      if (node >= index_of_node.size()) return miscounted();
      node_of_rank_.push_back(index_of_node[node]);
    }
    return {};
  }

  [[nodiscard]] std::size_t tasks() const noexcept { return node_of_rank_.size(); }

  Result<Placement> placement() && {
    auto hosts = Hostlist::parse(text::join(std::vector<std::string_view>(names_.begin(), names_.end()), ","));
    if (!hosts) return hosts.error();
    auto map = TaskMap::from_nodes_of_ranks(node_of_rank_, static_cast<std::uint32_t>(names_.size()));
    if (!map) return map.error();
    return Placement{std::move(*hosts), std::move(*map), Provenance::exact, "slurmctld's layouts of the components"};
  }

 private:
  std::unordered_map<std::string, std::uint32_t> index_;
  std::vector<std::string> names_;
  std::vector<std::uint32_t> node_of_rank_;
};

}  // namespace

Result<Placement> fetch_step_layout(std::uint32_t job_id, std::uint32_t step_id) {
  const auto layout = get_layout(job_id, step_id, NO_VAL);
  if (!layout) return layout.error();
  auto hosts = Hostlist::parse((*layout)->node_list);
  if (!hosts) return hosts.error();
  if (hosts->size() != (*layout)->node_cnt) return miscounted();
  const auto node_of_rank = nodes_of_ranks(**layout);
  if (!node_of_rank) return node_of_rank.error();
  auto map = TaskMap::from_nodes_of_ranks(*node_of_rank, (*layout)->node_cnt);
  if (!map) return map.error();
  return Placement{std::move(*hosts), std::move(*map), Provenance::exact, "slurmctld's step layout"};
}

Result<Placement> fetch_heterogeneous_layout(std::uint32_t job_id, std::uint32_t step_id, std::uint32_t tasks,
                                             const HeterogeneousHint& hint) {
  const auto components = find_components(job_id, step_id, tasks, hint);
  Components step;
  for (const Layout& component : components) {
    if (auto joined = step.join(*component); !joined) return joined.error();
  }
  if (step.tasks() != tasks) {
    return Error{
        Errc::mismatch,
        concat({"the step has ", text::count(tasks, "task"), " but slurmctld knows ", std::to_string(step.tasks()),
                " of them in ", text::count(components.size(), "component"), ": start the components one by one"})};
  }
  return std::move(step).placement();
}

Result<Ipv4> slurm_node_address(const std::string& node) {
  // int slurm_conf_get_addr(const char *node_name, slurm_addr_t *address, uint16_t flags): not in slurm.h, but exported
  // with this signature by every release from 20.11 to 26.05 (src/common/read_config.h).
  auto* const get = find_function<int(const char*, sockaddr_storage*, std::uint16_t)>("slurm_conf_get_addr");
  if (get == nullptr) return lacks("slurm_conf_get_addr");
  sockaddr_storage storage = {};
  if (get(node.c_str(), &storage, 0) != SLURM_SUCCESS || storage.ss_family != AF_INET) {
    return Error{Errc::unavailable, concat({"Slurm has no IPv4 address for node ", text::quote(node)})};
  }
  sockaddr_in address = {};
  std::memcpy(&address, &storage, sizeof address);
  return Ipv4{ntohl(address.sin_addr.s_addr)};
}

Result<void> end_step(std::uint32_t job_id, std::uint32_t step_id) {
  auto* const kill = find_function<decltype(::slurm_kill_job_step)>("slurm_kill_job_step");
  if (kill == nullptr) return lacks("slurm_kill_job_step");
  if (kill_step(kill, job_id, step_id) != SLURM_SUCCESS) {
    return Error{Errc::unavailable, concat({"slurmctld did not end the step: ", slurm_reason()})};
  }
  return {};
}

}  // namespace amldist::spank
