#include "fabric/verbs/verbs_probe.hpp"

#include <sys/mman.h>
#include <sys/prctl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <new>

#include "base/os/child_process.hpp"
#include "base/text/text.hpp"
#include "fabric/facts/settings.hpp"
#include "fabric/verbs/rdma_link.hpp"

namespace amldist::fabric {
namespace {

constexpr std::uint32_t loopback_bytes = 64 * 1024;
constexpr std::chrono::seconds write_timeout{5};
constexpr std::size_t longest_text = 96;
constexpr std::size_t most_probed = 64;

using ShortText = std::array<char, longest_text>;

void put(ShortText& target, std::string_view text) {
  const std::size_t length = std::min(text.size(), target.size() - 1);
  std::copy_n(text.begin(), length, target.begin());
  target.at(length) = '\0';
}

std::string get(const ShortText& source) { return {source.data(), ::strnlen(source.data(), source.size())}; }

/// The probing process's results in shared memory. Each field is written once, so that a killed process leaves what it
/// had found so far.
struct Findings {
  ShortText stage{};
  ShortText load_problem{};
  ShortText library{};
  std::uint32_t listed = 0;
  std::array<ShortText, most_probed> names{};
  std::uint32_t probed = 0;
  struct Device {
    ShortText name{};
    ShortText stage{};
    int error = 0;
    std::uint32_t wc_status = 0;
    bool dmabuf = false;
    bool registered = false;
    bool wrote = false;
  };
  std::array<Device, most_probed> devices{};
  bool done = false;
};

/// Memory shared by parent and child.
class SharedFindings {
 public:
  SharedFindings() {
    void* const page = ::mmap(nullptr, sizeof(Findings), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page != MAP_FAILED) findings_ = new (page) Findings();
  }
  SharedFindings(const SharedFindings&) = delete;
  SharedFindings& operator=(const SharedFindings&) = delete;
  ~SharedFindings() {
    if (findings_ != nullptr) ::munmap(findings_, sizeof(Findings));
  }
  [[nodiscard]] Findings* get() const noexcept { return findings_; }

