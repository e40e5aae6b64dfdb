#include "fabric/node_part.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>

#include "core/text.hpp"
#include "fabric/checks.hpp"
#include "fabric/report_json.hpp"
#include "os/file_descriptor.hpp"

namespace amldist::fabric {
namespace {

using std::chrono::steady_clock;
using text::concat;

constexpr std::size_t longest_answer = 64 * 1024;

/// The lowest 15 bits of the P_Key that NCCL uses, and the GID index if NCCL must choose one. Nodes that differ cannot
/// communicate. Taken from the first judged port.
std::string traits_of(const NodeFacts& node, const Question& question, const FabricSettings& settings) {
  std::string key = "-";
  for (const JudgedPort& each : judged_ports(node, question)) {
    if (each.port->layer() != LinkLayer::infiniband || each.port->pkeys.empty()) continue;
    constexpr std::string_view digits = "0123456789abcdef";
    const std::uint32_t bits = each.port->pkeys.front().value & 0x7fffU;
    key = "0x";
    for (int shift = 12; shift >= 0; shift -= 4) key += digits[bits >> shift & 15U];
    break;
  }
  return concat({key, "/", settings.gid_index ? std::to_string(*settings.gid_index) : "-"});
}

/// In the child: writes the answer as lines, settings first.
std::string answer(RdmaPolicy policy, const std::string& sku, const EnvironmentReader& environment) {
  Question question;
  question.policy = policy;
  question.policy_source = "the step";
  question.environment = environment;
  std::vector<std::string> complaints;
  if (!sku.empty()) {
    const auto table = load_sku_table("", complaints);
    auto found = table ? table->find(sku) : Result<Sku>(table.error());
    if (!found)
      return concat({"\t\t\t0\n", to_lines({{"ib.policy", Verdict::fail, found.error().message,
                                             "correct rdma_sku= in plugstack.conf"}})});
    question.sku = std::move(*found);
  }
  const NodeFacts node = read_node(Roots());
  const Report report = verify_node(node, question, Evidence());
  const FabricSettings settings = settings_of(node, question);
  return concat({settings.ports.empty() ? "" : exact_selection(settings.ports), "\t",
                 settings.gid_index ? std::to_string(*settings.gid_index) : "", "\t",
                 traits_of(node, question, settings), "\t", report.verified ? "1" : "0", "\n",
                 to_lines(report.checks)});
}

void write_all(int pipe, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(pipe, text.data(), text.size());
    if (written <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

/// Reads until the other end closes, the deadline, or the size limit. False: the other end did not close in time.
bool read_all(int pipe, steady_clock::time_point deadline, std::string& out) {
  std::array<char, 4096> buffer{};
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - steady_clock::now()).count();
    pollfd wanted = {pipe, POLLIN, 0};
    const int ready = left > 0 ? ::poll(&wanted, 1, static_cast<int>(left)) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    const ssize_t got = ::read(pipe, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return got == 0;
    out.append(buffer.data(), static_cast<std::size_t>(got));
    if (out.size() > longest_answer) return false;
  }
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

/// Reaps a child that has closed its pipe or was killed. A child in an uninterruptible call is left to slurmstepd.
void end_child(pid_t child, bool answered) {
  if (!answered) static_cast<void>(::kill(child, SIGKILL));
  constexpr timespec pause = {0, 1'000'000};
  for (int i = 0; i < 100; ++i) {
    const pid_t ended = ::waitpid(child, nullptr, WNOHANG);
    if (ended == child || (ended < 0 && errno != EINTR)) return;
    static_cast<void>(::nanosleep(&pause, nullptr));
  }
}

}  // namespace

bool NodePart::is_good() const noexcept {
  return verified && std::ranges::none_of(checks, [](const Check& each) { return each.verdict == Verdict::fail; });
}

NodePart verify_node_apart(RdmaPolicy policy, const std::string& sku, const EnvironmentReader& environment,
                           std::chrono::milliseconds timeout) {
  const EnvironmentReader copy = snapshot(environment);
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return failed(concat({"pipe: ", std::strerror(errno)}));
  const FileDescriptor reading(ends[0]);
  FileDescriptor writing(ends[1]);
  const pid_t child = ::fork();
  if (child < 0) return failed(concat({"fork: ", std::strerror(errno)}));
  if (child == 0) {
    try {
      write_all(writing.get(), answer(policy, sku, copy));
    } catch (...) {  // out of memory: the parent sees a truncated answer and reports a failure
    }
    ::_exit(0);
  }
  writing = FileDescriptor();
  std::string text;
  const bool answered = read_all(reading.get(), steady_clock::now() + timeout, text);
  end_child(child, answered);
  if (answered) return parse_answer(text);
  return failed(concat({"reading sysfs took more than ", std::to_string(timeout.count() / 1000), " s"}));
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
