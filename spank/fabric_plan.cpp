#include "spank/fabric_plan.hpp"

#include <dlfcn.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>

#include "core/settings.hpp"
#include "core/text.hpp"
#include "fabric/report_json.hpp"
#include "os/child_process.hpp"
#include "os/clock.hpp"
#include "spank/output.hpp"
#include "step_messages/datagram.hpp"
#include "step_messages/fabric_vote.hpp"

namespace amldist::spank {
namespace {

using fabric::Check;
using fabric::Verdict;
using std::chrono::seconds;
using text::concat;

constexpr std::size_t longest_output = 64 * 1024;  ///< of the helper
constexpr seconds node_timeout{5};
constexpr seconds verbs_timeout{15};    ///< told to the helper, which kills what hangs below it
constexpr seconds helper_timeout{20};   ///< for the helper itself
constexpr seconds voting_timeout{40};   ///< nodes verify at the same time, but not at the same speed
constexpr seconds waiting_timeout{65};  ///< of a node's other tasks: all of the above

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

/// What the installed tool finds as the user: device nodes, limits, verbs.
std::vector<Check> task_part(const FabricPlan& plan, const Handle& handle) {
  const std::string remedy = "install aml-dist's tools on the nodes, or name them with rdma_helper= in plugstack.conf";
  if (plan.helper.empty()) {
    return {{"ib.helper", Verdict::fail, "bin/aml-dist is not installed beside the plugin", remedy}};
  }
  std::vector<std::string> arguments = {plan.helper,
                                        "check",
                                        "--task-part",
                                        "--policy",
                                        concat({fabric::to_string(plan.policy)}),
                                        "--timeout",
                                        std::to_string(verbs_timeout.count())};
  if (!plan.sku.empty()) arguments.insert(arguments.end(), {"--sku", plan.sku});
  char** environment = nullptr;
  if (::spank_get_item(handle.raw(), S_JOB_ENV, &environment) != ESPANK_SUCCESS) environment = nullptr;
  ChildProgram helper{.words = std::move(arguments), .environment = std::vector<std::string>()};
  for (char** each = environment; each != nullptr && *each != nullptr; ++each) helper.environment->emplace_back(*each);
  const auto output = output_of(std::move(helper), Clock::now() + helper_timeout, longest_output);
  if (!output) return {{"ib.helper", Verdict::fail, output.error().message, remedy}};
  auto checks = fabric::checks_from_lines(*output);
  if (!checks || checks->empty()) {
    return {{"ib.helper", Verdict::fail, concat({plan.helper, " printed no result"}), remedy}};
  }
  return std::move(*checks);
}

std::vector<Check> failures_among(const std::vector<Check>& checks) {
  std::vector<Check> out;
  std::ranges::copy_if(checks, std::back_inserter(out),
                       [](const Check& each) { return each.verdict == Verdict::fail; });
  return out;
}

/// Everything that is wrong with this node. To have nothing to verify is wrong too, since both policies promise RDMA.
std::vector<Check> verify(const FabricPlan& plan, const Handle& handle) {
  auto failures = failures_among(plan.node_part.checks);
  if (failures.empty() && !plan.node_part.verified) {
    failures.push_back(
        {"ib.sysfs", Verdict::fail, "no InfiniBand or RoCE port", "choose nodes with RDMA, or rdma=off"});
  }
  if (failures.empty()) failures = failures_among(task_part(plan, handle));
  return failures;
}

std::string sentence(const Check& check) {
  return concat({check.id, ": ", check.evidence, check.remedy.empty() ? "" : ": ", check.remedy});
}

/// Sends the node's vote until srun answers with what all agreed on; the more nodes, the less often.
MessageType vote(const FabricPlan& plan, const SrunLink& srun, const std::string& datagram) {
  const int pause_ms = 50 + static_cast<int>(plan.nodes / 5);
  const FileDescriptor socket = open_socket();
  std::array<char, longest_datagram> buffer{};
  const auto deadline = Clock::now() + voting_timeout;
  while (socket && Clock::now() < deadline) {
    send_to(srun, socket.get(), datagram);
    pollfd answer = {socket.get(), POLLIN, 0};
    if (::poll(&answer, 1, pause_ms) <= 0) continue;
    const ssize_t got = ::recv(socket.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    const auto type = got > 0 ? parse_message_type({buffer.data(), static_cast<std::size_t>(got)}, srun.channel.token)
                              : std::optional<MessageType>();
    if (type == MessageType::use_fabric || type == MessageType::use_sockets) return *type;
    const timespec pause = {pause_ms / 1000, pause_ms % 1000 * 1'000'000L};
    static_cast<void>(::nanosleep(&pause, nullptr));  // "not yet" comes at once
  }
  return MessageType::not_yet;
}

/// The verified ports, and what libdist is to verify between the nodes when its first communicator is made.
std::vector<std::pair<std::string, std::string>> settings_for_tasks(const FabricPlan& plan) {
  auto settings = fabric::fabric_settings(plan.node_part);
  if (plan.nodes > 1) {
    settings.emplace_back(variable::rdma, fabric::to_string(plan.policy));
    if (!plan.sku.empty()) settings.emplace_back(variable::rdma_sku, plan.sku);
  }
  return settings;
}

/// What all nodes agree on. A node that gets no answer from srun decides for itself, and tells the user.
MessageType agree(const FabricPlan& plan, const std::optional<SrunLink>& srun, const std::vector<Check>& failures) {
  const bool good = failures.empty();
  if (plan.nodes == 1 && (good || !srun)) return good ? MessageType::use_fabric : MessageType::use_sockets;
  FabricVote own{plan.node, plan.nodes, plan.policy, good, plan.node_part.traits, plan.host};
  if (!good) own.text = concat({plan.host, ": ", sentence(failures.front())});
  const MessageType answer = srun ? vote(plan, *srun, own.to_datagram(srun->channel.token)) : MessageType::not_yet;
  if (answer != MessageType::not_yet) return answer;
  tell_step(concat({"rdma=", fabric::to_string(plan.policy), ": srun did not tell ", plan.host,
                    " about the other nodes' fabric: ",
                    plan.policy == RdmaPolicy::require ? "its tasks do not start" : "it uses sockets"}));
  return MessageType::use_sockets;
}

/// The leader's work. Returns the decision of the whole step.
FabricDecision lead(const FabricPlan& plan, const std::optional<SrunLink>& srun, const Handle& handle) {
  const auto failures = verify(plan, handle);
  const bool required = plan.policy == RdmaPolicy::require;
  // Nodes of one step are alike: the first one says what it could not find out.
  for (const Check& each : plan.node_part.checks) {
    const bool said = required && plan.node == 0 && each.verdict == Verdict::unknown;
    if (said) tell_step(concat({"rdma=require on ", plan.host, ": unknown: ", sentence(each)}));
  }
  if (required) {
    for (const Check& each : failures) tell_step(concat({"rdma=require failed on ", plan.host, ": ", sentence(each)}));
  } else if (!failures.empty() && !srun) {
    tell_step(concat({"rdma=prefer: ", plan.host, " uses sockets instead of RDMA: ", sentence(failures.front())}));
  }
  const MessageType answer = agree(plan, srun, failures);
  if (answer == MessageType::use_fabric) return FabricDecision::use_fabric;
  return required ? FabricDecision::refused : FabricDecision::use_sockets;
}

/// The leader's decision; none_yet when the time is over.
FabricDecision wait_for_leader(const FabricPlan& plan) {
  constexpr timespec pause = {0, 2'000'000};
  const auto deadline = Clock::now() + waiting_timeout;
  FabricDecision decision = plan.decision.load();
  while (decision == FabricDecision::none_yet && Clock::now() < deadline) {
    static_cast<void>(::nanosleep(&pause, nullptr));
    decision = plan.decision.load();
  }
  return decision;
}

}  // namespace

FabricPlan plan_fabric(const SitePolicy& site, RdmaPolicy policy, const std::string& sku, const Handle& handle) {
  FabricPlan plan;
  plan.policy = policy;
  plan.sku = sku;
  plan.helper = find_helper(site.rdma_helper);
  plan.node_part = fabric::verify_node_apart(policy, sku, site.unknown_fails, handle.environment(), node_timeout);
  plan.has_leader = SharedAtomic<bool>::make();
  plan.decision = SharedAtomic<FabricDecision>::make();
  return plan;
}

Result<std::vector<std::pair<std::string, std::string>>> verified_settings(const FabricPlan& plan,
                                                                           const std::optional<SrunLink>& srun,
                                                                           const Handle& handle) {
  FabricDecision value = FabricDecision::none_yet;
  if (!plan.has_leader.exchange(true)) {
    value = lead(plan, srun, handle);
    plan.decision.store(value);
  } else {
    value = wait_for_leader(plan);
  }
  if (value == FabricDecision::use_fabric) return settings_for_tasks(plan);
  if (value == FabricDecision::use_sockets) return fabric::socket_settings();
  if (value == FabricDecision::refused) return Error{Errc::unavailable, ""};
  return Error{Errc::unavailable, "the verification of this node's fabric did not end in time"};
}

}  // namespace amldist::spank
