#include "fabric/node_part.hpp"

#include <algorithm>

#include "base/os/child_process.hpp"
#include "base/os/whole_file.hpp"
#include "base/text/hex.hpp"
#include "base/text/text.hpp"
#include "fabric/checks/checks.hpp"
#include "fabric/report/report_json.hpp"

namespace amldist::fabric {
namespace {

using text::concat;

constexpr std::size_t longest_answer = 64 * 1024;

/// What must be equal on all nodes: the partitions of all judged ports. GID indices may differ: NCCL chooses one for
/// each device.
std::string traits_of(const NodeFacts& node, const CheckRequest& request) {
  constexpr std::size_t longest = 64;  // of a vote
  const std::string partitions = partitions_of(node, request);
  if (partitions.empty()) return "-";
  if (partitions.size() <= longest) return partitions;
  return concat({partitions.substr(0, 32), "...", to_hex(std::hash<std::string>{}(partitions), 8)});
}

/// In the child: writes the answer as lines, settings first.
std::string answer(launch::RdmaPolicy policy, const std::string& sku, bool unknown_fails,
                   const EnvironmentReader& environment) {
  CheckRequest request;
  request.unknown_fails = unknown_fails;
  request.policy = policy;
  request.policy_source = "the step";
  request.environment = environment;
  auto found = find_sku(sku);
  if (!found)
    return concat({"\t\t\t0\n", to_lines({{"ib.policy", Verdict::fail, found.error().message,
                                           "correct rdma_sku= in plugstack.conf"}})});
  request.sku = std::move(*found);
  const NodeFacts node = read_node(Roots());
  Report report = verify_node(node, request, Evidence());
  for (Check& check : report.checks) {
    if (report.unknown_fails && check.verdict == Verdict::unknown) check.verdict = Verdict::fail;
  }
  const FabricSettings settings = settings_of(node, request);
  return concat({settings.ports.empty() ? "" : exact_selection(settings.ports), "\t",
                 settings.gid_index ? std::to_string(*settings.gid_index) : "", "\t", traits_of(node, request), "\t",
                 report.verified ? "1" : "0", "\n", to_lines(report.checks)});
}

NodePart failed(std::string evidence) {
  NodePart part;
  part.checks.push_back(
      {"ib.sysfs", Verdict::fail, std::move(evidence), "see the kernel log: a driver does not respond"});
  return part;
}

NodePart parse_answer(std::string_view text) {
  const auto end = text.find('\n');
  const auto fields = text::split(text.substr(0, end), '\t');
  if (end == std::string_view::npos || fields.size() != 4) return failed("the verification of this node ended early");
  auto checks = checks_from_lines(text.substr(end + 1));
  if (!checks) return failed(checks.error().message);
  return {std::move(*checks), fields[3] == "1", std::string(fields[0]), std::string(fields[1]), std::string(fields[2])};
}

}  // namespace

bool NodePart::is_good() const noexcept {
  return verified && std::ranges::none_of(checks, [](const Check& each) { return each.verdict == Verdict::fail; });
}

NodePart verify_node_apart(launch::RdmaPolicy policy, const std::string& sku, bool unknown_fails,
                           const EnvironmentReader& environment, std::chrono::milliseconds timeout) {
  const EnvironmentReader copy = snapshot(environment);
  const auto deadline = Clock::now() + timeout;
  auto pipe = Pipe::make();
  if (!pipe) return failed(pipe.error().message);
  auto child =
      ChildProcess::fork([&] { amldist::write_all(pipe->writing.get(), answer(policy, sku, unknown_fails, copy)); });
  if (!child) return failed(child.error().message);
  pipe->writing = FileDescriptor();
  const auto text = read_until_end(pipe->reading.get(), deadline, longest_answer);
  if (!text) return failed(concat({"reading sysfs took more than ", std::to_string(timeout.count() / 1000), " s"}));
  static_cast<void>(child->wait_until(deadline));
  return parse_answer(*text);
}

std::vector<std::pair<std::string, std::string>> fabric_settings(const NodePart& node) {
  std::vector<std::pair<std::string, std::string>> out;
  if (!node.hca.empty()) out.emplace_back("NCCL_IB_HCA", node.hca);
  if (!node.gid_index.empty()) out.emplace_back("NCCL_IB_GID_INDEX", node.gid_index);
  return out;
}

std::vector<std::pair<std::string, std::string>> socket_settings() {
  // UCX must also be told the transports for GPU memory, and warns about unavailable ones.
  std::string transports = "tcp,sm,self";
  if (is_folder("/sys/module/nvidia")) transports += ",cuda";
  if (is_folder("/sys/module/amdgpu")) transports += ",rocm";
  return {{"NCCL_IB_DISABLE", "1"}, {"UCX_TLS", transports}};
}

}  // namespace amldist::fabric
