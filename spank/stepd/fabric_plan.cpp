#include "spank/stepd/fabric_plan.hpp"

#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <thread>

#include "base/os/child_process.hpp"
#include "base/os/process_end.hpp"
#include "base/text/text.hpp"
#include "base/time/clock.hpp"
#include "fabric/between_nodes/node_settings.hpp"
#include "fabric/between_nodes/pair_schedule.hpp"
#include "fabric/report/report_json.hpp"
#include "launch/option/settings.hpp"
#include "spank/slurm/output.hpp"
#include "step/messages/fabric_vote.hpp"
#include "step/messages/launch_record.hpp"
#include "step/messages/node_texts.hpp"

namespace amldist::spank {
namespace {

using fabric::Check;
using fabric::Verdict;
using std::chrono::milliseconds;
using std::chrono::seconds;
using text::concat;

constexpr std::size_t longest_output = 64UL * 1024;  ///< of the helper
constexpr seconds node_timeout{5};
constexpr seconds verbs_timeout{15};   ///< told to the helper, which kills what hangs below it
constexpr seconds helper_timeout{20};  ///< for the helper itself
constexpr seconds pairs_timeout{40};   ///< more, where it writes to other nodes; it ends by itself after 38
constexpr seconds voting_silence{40};  ///< without an answer from srun
/// How long the leader waits for other nodes while srun answers, before it writes to them and when it has voted: an
/// image or a prolog may delay their tasks. A stand-in for srun answers only when its own node's tasks have come.
constexpr seconds voting_timeout{600};
/// How long a node's other tasks wait for the leader: longer than all of its own limits.
constexpr seconds waiting_timeout = node_timeout + helper_timeout + pairs_timeout + 2 * voting_timeout + voting_silence;

bool is_program(const std::string& path) {
  struct stat status = {};
  return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) && (status.st_mode & S_IXUSR) != 0;
}

/// The tool of the same installation: PREFIX/bin/aml-dist for PREFIX/lib*/slurm/spank_aml_dist.so (also below a
/// multiarch folder), or beside the plugin.
std::string find_helper(const std::string& configured) {
  if (!configured.empty()) return configured;
  Dl_info own = {};
  static const char anchor = 0;
  if (::dladdr(&anchor, &own) == 0 || own.dli_fname == nullptr) return {};
  const std::string path = own.dli_fname;
  const std::string folder = path.substr(0, path.rfind('/') + 1);
  if (!folder.starts_with('/')) return {};
  for (const char* const relative : {"../../bin/aml-dist", "../../../bin/aml-dist", "aml-dist"}) {
    if (is_program(folder + relative)) return folder + relative;
  }
  return {};
}

/// The helper's command line.
std::vector<std::string> helper_words(const FabricPlan& plan) {
  std::vector<std::string> words = {plan.helper,
                                    "check",
                                    "--task-part",
                                    "--policy",
                                    concat({to_string(plan.policy)}),
                                    "--health",
                                    concat({to_string(plan.health)}),
                                    "--timeout",
                                    std::to_string(verbs_timeout.count())};
  if (!plan.sku.empty()) words.insert(words.end(), {"--sku", plan.sku});
  if (!plan.site_file.empty()) words.insert(words.end(), {"--site-file", plan.site_file});
  if (plan.nodes == 1) return words;
  words.insert(words.end(), {"--launch-node", std::to_string(plan.node), "--launch-nodes", std::to_string(plan.nodes)});
  if (plan.peers.empty()) return words;
  words.insert(words.end(), {"--launch-pairs", concat({to_string(plan.pairs)}), "--launch-names", plan.peers});
  return words;
}

/// The job's environment, in which the helper finds who answers for the step: srun, or its stand-in.
std::vector<std::string> helper_environment(const std::optional<step::SrunLink>& srun, const Handle& handle) {
  char** environment = nullptr;
  if (::spank_get_item(handle.raw(), S_JOB_ENV, &environment) != ESPANK_SUCCESS) environment = nullptr;
  const std::string host = concat({step::srun_host_variable, "="});
  std::vector<std::string> out;
  for (char** each = environment; each != nullptr && *each != nullptr; ++each) {
    const std::string_view word = *each;
    if (!word.starts_with(host)) out.emplace_back(word);
  }
  if (srun) {
    out.push_back(concat({step::report_variable, "=", srun->channel.to_string()}));
    out.push_back(host + srun->address.to_string());
  }
  return out;
}

/// What a node found, and whether a signal ended its search: the step's own end may have sent it.
struct Findings {
  std::vector<Check> checks;
  bool ended = false;
};

Findings no_helper(std::string evidence) {
  return {{{"ib.helper", Verdict::fail, std::move(evidence),
            "install aml-dist's tools on the nodes, or name them with rdma_helper= in plugstack.conf"}}};
}

Findings killed_helper(const std::string& helper, int signal) {
  return {{{"ib.helper", Verdict::fail,
            concat({helper, " printed no result: signal ", std::to_string(signal), " ended it"}),
            "unless the step was cancelled, look for a memory limit, or in the node's log for its cause"}},
          true};
}

/// What the installed tool finds as the user: device nodes, limits, verbs, GPUs, and the way to other nodes.
Findings task_part(const FabricPlan& plan, const std::optional<step::SrunLink>& srun, const Handle& handle) {
  if (plan.helper.empty()) return no_helper("bin/aml-dist is not installed beside the plugin");
  ChildProgram helper{.words = helper_words(plan), .environment = helper_environment(srun, handle)};
  const auto patience = plan.peers.empty() ? helper_timeout : helper_timeout + pairs_timeout;
  const auto output = output_of(std::move(helper), Clock::now() + patience, longest_output);
  if (!output) return no_helper(concat({plan.helper, ": ", output.error().message}));
  auto checks = fabric::checks_from_lines(output->text);
  if (checks && !checks->empty()) return {std::move(*checks)};
  if (const int signal = signal_of(output->status); signal != 0) return killed_helper(plan.helper, signal);
  return no_helper(concat({plan.helper, " printed no result"}));
}

/// For the more nodes, the longer.
milliseconds longest_pause(const FabricPlan& plan) { return milliseconds(50 + plan.nodes / 5); }

/// Waits until the tasks of all nodes have come, or the step is decided: the helper waits for the nodes' checks, but
/// not for late tasks.
void await_nodes(const FabricPlan& plan, const step::SrunLink& srun) {
  if (plan.peers.empty()) return;
  const std::string presence = fabric::NodePresence{plan.policy, plan.nodes}.to_string();
  const std::array own = {plan.node};  // srun shows it when all nodes have come
  const auto ask = step::ask_over(srun);
  const auto end = Clock::now() + voting_timeout;
  bool is_to_wait = true;
  while (is_to_wait && Clock::now() < end) {
    const auto round = step::exchange_texts(ask, srun.channel.token, fabric::presence_round, plan.node, presence, own,
                                            std::min(end, Clock::now() + plan.silence), longest_pause(plan));
    is_to_wait = round.silent.has_value() && round.srun_answered;
  }
}

std::vector<Check> failures_among(const std::vector<Check>& checks) {
  std::vector<Check> out;
  std::ranges::copy_if(checks, std::back_inserter(out),
                       [](const Check& each) { return each.verdict == Verdict::fail; });
  return out;
}

/// The checks of this node that count for its step: of the fabric, of GPUs and host, and those between nodes.
Findings verify(const FabricPlan& plan, const std::optional<step::SrunLink>& srun, const Handle& handle) {
  std::vector<Check> checks;
  if (plan.policy != launch::RdmaPolicy::off) {
    checks = plan.node_part.checks;
    // To have nothing to verify is wrong too, since both policies promise RDMA.
    if (failures_among(checks).empty() && !plan.node_part.verified) {
      checks.push_back(
          {"ib.sysfs", Verdict::fail, "no InfiniBand or RoCE port", "choose nodes with RDMA, or rdma=off"});
    }
  }
  if (!failures_among(checks).empty()) return {std::move(checks)};
  if (srun) await_nodes(plan, *srun);
  Findings of_tool = task_part(plan, srun, handle);
  for (Check& each : of_tool.checks) {
    const bool counts =
        plan.unknown_fails && plan.policy == launch::RdmaPolicy::require && each.verdict == Verdict::unknown;
    if (counts) each.verdict = Verdict::fail;
    checks.push_back(std::move(each));
  }
  return {std::move(checks), of_tool.ended};
}

/// Of GPUs, the host, or the site's own.
bool is_of_health(const Check& check) {
  return check.id.starts_with("gpu.") || check.id.starts_with("host.") || check.id.starts_with("site.");
}

/// The key whose check it is, "rdma=require".
std::string key_of(const FabricPlan& plan, const Check& check) {
  const bool health = is_of_health(check) || plan.policy == launch::RdmaPolicy::off;
  return concat({health ? "health=" : "rdma=", to_string(health ? plan.health : plan.policy)});
}

/// Whether a failure ends the step.
bool refuses(const FabricPlan& plan, const Check& failure) {
  const bool health = is_of_health(failure) || plan.policy == launch::RdmaPolicy::off;
  return (health ? plan.health : plan.policy) == launch::RdmaPolicy::require;
}

std::string sentence(const Check& check) {
  return concat({check.id, ": ", check.evidence, check.remedy.empty() ? "" : ": ", check.remedy});
}

/// Sends the node's vote until srun answers with what all agreed on; the more nodes, the less often.
step::MessageType vote(const FabricPlan& plan, const step::SrunLink& srun, const std::string& message) {
  const milliseconds pause = longest_pause(plan);
  step::NodeSocket socket(srun);
  const auto end = Clock::now() + voting_timeout;
  auto deadline = Clock::now() + plan.silence;
  while (socket && Clock::now() < deadline) {
    socket.send(message);
    const std::string answer = socket.answer(pause);
    if (answer.empty()) continue;
    deadline = std::min(end, Clock::now() + plan.silence);
    const step::MessageType type =
        step::parse_message_type(answer, srun.channel.token).value_or(step::MessageType::not_yet);
    const bool decided = type == step::MessageType::use_fabric || type == step::MessageType::use_sockets ||
                         type == step::MessageType::refuse_step;
    if (decided) return type;
    std::this_thread::sleep_for(pause);  // "not yet" comes at once
  }
  return step::MessageType::not_yet;
}

/// The verified ports, and what libdist is to verify between the nodes when its first communicator is made.
std::vector<std::pair<std::string, std::string>> settings_for_tasks(const FabricPlan& plan) {
  if (plan.policy == launch::RdmaPolicy::off) return {};
  auto settings = fabric::fabric_settings(plan.node_part);
  if (plan.nodes > 1) {
    settings.emplace_back(launch::variable::rdma, to_string(plan.policy));
    if (!plan.sku.empty()) settings.emplace_back(launch::variable::rdma_sku, plan.sku);
  }
  return settings;
}

/// Whether what a node finds concerns no other node of the step.
bool is_alone(const FabricPlan& plan) {
  return plan.nodes == 1 || (plan.policy == launch::RdmaPolicy::off && plan.health != launch::RdmaPolicy::require);
}

/// "rdma=require failed on node2: ib.state: ..."
std::string refusal(const FabricPlan& plan, const Check& failure) {
  return concat({key_of(plan, failure), " failed on ", plan.host, ": ", sentence(failure)});
}

/// The vote of a node whose first failure is `failure`.
void explain(step::FabricVote& vote, const FabricPlan& plan, const Check& failure, bool refused, bool ended) {
  vote.link_failed = failure.id == "ib.pair";
  vote.killed = ended && refused;
  if (vote.killed) {
    vote.text = refusal(plan, failure);
  } else {
    vote.text = vote.link_failed ? sentence(failure) : concat({plan.host, ": ", sentence(failure)});
  }
}

/// What all nodes agree on. A node that gets no answer from srun decides for itself, and tells the user.
step::MessageType agree(const FabricPlan& plan, const std::optional<step::SrunLink>& srun,
                        const std::vector<Check>& failures, bool ended) {
  const bool good = failures.empty();
  const bool refused = !good && refuses(plan, failures.front());
  const step::MessageType alone = refused ? step::MessageType::refuse_step
                                  : good  ? step::MessageType::use_fabric
                                          : step::MessageType::use_sockets;
  if (is_alone(plan) && (good || refused || !srun)) return alone;
  const launch::RdmaPolicy own_policy =
      plan.policy == launch::RdmaPolicy::off ? launch::RdmaPolicy::prefer : plan.policy;
  step::FabricVote own{
      plan.node, plan.nodes, refused ? launch::RdmaPolicy::require : own_policy, good, plan.node_part.traits,
      plan.host};
  if (!good) explain(own, plan, failures.front(), refused, ended);
  const step::MessageType answer =
      srun ? vote(plan, *srun, own.to_datagram(srun->channel.token)) : step::MessageType::not_yet;
  if (answer != step::MessageType::not_yet) return answer;
  if (ended && refused) tell_step(refusal(plan, failures.front()));  // srun was to tell it
  const bool must = plan.policy == launch::RdmaPolicy::require || plan.health == launch::RdmaPolicy::require;
  tell_step(
      concat({plan.policy == launch::RdmaPolicy::off ? "health=" : "rdma=",
              to_string(plan.policy == launch::RdmaPolicy::off ? plan.health : plan.policy), ": srun did not tell ",
              plan.host, " about the other nodes: ", must ? "its tasks do not start" : "it uses sockets"}));
  return must ? step::MessageType::refuse_step : step::MessageType::use_sockets;
}

/// What the user reads from this node. A failure between nodes is told by srun, once, and so is a check that was
/// killed.
void tell_findings(const FabricPlan& plan, const Findings& findings, bool has_srun) {
  for (const Check& each : findings.checks) {
    const std::string key = key_of(plan, each);
    const bool by_srun = has_srun && (each.id == "ib.pair" || (findings.ended && !is_alone(plan)));
    if (each.verdict == Verdict::fail && refuses(plan, each)) {
      if (!by_srun) tell_step(refusal(plan, each));
    } else if (each.verdict == Verdict::warn && is_of_health(each) && plan.health != launch::RdmaPolicy::off) {
      tell_step(concat({key, " on ", plan.host, ": ", sentence(each)}));
    } else if (each.verdict == Verdict::unknown && plan.node == 0 && plan.policy == launch::RdmaPolicy::require &&
               !is_of_health(each)) {
      tell_step(concat({key, " on ", plan.host, ": unknown: ", sentence(each)}));  // nodes of one step are alike
    }
  }
}

/// The leader's work. Returns the decision of the whole step.
FabricDecision lead(const FabricPlan& plan, const std::optional<step::SrunLink>& srun, const Handle& handle) {
  const Findings findings = verify(plan, srun, handle);
  auto failures = failures_among(findings.checks);
  // What ends the step comes before what moves it to sockets.
  std::stable_partition(failures.begin(), failures.end(), [&plan](const Check& each) { return refuses(plan, each); });
  tell_findings(plan, findings, srun.has_value());
  if (!failures.empty() && !refuses(plan, failures.front()) && !srun) {
    tell_step(concat({"rdma=prefer: ", plan.host, " uses sockets instead of RDMA: ", sentence(failures.front())}));
  }
  switch (agree(plan, srun, failures, findings.ended)) {
    case step::MessageType::use_fabric:
      return FabricDecision::use_fabric;
    case step::MessageType::use_sockets:
      return plan.policy == launch::RdmaPolicy::require ? FabricDecision::refused : FabricDecision::use_sockets;
    default:
      return FabricDecision::refused;
  }
}

/// The leader's decision; none_yet when it has ended without one, or when the time is over.
FabricDecision wait_for_leader(const FabricPlan& plan) {
  constexpr timespec pause = {0, 2'000'000};
  const auto deadline = Clock::now() + waiting_timeout;
  while (plan.decision.load() == FabricDecision::none_yet && Clock::now() < deadline &&
         !process_has_ended(plan.leader.load())) {
    static_cast<void>(::nanosleep(&pause, nullptr));
  }
  return plan.decision.load();
}

/// This node and those that it meets in the writes between nodes; empty where there are none.
std::string names_of_peers(launch::RdmaPairs pairs, const NodeAmong& own) {
  const auto peers = fabric::peers_of(fabric::pair_rounds(pairs, own.node, own.nodes()));
  if (peers.empty()) return {};
  std::string out = concat({std::to_string(own.node), "=", own.name_of(own.node)});
  for (const std::uint32_t peer : peers) out += concat({",", std::to_string(peer), "=", own.name_of(peer)});
  return out;
}

}  // namespace

