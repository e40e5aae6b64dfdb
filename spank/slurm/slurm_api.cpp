#include "spank/slurm/slurm_api.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include "base/net/socket_address.hpp"
#include "base/text/text.hpp"

namespace amldist::spank {
namespace {

using text::concat;

/// A function of libslurm by name, or nullptr.
template <typename Function>
Function* find_function(const char* name) noexcept {
  return reinterpret_cast<Function*>(::dlsym(RTLD_DEFAULT, name));
}

Error lacks(std::string_view name) {
  return {Errc::unavailable, concat({"this release of Slurm has no function ", name})};
}

std::string slurm_reason() {
  using Strerror = decltype(::slurm_strerror);
  auto* const text_of = find_function<Strerror>("slurm_strerror");
  const char* const reason = text_of != nullptr ? text_of(errno) : std::strerror(errno);
  return reason != nullptr ? reason : "unknown reason";
}

/// Whether an error number of libslurm means that a request or its answer was lost.
bool is_out_of_reach(int error) {
  return error >= SLURM_COMMUNICATIONS_CONNECTION_ERROR && error < SLURM_NO_CHANGE_IN_DATA;
}

struct LayoutDeleter {
  void operator()(slurm_step_layout_t* layout) const noexcept {
    auto* const destroy = find_function<int(slurm_step_layout_t*)>("slurm_step_layout_destroy");
    if (destroy == nullptr) return;  // a leak in one srun is better than a wrong free
    destroy(layout);
  }
};
using Layout = std::unique_ptr<slurm_step_layout_t, LayoutDeleter>;

/// slurm_kill_job_step takes two numbers, from 23.11 on with flags, and from 25.11 on a step id; the installed header
/// decides.
template <typename Kill>
int kill_step(Kill* kill, std::uint32_t job_id, std::uint32_t step_id, std::uint16_t signal) {
  if constexpr (std::is_invocable_v<Kill, std::uint32_t, std::uint32_t, std::uint16_t>) {
    return kill(job_id, step_id, signal);
  } else if constexpr (std::is_invocable_v<Kill, std::uint32_t, std::uint32_t, std::uint16_t, std::uint16_t>) {
    return kill(job_id, step_id, signal, 0);
  } else {
    slurm_step_id_t id = {};
    id.job_id = job_id;
    id.step_id = step_id;
    id.step_het_comp = NO_VAL;
    return kill(&id, signal, 0);
  }
}

/// slurm_load_job takes a number, or from 26.05 on a step id.
template <typename Load>
int load_job(Load* load, job_info_msg_t** jobs, std::uint32_t job_id) {
  if constexpr (std::is_invocable_v<Load, job_info_msg_t**, std::uint32_t, std::uint16_t>) {
    return load(jobs, job_id, SHOW_LOCAL);
  } else {
    slurm_step_id_t id = {};
    id.job_id = job_id;
    id.step_id = NO_VAL;
    id.step_het_comp = NO_VAL;
    return load(jobs, id, SHOW_LOCAL);
  }
}

/// slurm_get_job_steps takes two numbers, or from 26.05 on a step id.
template <typename Get>
int get_steps(Get* get, std::uint32_t job_id, std::uint32_t step_id, job_step_info_response_msg_t** steps) {
  if constexpr (std::is_invocable_v<Get, time_t, std::uint32_t, std::uint32_t, job_step_info_response_msg_t**,
                                    std::uint16_t>) {
    return get(0, job_id, step_id, steps, SHOW_ALL);
  } else {
    slurm_step_id_t id = {};
    id.job_id = job_id;
    id.step_id = step_id;
    id.step_het_comp = NO_VAL;
    return get(&id, steps, SHOW_ALL);
  }
}

Result<std::vector<std::uint32_t>> nodes_of_ranks(const slurm_step_layout_t& layout) {
  std::vector<std::uint32_t> node_of_rank(layout.task_cnt, layout.node_cnt);
  for (std::uint32_t node = 0; node < layout.node_cnt; ++node) {
    for (const std::uint32_t rank : std::span(layout.tids[node], layout.tasks[node])) {
      if (rank >= layout.task_cnt)
        return Error{Errc::mismatch, "slurmctld's step layout has a rank that is not below its number of tasks"};
      node_of_rank[rank] = node;
    }
  }
  return node_of_rank;
}

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

/// A message of slurmctld and the function that frees it.
template <typename Message>
class Owned {
 public:
  explicit Owned(const char* name_of_free, const char* newer_name = nullptr)
      : free_(find_function<void(Message*)>(name_of_free)) {
    if (free_ == nullptr && newer_name != nullptr) free_ = find_function<void(Message*)>(newer_name);
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() {
    if (message_ != nullptr && free_ != nullptr) free_(message_);
  }
  [[nodiscard]] Message** out() noexcept { return &message_; }
  [[nodiscard]] const Message* get() const noexcept { return message_; }
  [[nodiscard]] const Message* operator->() const noexcept { return message_; }

 private:
  void (*free_)(Message*);
  Message* message_ = nullptr;
};

struct FoundComponent {
  std::uint32_t job_id;
  Layout layout;
};

constexpr std::uint32_t most_components = 128;  // MAX_HET_JOB_COMPS in Slurm

/// A job's record in slurmctld's answer, or nullptr.
const slurm_job_info_t* record_of(const job_info_msg_t& jobs, std::uint32_t job_id) {
  const std::span records(jobs.job_array, jobs.record_count);
  const auto found = std::ranges::find_if(records, [job_id](const auto& job) { return job.job_id == job_id; });
  return found != records.end() ? &*found : nullptr;
}

/// The jobs of the heterogeneous job that this job is a component of, in the order of their components; empty for any
/// other job. Other jobs are not asked for: slurmctld names the first component, whose answer has them all.
std::vector<std::uint32_t> jobs_beside(std::uint32_t job_id) {
  auto* const load = find_function<decltype(::slurm_load_job)>("slurm_load_job");
  Owned<job_info_msg_t> own("slurm_free_job_info_msg");
  if (load == nullptr || load_job(load, own.out(), job_id) != SLURM_SUCCESS) return {};
  const auto* const self = record_of(*own.get(), job_id);
  if (self == nullptr || self->het_job_id == 0) return {};
  Owned<job_info_msg_t> all("slurm_free_job_info_msg");
  if (load_job(load, all.out(), self->het_job_id) != SLURM_SUCCESS) return {};
  std::map<std::uint32_t, std::uint32_t> job_of_component;
  for (const auto& job : std::span(all->job_array, all->record_count)) {
    const bool is_beside = job.het_job_id == self->het_job_id && job.user_id == self->user_id &&
                           job.het_job_offset < most_components && job.job_id == self->het_job_id + job.het_job_offset;
    if (is_beside) job_of_component[job.het_job_offset] = job.job_id;
  }
  std::vector<std::uint32_t> jobs;
  jobs.reserve(job_of_component.size());
  for (const auto& [component, job] : job_of_component) jobs.push_back(job);
  return jobs;
}

/// The layouts of a heterogeneous step in the order of its ranks. Inside one job the components are numbered; those of
/// a heterogeneous job are jobs of their own with the same step id, some of which may not take part.
std::vector<FoundComponent> find_components(std::uint32_t job_id, std::uint32_t step_id,
                                            const ComponentSearch& search) {
  std::vector<FoundComponent> found;
  std::uint64_t placed = 0;
  const auto complete = [&] { return search.tasks != 0 && placed >= search.tasks; };
  const auto keep = [&](std::uint32_t job, Result<Layout> layout) {
    if (!layout) return false;
    placed += (*layout)->task_cnt;
    found.push_back({job, std::move(*layout)});
    return true;
  };
  const std::size_t most = std::min<std::size_t>(search.jobs ? search.jobs->size() : most_components, most_components);
  for (std::uint32_t component = 0; component < most && !complete(); ++component) {
    if (!keep(job_id, get_layout(job_id, step_id, component))) break;
  }
  if (!found.empty()) return found;
  for (const std::uint32_t job : search.jobs ? *search.jobs : jobs_beside(job_id)) {
    if (complete()) break;
    static_cast<void>(keep(job, get_layout(job, step_id, NO_VAL)));
  }
  return found;
}

/// A step's or a component's hosts, as many as slurmctld counts.
Result<Hostlist> hosts_of(const slurm_step_layout_t& layout) {
  auto hosts = Hostlist::parse(layout.node_list);
  if (hosts && hosts->size() != layout.node_cnt) {
    return Error{Errc::mismatch, "slurmctld's step layout does not list as many nodes as it counts"};
  }
  return hosts;
}

Result<void> join(launch::Components& step, const slurm_step_layout_t& component) {
  const auto hosts = hosts_of(component);
  if (!hosts) return hosts.error();
  const auto node_of_rank = nodes_of_ranks(component);
  if (!node_of_rank) return node_of_rank.error();
  return step.join(*hosts, *node_of_rank);
}

/// The description of a job names it by a number, or from 26.05 on by a step id.
template <typename Description>
void name_job(Description& description, std::uint32_t job_id) {
  if constexpr (requires { description.job_id; }) {
    description.job_id = job_id;
  } else {
    description.step_id.job_id = job_id;
  }
}

/// What ends the steps of a job in this state; nullopt: nothing but its tasks themselves.
std::optional<JobEnd> end_of_state(std::uint32_t job_state) noexcept {
  using enum JobEnd;
  switch (job_state & JOB_STATE_BASE) {
    case JOB_RUNNING:
    case JOB_SUSPENDED:
    case JOB_COMPLETE:  // srun's own job, when its step is over
    case JOB_FAILED:
    case JOB_OOM:
      return std::nullopt;
    case JOB_TIMEOUT:
      return time_limit;
    case JOB_DEADLINE:
      return deadline;
    case JOB_PREEMPTED:
      return preempted;
    case JOB_NODE_FAIL:
    case JOB_BOOT_FAIL:
      return node_lost;
    case JOB_CANCELLED:
      return cancelled;
    default:
      return requeued;
  }
}

}  // namespace

Result<launch::Placement> fetch_step_layout(std::uint32_t job_id, std::uint32_t step_id) {
  const auto layout = get_layout(job_id, step_id, NO_VAL);
  if (!layout) return layout.error();
  auto hosts = hosts_of(**layout);
  if (!hosts) return hosts.error();
  const auto node_of_rank = nodes_of_ranks(**layout);
  if (!node_of_rank) return node_of_rank.error();
  auto map = launch::TaskMap::from_nodes_of_ranks(*node_of_rank, (*layout)->node_cnt);
  if (!map) return map.error();
  return launch::Placement{std::move(*hosts), std::move(*map), launch::Provenance::exact, "slurmctld's step layout"};
}

Result<HeterogeneousLayout> fetch_heterogeneous_layout(std::uint32_t job_id, std::uint32_t step_id,
                                                       const ComponentSearch& search) {
  launch::Components step;
  std::vector<launch::Component> components;
  for (const FoundComponent& found : find_components(job_id, step_id, search)) {
    if (auto status = join(step, *found.layout); !status) return status.error();
    components.push_back({found.job_id, found.layout->task_cnt, found.layout->node_list});
  }
  if (search.tasks != 0 && step.tasks() != search.tasks) {
    return Error{Errc::mismatch,
                 concat({"the step has ", text::count(search.tasks, "task"), " but slurmctld knows ",
                         std::to_string(step.tasks()), " of them in ", text::count(components.size(), "component"),
                         ": start the components one by one"})};
  }
  auto placement = std::move(step).placement(launch::Provenance::exact, "slurmctld's layouts of the components");
  if (!placement) return placement.error();
  return HeterogeneousLayout{std::move(*placement), std::move(components)};
}

Result<std::vector<std::string>> fetch_node_features(const Hostlist& hosts) {
  auto* const load = find_function<decltype(::slurm_load_node)>("slurm_load_node");
  if (load == nullptr) return lacks("slurm_load_node");
  Owned<node_info_msg_t> message("slurm_free_node_info_msg");
  if (load(0, message.out(), SHOW_ALL | SHOW_LOCAL) != SLURM_SUCCESS) {
    return Error{Errc::unavailable, concat({"slurmctld did not give the nodes' features (", slurm_reason(),
                                            "), which the site's rules for rdma need: try again"})};
  }
  std::map<std::string_view, std::string_view> features_of;
  for (const node_info_t& node : std::span(message->node_array, message->record_count)) {
    if (node.name == nullptr) continue;
    const char* const active = node.features_act != nullptr ? node.features_act : node.features;
    features_of[node.name] = active != nullptr ? active : "";
  }
  std::vector<std::string> out;
  for (const std::string& host : hosts.expand()) {
    const auto found = features_of.find(host);
    if (found == features_of.end()) {
      return Error{Errc::unavailable, concat({"slurmctld does not say which features node ", host, " has"})};
    }
    out.emplace_back(found->second);
  }
  return out;
}

Result<IpAddress> slurm_node_address(const std::string& node) {
  // int slurm_conf_get_addr(const char *node_name, slurm_addr_t *address, uint16_t flags): not in slurm.h, but exported
  // with this signature by every release from 20.11 to 26.05 (src/common/read_config.h).
  auto* const get = find_function<int(const char*, sockaddr_storage*, std::uint16_t)>("slurm_conf_get_addr");
  if (get == nullptr) return lacks("slurm_conf_get_addr");
  sockaddr_storage storage = {};
  if (get(node.c_str(), &storage, 0) != SLURM_SUCCESS)
    return Error{Errc::unavailable, concat({"Slurm has no address for node ", text::quote(node)})};
  const SocketAddress address(reinterpret_cast<const sockaddr&>(storage));
  if (address.family() == AF_UNSPEC)
    return Error{Errc::unavailable, concat({"Slurm has no IP address for node ", text::quote(node)})};
  return address.address();
}

Result<Ipv4> slurm_node_ipv4(const std::string& node) {
  const auto address = slurm_node_address(node);
  if (!address) return address.error();
  if (const auto four = address->as_ipv4()) return *four;
  return Error{Errc::unavailable, concat({"Slurm has no IPv4 address for node ", text::quote(node)})};
}

namespace {

/// Whether a node that gets its first task of a job runs a prolog then. One remote call.
bool runs_prolog_at_launch() {
  auto* const load = find_function<decltype(::slurm_load_ctl_conf)>("slurm_load_ctl_conf");
  Owned<slurm_conf_t> configuration("slurm_free_ctl_conf", "slurm_free_conf");
  if (load == nullptr || load(0, configuration.out()) != SLURM_SUCCESS) return true;
  const bool at_allocation = (configuration->prolog_flags & PROLOG_FLAG_ALLOC) != 0;
  const bool awaited = (configuration->prolog_flags & PROLOG_FLAG_NOHOLD) == 0;
  return configuration->prolog != nullptr && !(at_allocation && awaited);
}

/// Processes of a step on the nodes that answered; nullopt where none did.
std::optional<std::uint32_t> count_processes(const job_step_pids_response_msg_t& answer) {
  auto* const begin = find_function<decltype(::slurm_list_iterator_create)>("slurm_list_iterator_create");
  auto* const next = find_function<decltype(::slurm_list_next)>("slurm_list_next");
  auto* const end = find_function<decltype(::slurm_list_iterator_destroy)>("slurm_list_iterator_destroy");
  if (begin == nullptr || next == nullptr || end == nullptr || answer.pid_list == nullptr) return std::nullopt;
  std::optional<std::uint32_t> count;
  auto* const nodes = begin(answer.pid_list);
  while (const auto* const node = static_cast<const job_step_pids_t*>(next(nodes)))
    count = count.value_or(0) + node->pid_cnt;
  end(nodes);
  return count;
}

}  // namespace

step::NodePresence presence_of_step(std::uint32_t job_id, std::uint32_t step_id, std::uint32_t component,
                                    const std::string& node) {
  using step::NodePresence;
  auto* const get = find_function<decltype(::slurm_job_step_get_pids)>("slurm_job_step_get_pids");
  if (get == nullptr) return NodePresence::unknown;
  for (int i = 0; i <= STDERR_FILENO; ++i) static_cast<void>(::open("/dev/null", O_RDWR));  // the lowest that are free
  slurm_step_id_t id = {};
  id.job_id = job_id;
  id.step_id = step_id;
  id.step_het_comp = component;
  Owned<job_step_pids_response_msg_t> answer("slurm_job_step_pids_response_msg_free");
  std::string name = node;
  const int status = get(&id, name.data(), answer.out());
  const auto count = answer.get() != nullptr ? count_processes(*answer.get()) : std::nullopt;
  if (count && *count != 0) return NodePresence::has_started;
  if (status == ESLURM_INVALID_JOB_ID) return runs_prolog_at_launch() ? NodePresence::in_prolog : NodePresence::absent;
  return status == SLURM_SUCCESS && count ? NodePresence::starting : NodePresence::unknown;
}

Result<void> signal_step(std::uint32_t job_id, std::uint32_t step_id, int signal) {
  auto* const kill = find_function<decltype(::slurm_kill_job_step)>("slurm_kill_job_step");
  if (kill == nullptr) return lacks("slurm_kill_job_step");
  if (kill_step(kill, job_id, step_id, static_cast<std::uint16_t>(signal)) != SLURM_SUCCESS) {
    return Error{Errc::unavailable, concat({"slurmctld did not end the step: ", slurm_reason()})};
  }
  return {};
}

Result<void> end_step(std::uint32_t job_id, std::uint32_t step_id) { return signal_step(job_id, step_id, SIGKILL); }

std::optional<JobEnd> end_of_job(std::uint32_t job_id) {
  auto* const load = find_function<decltype(::slurm_load_job)>("slurm_load_job");
  Owned<job_info_msg_t> jobs("slurm_free_job_info_msg");
  if (load == nullptr || load_job(load, jobs.out(), job_id) != SLURM_SUCCESS) return std::nullopt;
  const auto* const job = record_of(*jobs.get(), job_id);
  if (job == nullptr) return std::nullopt;
  const auto end = end_of_state(job->job_state);
  // Of a job that goes back into the queue the state does not tell that another job took its nodes.
  return end == JobEnd::requeued && job->preempt_time != 0 ? JobEnd::preempted : end;
}

Result<std::string> comment_of_job(std::uint32_t job_id) {
  auto* const load = find_function<decltype(::slurm_load_job)>("slurm_load_job");
  if (load == nullptr) return lacks("slurm_load_job");
  Owned<job_info_msg_t> jobs("slurm_free_job_info_msg");
  if (load_job(load, jobs.out(), job_id) == SLURM_SUCCESS) {
    for (const auto& job : std::span(jobs->job_array, jobs->record_count)) {
      if (job.job_id == job_id) return std::string(job.comment != nullptr ? job.comment : "");
    }
  }
  return Error{Errc::unavailable, concat({"slurmctld does not know job ", std::to_string(job_id)})};
}

Result<void> set_comment_of_job(std::uint32_t job_id, std::string comment) {
  auto* const initialize = find_function<decltype(::slurm_init_job_desc_msg)>("slurm_init_job_desc_msg");
  auto* const update = find_function<decltype(::slurm_update_job)>("slurm_update_job");
  if (initialize == nullptr || update == nullptr) return lacks("slurm_update_job");
  job_desc_msg_t change = {};
  initialize(&change);
  name_job(change, job_id);
  change.comment = comment.data();
  if (update(&change) == SLURM_SUCCESS) return {};
  return Error{Errc::unavailable, concat({"slurmctld did not take the job's comment: ", slurm_reason()})};
}

StepLimit limit_of_step(std::uint32_t job_id, std::uint32_t step_id) {
  auto* const get = find_function<decltype(::slurm_get_job_steps)>("slurm_get_job_steps");
  Owned<job_step_info_response_msg_t> steps("slurm_free_job_step_info_response_msg");
  if (get == nullptr) return {};
  if (get_steps(get, job_id, step_id, steps.out()) != SLURM_SUCCESS) return {.answered = !is_out_of_reach(errno)};
  for (const job_step_info_t& step : std::span(steps->job_steps, steps->job_step_count)) {
    const bool limited = step.time_limit != INFINITE && step.time_limit != NO_VAL;
    // slurmctld gives the steps of all tasks of an array for the number of the last one.
    if (step.step_id.job_id != job_id || step.step_id.step_id != step_id || !limited) continue;
    return {.left = std::chrono::minutes(step.time_limit) - std::chrono::seconds(step.run_time)};
  }
  return {};
}

StepLimit time_left(std::uint32_t job_id, std::uint32_t step_id) {
  StepLimit least = limit_of_step(job_id, step_id);
  auto* const load = find_function<decltype(::slurm_load_job)>("slurm_load_job");
  Owned<job_info_msg_t> jobs("slurm_free_job_info_msg");
  if (!least.answered || load == nullptr || load_job(load, jobs.out(), job_id) != SLURM_SUCCESS)
    return {.answered = false};
  const auto* const job = record_of(*jobs.get(), job_id);
  if (job == nullptr) return {.answered = false};
  // Without a limit Slurm writes the end of the job as a year from its start.
  if (job->time_limit == INFINITE && job->preempt_time == 0) return least;
  const std::chrono::seconds left(job->end_time - jobs->last_update);  // both by slurmctld's clock
  if (!least.left || left < *least.left) least.left = left;
  return least;
}

bool kills_on_bad_exit_by_default() {
  auto* const load = find_function<decltype(::slurm_load_ctl_conf)>("slurm_load_ctl_conf");
  Owned<slurm_conf_t> configuration("slurm_free_ctl_conf", "slurm_free_conf");  // renamed by 26.05
  return load != nullptr && load(0, configuration.out()) == SLURM_SUCCESS && configuration->kill_on_bad_exit != 0;
}

std::chrono::seconds kill_wait() {
  constexpr std::chrono::seconds usual{30};
  auto* const load = find_function<decltype(::slurm_load_ctl_conf)>("slurm_load_ctl_conf");
  Owned<slurm_conf_t> configuration("slurm_free_ctl_conf", "slurm_free_conf");
  if (load == nullptr || load(0, configuration.out()) != SLURM_SUCCESS) return usual;
  return std::chrono::seconds(configuration->kill_wait);
}

bool is_being_debugged() noexcept {
  const auto* const flag = static_cast<const int*>(::dlsym(RTLD_DEFAULT, "MPIR_being_debugged"));
  return flag != nullptr && *flag != 0;
}

std::optional<std::pair<std::uint16_t, std::uint16_t>> srun_port_range() {
  // uint16_t *slurm_get_srun_port_range(void): not in slurm.h, but called by srun itself for its ports
  // (src/common/slurm_protocol_api.h); two numbers that belong to the configuration.
  auto* const get = find_function<std::uint16_t*()>("slurm_get_srun_port_range");
  const std::uint16_t* const range = get != nullptr ? get() : nullptr;
  if (range == nullptr || range[0] == 0 || range[1] < range[0]) return std::nullopt;
  return std::pair(range[0], range[1]);
}

}  // namespace amldist::spank
