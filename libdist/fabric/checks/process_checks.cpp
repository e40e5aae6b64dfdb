#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>

#include "base/text/text.hpp"
#include "fabric/checks/checks.hpp"

namespace amldist::fabric {
namespace {

using text::concat;

constexpr std::string_view memlock_remedy =
    "PropagateResourceLimitsExcept=MEMLOCK in slurm.conf and LimitMEMLOCK=infinity for slurmd";

/// A finite limit below this counts as too small unless a registration proves otherwise: NCCL registers its buffers for
/// every peer, and systemd's default of 8 MiB is known to fail.
constexpr std::uint64_t least_memlock = std::uint64_t{1} << 30;

std::string limit_text(const MemlockFacts& memlock) {
  if (memlock.unlimited) return "unlimited";
  return concat({std::to_string(memlock.soft / 1024), " KiB"});
}

bool any_port(const NodeFacts& node, const CheckRequest& request) { return !judged_ports(node, request).empty(); }

/// Names of the judged devices, without duplicates.
std::vector<std::string> judged_names(const NodeFacts& node, const CheckRequest& request) {
  std::vector<std::string> names;
  for (const JudgedPort& each : judged_ports(node, request)) {
    if (names.empty() || names.back() != each.device->name) names.push_back(each.device->name);
  }
  return names;
}

std::vector<VerbsDeviceFacts> judged_verbs(const NodeFacts& node, const CheckRequest& request,
                                           const VerbsFacts& verbs) {
  const auto names = judged_names(node, request);
  std::vector<VerbsDeviceFacts> out;
  for (const VerbsDeviceFacts& each : verbs.devices) {
    if (std::ranges::find(names, each.device) != names.end()) out.push_back(each);
  }
  return out;
}

std::string_view remedy_for_open(int error) {
  if (error == ENOENT) return "the container or job has no /dev/infiniband: mount it, or load ib_uverbs";
  if (error == EACCES || error == EPERM)
    return "the container, the device cgroup or the file's mode denies access: allow it (mode 0666)";
  return "see the kernel log";
}

std::string stage_text(const VerbsDeviceFacts& device) {
  if (device.wc_status != 0) {
    return concat({device.device, " ", device.stage, ": completion status ", std::to_string(device.wc_status)});
  }
  return concat({device.device, " ", device.stage, ": ", device.error == 0 ? "failed" : std::strerror(device.error)});
}

/// The ports that NCCL would use with this environment.
std::vector<JudgedPort> ports_nccl_uses(const NodeFacts& node, const EnvironmentReader& environment) {
  std::vector<JudgedPort> used;
  for (const DeviceFacts& device : node.devices) {
    if (role_of(node, device) == DeviceRole::no_verbs) continue;  // verbs do not list it
    for (const PortFacts& port : device.ports) {
      if (nccl_uses(environment, device, port)) used.push_back({&device, &port});
    }
  }
  return used;
}

std::vector<PortName> names_of(const std::vector<JudgedPort>& ports) {
  std::vector<PortName> names;
  names.reserve(ports.size());
  for (const JudgedPort& each : ports) names.push_back(each.name());
  return names;
}

/// What older or newer releases of NCCL would make of the text; nullopt if all agree.
std::optional<Finding> judge_grammar(const NodeFacts& node, std::string_view requested, const std::string& asked) {
  const auto current = NcclSelection::parse(requested);
  const auto older = NcclSelection::parse(requested, NcclSelection::Grammar::before_2_30);
  for (const DeviceFacts& device : node.devices) {
    for (const PortFacts& port : device.ports) {
      if (current.takes(device.name, port.number) == older.takes(device.name, port.number)) continue;
      return Finding{Verdict::warn,
                     concat({asked, " selects other ports with other releases of NCCL: ",
                             PortName{device.name, port.number}.to_string()}),
                     "write NCCL_IB_HCA==DEVICE:PORT,..."};
    }
  }
  return std::nullopt;
}

/// An entry with a blank, as after "mlx5_0, mlx5_1": NCCL compares it with the blank, so it names no device.
std::optional<Finding> judge_blanks(const NcclSelection& selection, const std::string& asked, Verdict severity) {
  for (const NcclSelection::Entry& entry : selection.entries()) {
    const std::string_view plain = text::trim(entry.name);
    if (plain == entry.name) continue;
    return Finding{severity, concat({asked, ": the blank beside '", printable(plain, 40), "' is part of the name"}),
                   "write NCCL_IB_HCA without blanks"};
  }
  return std::nullopt;
}

/// What the user's setting is worth where the site or the user requires the fabric: it would not be used.
Verdict severity_of_setting(const CheckRequest& request) {
  return request.policy == launch::RdmaPolicy::require ? Verdict::fail : Verdict::warn;
}

/// Checks which ports the user's NCCL_IB_HCA selects on this node.
void judge_nccl_selection(const NodeFacts& node, const CheckRequest& request, std::vector<Finding>& findings) {
  const auto requested = request.environment("NCCL_IB_HCA");
  if (!requested || requested->empty()) return;
  const NcclSelection selection = NcclSelection::parse(*requested);
  const auto used = ports_nccl_uses(node, request.environment);
  std::vector<JudgedPort> meant;    // named in full, or at least part of the fabric
  std::vector<JudgedPort> strange;  // Accelerated Networking, iWARP
  std::size_t by_prefix = 0;
  std::set<LinkLayer> layers;
  const JudgedPort* first_by_prefix = nullptr;
  for (const JudgedPort& each : used) {
    if (role_of(node, *each.device) != DeviceRole::fabric) {
      strange.push_back(each);
      continue;
    }
    layers.insert(each.port->layer());
    const bool prefix = selection.takes_by_prefix_only(each.device->name, each.port->number);
    if (prefix && first_by_prefix == nullptr) first_by_prefix = &each;
    by_prefix += prefix ? 1U : 0U;
    if (!prefix) meant.push_back(each);
  }
  const std::size_t fabric = used.size() - strange.size();
  // Only a name that is also a device's full name is a likely mistake: "mlx5" alone means all of them.
  const bool slip = by_prefix > 0 && by_prefix < fabric;
  const std::string asked = concat({"NCCL_IB_HCA=", printable(*requested, 60)});
  auto wanted = used;
  std::erase_if(wanted, [&](const JudgedPort& each) { return role_of(node, *each.device) != DeviceRole::fabric; });
  if (auto blank = judge_blanks(selection, asked, severity_of_setting(request))) findings.push_back(*blank);
  if (used.empty()) {
    findings.push_back({Verdict::fail, concat({asked, " selects no active port"}), "correct or unset NCCL_IB_HCA"});
  } else if (!strange.empty()) {
    const bool iwarp = role_of(node, *strange.front().device) == DeviceRole::iwarp;
    findings.push_back(
        {Verdict::fail,
         concat({asked, " also selects ", strange.front().name().to_string(),
                 iwarp ? ", which is iWARP" : ", which is Accelerated Networking: not part of the fabric"}),
         wanted.empty() ? "unset NCCL_IB_HCA, or use rdma=off"
                        : concat({"NCCL_IB_HCA=", exact_selection(names_of(wanted))})});
  } else if (slip) {
    findings.push_back({Verdict::warn,
                        concat({asked, " also selects ", first_by_prefix->name().to_string(), ": names are prefixes"}),
                        concat({"NCCL_IB_HCA=", exact_selection(names_of(meant))})});
  } else if (layers.size() > 1) {
    std::erase_if(wanted, [](const JudgedPort& each) { return each.port->layer() != LinkLayer::infiniband; });
    findings.push_back({Verdict::warn, concat({asked, " selects both InfiniBand and Ethernet ports"}),
                        concat({"NCCL_IB_HCA=", exact_selection(names_of(wanted))})});
  } else if (auto differs = judge_grammar(node, *requested, asked)) {
    findings.push_back(std::move(*differs));
  } else {
    findings.push_back({Verdict::pass, concat({asked, " selects ", exact_selection(names_of(used)).substr(1)}), ""});
  }
}

/// Whether UCX would find no device at all: each entry has the form of an RDMA port (DEVICE:PORT) or names an RDMA
/// device, and not an interface for TCP.
bool names_rdma_only(const NodeFacts& node, const UcxSelection& selection) {
  return std::ranges::all_of(selection.names(), [&](const std::string& name) {
    return name.find(':') != std::string::npos ||
           std::ranges::find(node.devices, name, &DeviceFacts::name) != node.devices.end();
  });
}

/// UCX's choice concerns UCX: many recipes keep it on TCP beside NCCL on InfiniBand, which is a warning at most. A
/// choice that leaves UCX no device is a mistake.
void judge_ucx_selection(const NodeFacts& node, const CheckRequest& request, std::vector<Finding>& findings) {
  const auto requested = request.environment("UCX_NET_DEVICES");
  if (!requested || requested->empty()) return;
  const UcxSelection selection = UcxSelection::parse(*requested);
  std::vector<PortName> used;
  for (const DeviceFacts& device : node.devices) {
    for (const PortFacts& port : device.ports) {
      const bool usable = port.is_active() && port.layer() != LinkLayer::other;
      if (usable && selection.takes(device.name, port.number)) used.push_back({device.name, port.number});
    }
  }
  const std::string asked = concat({"UCX_NET_DEVICES=", printable(*requested, 60)});
  if (!used.empty()) {
    findings.push_back({Verdict::pass, concat({asked, " selects ", exact_selection(used).substr(1)}), ""});
    return;
  }
  const bool leaves_nothing = names_rdma_only(node, selection);
  findings.push_back({leaves_nothing ? severity_of_setting(request) : Verdict::warn,
                      concat({asked, " selects no active port of an RDMA device: UCX ",
                              leaves_nothing ? "has no network" : "uses TCP"}),
                      "if UCX should use RDMA: DEVICE:PORT, such as mlx5_0:1, or unset UCX_NET_DEVICES"});
}

/// Whether a level of NCCL's (a name, or a number from 0) forbids what it is for.
bool is_lowest_level(std::string_view level) {
  const std::string_view plain = text::trim(level);
  return text::to_lower(plain) == "loc" || plain == "0";
}

/// GPUDirect switched off: each byte goes through host memory, at half the speed or less.
void judge_gpudirect_settings(const NodeFacts& node, const CheckRequest& request, std::vector<Finding>& findings) {
  if (!node.nvidia_driver && std::ranges::none_of(node.gpus, &GpuFacts::nvidia)) return;
  const auto add = [&](std::string_view name, std::string_view value) {
    findings.push_back({severity_of_setting(request),
                        concat({name, "=", printable(value, 20), " switches GPUDirect RDMA off"}),
                        concat({"unset ", name})});
  };
  for (const std::string_view name : {"NCCL_NET_GDR_LEVEL", "NCCL_IB_GDR_LEVEL"}) {
    if (const auto level = request.environment(name); level && is_lowest_level(*level)) add(name, *level);
  }
  if (nccl_parameter(request.environment, "NCCL_IB_CUDA_SUPPORT") == 0) add("NCCL_IB_CUDA_SUPPORT", "0");
  if (node.peer_memory.empty() && nccl_parameter(request.environment, "NCCL_DMABUF_ENABLE") == 0)
    add("NCCL_DMABUF_ENABLE", "0");
}

void judge_switches(const CheckRequest& request, std::vector<Finding>& findings) {
  const EnvironmentReader& environment = request.environment;
  if (nccl_parameter(environment, "NCCL_IB_DISABLE").value_or(0) != 0) {
    findings.push_back(
        {severity_of_setting(request), "NCCL_IB_DISABLE is set: NCCL uses sockets", "unset NCCL_IB_DISABLE"});
  }
  const auto net = environment("NCCL_NET");
  if (net && text::to_lower(*net) == "socket") {
    findings.push_back({severity_of_setting(request), "NCCL_NET=Socket: NCCL uses sockets", "unset NCCL_NET"});
  }
  const auto transports = environment("UCX_TLS");
  if (transports && !transports->empty() && ucx_allows_verbs(*transports) == false) {
    findings.push_back({Verdict::warn,
                        concat({"UCX_TLS=", printable(*transports, 60), " excludes every transport over verbs"}),
                        "unset UCX_TLS"});
  }
}

}  // namespace

Check check_device_nodes(const NodeFacts& node, const CheckRequest& request, const ProcessFacts& process) {
  const auto names = judged_names(node, request);
  std::vector<Finding> findings;
  for (const DeviceNodeFacts& each : process.nodes) {
    if (std::ranges::find(names, each.device) == names.end()) continue;
    const std::string evidence = concat({each.device, ": ", printable(each.path)});
    if (each.error != 0) {
      findings.push_back({Verdict::fail, concat({evidence, ": ", std::strerror(each.error)}),
                          std::string(remedy_for_open(each.error))});
    } else if (!each.is_named) {
      findings.push_back({Verdict::fail, concat({evidence, " is there, but the kernel has no verbs for the device"}),
                          "modprobe ib_uverbs; the file is left over, or the host's that a container mounts"});
    } else if (!each.is_device) {
      findings.push_back(
          {Verdict::fail, concat({evidence, " is not a device"}), "remove the file and let udev create the device"});
    } else {
      findings.push_back({Verdict::pass, concat({evidence, " can be opened"}), ""});
    }
  }
  return join_findings("ib.devnode", findings, process.not_device_nodes.value_or("no device to open"));
}

Check check_provider(const NodeFacts& node, const CheckRequest& request, const ProcessFacts& process) {
  const VerbsFacts& verbs = process.verbs;
  const auto names = judged_names(node, request);
  if (names.empty()) return {"ib.provider", Verdict::skip, "no device", ""};
  if (verbs.verbs_missing) {
    return {"ib.provider", Verdict::fail, concat({"libibverbs cannot be used: ", printable(verbs.reason)}),
            "install libibverbs1 and ibverbs-providers (rdma-core)"};
  }
  if (!verbs.tried) return {"ib.provider", Verdict::skip, verbs.reason, ""};
  std::vector<Finding> findings;
  for (const std::string& name : names) {
    const bool listed = std::ranges::find(verbs.listed, name) != verbs.listed.end();
    if (listed) findings.push_back({Verdict::pass, concat({"libibverbs lists ", name}), ""});
    else
      findings.push_back({Verdict::fail, concat({"libibverbs does not list ", name}),
                          "its provider library (libmlx5) or its /dev/infiniband/uverbs node is missing here"});
  }
  return join_findings("ib.provider", findings, "no device");
}

Check check_memlock(const NodeFacts& node, const CheckRequest& request, const ProcessFacts& process) {
  if (!any_port(node, request)) return {"ib.memlock", Verdict::skip, "no device", ""};
  const MemlockFacts& memlock = process.memlock;
  const std::string limit =
      concat({"limit ", limit_text(memlock), memlock.exempt ? " (CAP_IPC_LOCK overrides it)" : ""});
  std::vector<Finding> findings;
  for (const VerbsDeviceFacts& each : judged_verbs(node, request, process.verbs)) {
    const std::string size = concat({std::to_string(registered_bytes >> 20), " MiB"});
    if (each.stage == "ibv_reg_mr" && !each.registered) {
      findings.push_back(
          {Verdict::fail, concat({limit, "; ", stage_text(each), " for ", size}), std::string(memlock_remedy)});
    } else if (each.registered) {
      findings.push_back({Verdict::pass, concat({limit, "; ", size, " registered"}), ""});
    }
  }
  const bool bound = !memlock.unlimited && !memlock.exempt;
  if (bound && memlock.soft < least_memlock) {
    const Verdict verdict = findings.empty() ? Verdict::fail : Verdict::warn;
    findings.push_back({verdict, concat({limit, ": too low for NCCL and UCX"}), std::string(memlock_remedy)});
  }
  if (findings.empty()) findings.push_back({Verdict::pass, limit, ""});
  return join_findings("ib.memlock", findings, "");
}

Check check_gpudirect(const NodeFacts& node, const CheckRequest& request, const ProcessFacts& process) {
  const bool nvidia = node.nvidia_driver || std::ranges::any_of(node.gpus, &GpuFacts::nvidia);
  if (!any_port(node, request)) return {"ib.gdr", Verdict::skip, "no device", ""};
  if (!nvidia) return {"ib.gdr", Verdict::skip, "no NVIDIA GPU", ""};
  if (!node.peer_memory.empty()) return {"ib.gdr", Verdict::pass, printable(node.peer_memory), ""};
  const auto devices = judged_verbs(node, request, process.verbs);
  const bool dmabuf = !devices.empty() && std::ranges::all_of(devices, &VerbsDeviceFacts::dmabuf);
  if (dmabuf) return {"ib.gdr", Verdict::pass, "DMA-BUF", ""};
  const bool required = request.sku && request.sku->needs_gpudirect;
  return {"ib.gdr", required ? Verdict::fail : Verdict::warn,
          concat({"neither nvidia_peermem nor memory_peers is loaded",
                  devices.empty() ? "" : ", and DMA-BUF is not supported"}),
          "modprobe nvidia_peermem"};
}

Check check_environment(const NodeFacts& node, const CheckRequest& request) {
  if (node.devices.empty()) return {"ib.env", Verdict::skip, "no device", ""};
  std::vector<Finding> findings;
  judge_nccl_selection(node, request, findings);
  judge_ucx_selection(node, request, findings);
  judge_switches(request, findings);
  judge_gpudirect_settings(node, request, findings);
  if (findings.empty()) {
    const FabricSettings settings = settings_of(node, request);
    if (settings.ports.empty()) return {"ib.env", Verdict::skip, "no variable is set, and no port is active", ""};
    findings.push_back(
        {Verdict::pass,
         concat({"no variable is set; an exact setting would be NCCL_IB_HCA=", exact_selection(settings.ports)}), ""});
  }
  return join_findings("ib.env", findings, "");
}

Check check_loopback(const NodeFacts& node, const CheckRequest& request, const ProcessFacts& process) {
  const VerbsFacts& verbs = process.verbs;
  if (verbs.timed_out) {
    return {"ib.loopback", Verdict::fail, concat({"timed out while ", printable(verbs.last_stage)}),
            "see the kernel log: the device or its driver hangs"};
  }
  if (!verbs.ended.empty()) {
    return {"ib.loopback", Verdict::fail,
            concat({"the process that tries it ended ", verbs.ended, " while ", printable(verbs.last_stage)}),
            concat({"see the kernel log: ", printable(verbs.library), " or the device's provider may have crashed"})};
  }
  if (request.expects(Sku::Fabric::efa)) return {"ib.loopback", Verdict::skip, "EFA has no reliable connections", ""};
  if (!verbs.tried) return {"ib.loopback", Verdict::skip, verbs.reason.empty() ? "not tried" : verbs.reason, ""};
  std::vector<Finding> findings;
  for (const VerbsDeviceFacts& each : judged_verbs(node, request, verbs)) {
    if (each.wrote) {
      findings.push_back({Verdict::pass, concat({each.device, ": an RDMA write to itself arrived"}), ""});
    } else {
      findings.push_back({Verdict::fail, stage_text(each), "see the check for this stage, and the kernel log"});
    }
  }
  return join_findings("ib.loopback", findings, "no device to write to");
}

}  // namespace amldist::fabric