FabricPlan plan_fabric(const launch::SitePolicy& site, const FabricWishes& wishes, const NodeAmong& own,
                       const Handle& handle) {
  FabricPlan plan;
  plan.policy = wishes.policy;
  plan.health = wishes.health;
  plan.pairs = wishes.pairs;
  plan.unknown_fails = site.unknown_fails;
  const bool has_srun = handle.variable(step::launch_record_variable) != step::no_srun_record;
  plan.silence = has_srun ? voting_silence : voting_timeout;
  plan.sku = wishes.sku;
  plan.node = own.node;
  plan.nodes = own.nodes();
  plan.host = own.name_of(own.node);
  plan.peers = names_of_peers(wishes.pairs, own);
  plan.helper = find_helper(site.rdma_helper);
  if (plan.health != launch::RdmaPolicy::off && !site.site_checks.empty()) plan.site_file = site.config_file;
  if (plan.policy != launch::RdmaPolicy::off) {
    plan.node_part =
        fabric::verify_node_apart(plan.policy, plan.sku, site.unknown_fails, handle.environment(), node_timeout);
  }
  plan.leader = SharedAtomic<pid_t>::make();
  plan.decision = SharedAtomic<FabricDecision>::make();
  return plan;
}

Result<std::vector<std::pair<std::string, std::string>>> verified_settings(const FabricPlan& plan,
                                                                           const std::optional<step::SrunLink>& srun,
                                                                           const Handle& handle) {
  FabricDecision value = FabricDecision::none_yet;
  if (plan.leader.replace(0, ::getpid())) {
    value = lead(plan, srun, handle);
    plan.decision.store(value);
  } else {
    value = wait_for_leader(plan);
  }
  if (value == FabricDecision::use_fabric) return settings_for_tasks(plan);
  if (value == FabricDecision::use_sockets) return fabric::socket_settings();
  if (value == FabricDecision::refused) return Error{Errc::unavailable, ""};
  return Error{Errc::unavailable, process_has_ended(plan.leader.load())
                                      ? "the task that verified this node's fabric has ended"
                                      : "the verification of this node's fabric did not end in time"};
}

}  // namespace amldist::spank