 private:
  Findings* findings_ = nullptr;
};

/// The first judged port of each device, as NCCL would address it.
std::vector<LinkTarget> targets_of(const NodeFacts& node, const CheckRequest& request) {
  std::vector<LinkTarget> targets;
  const auto pkey = nccl_parameter(request.environment, "NCCL_IB_PKEY").value_or(0);
  for (const JudgedPort& each : judged_ports(node, request)) {
    if (!targets.empty() && targets.back().device == each.device->name) continue;
    targets.push_back({each.device->name, static_cast<std::uint8_t>(each.port->number),
                       working_gid_index(request.environment, *each.port), static_cast<std::uint16_t>(pkey),
                       each.port->layer() == LinkLayer::ethernet});
  }
  if (targets.size() > most_probed) targets.resize(most_probed);
  return targets;
}

/// A pattern that depends on the position and the run.
void fill(std::span<std::byte> memory, std::uint32_t seed) {
  for (std::size_t i = 0; i < memory.size(); ++i) {
    memory[i] = static_cast<std::byte>((i * 31 + (i >> 8) + seed) & 0xff);
  }
}

VerbsOutcome write_to_self(const RdmaDevice& device) {
  RdmaLink sender;
  RdmaLink receiver;
  if (auto failure = RdmaLink::make(device, sender)) return failure;
  if (auto failure = RdmaLink::make(device, receiver)) return failure;
  if (auto failure = receiver.connect(sender.address())) return failure;
  if (auto failure = sender.connect(receiver.address())) return failure;
  const auto memory = device.memory();
  const auto source = memory.first(loopback_bytes);
  const auto target = memory.subspan(memory.size() / 2, loopback_bytes);
  fill(source, static_cast<std::uint32_t>(::getpid()));
  std::ranges::fill(target, std::byte{0});
  const LinkAddress address = receiver.address();
  const RemotePlace to = {address.buffer + memory.size() / 2, address.remote_key};
  if (auto failure = sender.write(0, to, loopback_bytes, Clock::now() + write_timeout)) return failure;
  if (!std::ranges::equal(source, target)) return VerbsFailure{"comparing the received bytes", EIO, 0};
  return {};
}

void probe_device(const VerbsApi& api, const LinkTarget& target, Findings& findings) {
  Findings::Device& out = findings.devices.at(findings.probed);
  put(out.name, target.device);
  put(findings.stage, text::concat({"opening ", target.device}));
  RdmaDevice device;
  VerbsOutcome failure = RdmaDevice::open(api, target, registered_bytes, device);
  out.registered = device.registered();
  if (!failure) {
    out.dmabuf = device.supports_dmabuf();
    put(findings.stage, text::concat({"writing to itself on ", target.device}));
    failure = write_to_self(device);
  }
  if (failure) {
    put(out.stage, failure->stage);
    out.error = failure->error;
    out.wc_status = failure->wc_status;
  }
  out.wrote = !failure;
  ++findings.probed;
}

/// In the child: everything that may hang.
void probe(const std::vector<LinkTarget>& targets, const std::string& library, Findings& findings) {
  put(findings.stage, "loading libibverbs");
  const auto api = load_verbs(library);
  if (!api) {
    put(findings.load_problem, api.error().message);
    findings.done = true;
    return;
  }
  put(findings.library, library_file(*api));
  put(findings.stage, "ibv_get_device_list");
  int count = 0;
  ibv_device** const list = api->get_device_list(&count);
  for (int i = 0; list != nullptr && i < count && findings.listed < most_probed; ++i) {
    put(findings.names.at(findings.listed++), api->get_device_name(list[i]));
  }
  if (list != nullptr) api->free_device_list(list);
  for (const LinkTarget& target : targets) probe_device(*api, target, findings);
  findings.done = true;
}

VerbsFacts facts_of(const Findings& findings) {
  VerbsFacts facts;
  facts.tried = true;
  facts.library = get(findings.library);
  for (std::uint32_t i = 0; i < findings.listed; ++i) facts.listed.push_back(get(findings.names.at(i)));
  for (std::uint32_t i = 0; i < findings.probed; ++i) {
    const Findings::Device& each = findings.devices.at(i);
    facts.devices.push_back(
        {get(each.name), each.error, get(each.stage), each.dmabuf, each.registered, each.wrote, each.wc_status});
  }
  return facts;
}

std::string words_of_end(int status) {
  const int signal = signal_of(status);
  return signal != 0 ? text::concat({"by signal ", std::to_string(signal)})
                     : text::concat({"with status ", std::to_string(status)});
}

}  // namespace

VerbsFacts probe_verbs(const NodeFacts& node, const CheckRequest& request, std::chrono::milliseconds timeout) {
  const auto targets = targets_of(node, request);
  const std::string library = request.environment(variable::verbs_library).value_or("");
  VerbsFacts facts;
  const SharedFindings shared;
  if (shared.get() == nullptr) {
    facts.reason = "out of memory";
    return facts;
  }
  auto child = ChildProcess::fork([&] {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // if the parent is killed, the probe must end too
    probe(targets, library, *shared.get());
  });
  if (!child) {
    facts.reason = child.error().message;
    return facts;
  }
  const auto ended = child->wait_until(Clock::now() + timeout);
  if (!ended) {  // a child in an uninterruptible call does not end now
    child->kill(SIGKILL);
    static_cast<void>(child->wait_until(Clock::now() + std::chrono::milliseconds(1)));
  }
  const Findings& findings = *shared.get();
  if (const std::string problem = get(findings.load_problem); !problem.empty()) {
    facts.verbs_missing = true;
    facts.reason = problem;
    return facts;
  }
  facts = facts_of(findings);
  if (findings.done) return facts;
  facts.timed_out = !ended;
  if (ended) facts.ended = words_of_end(*ended);
  facts.last_stage = get(findings.stage);
  return facts;
}

}  // namespace amldist::fabric
