#include "fabric/checks/gpu_checks.hpp"

#include <algorithm>
#include <array>
#include <set>

#include "base/text/text.hpp"

namespace amldist::fabric {
namespace {

using text::concat;

std::string name_of(const GpuState& gpu) {
  return concat({"GPU ", std::to_string(gpu.index), gpu.address.empty() ? "" : concat({" (", gpu.address, ")"})});
}

std::string why_not(const GpuStates& states) {
  if (!states.problem.empty()) return states.problem;
  return states.asked ? "the driver does not support it" : "no driver was asked";
}

/// A finding for each GPU that answers; `judge` may return nullopt.
template <typename Judge>
Check of_each(std::string_view id, const GpuStates& states, Judge judge) {
  std::vector<Finding> findings;
  for (const GpuState& gpu : states.gpus) {
    if (!gpu.problem.empty()) continue;
    if (std::optional<Finding> finding = judge(gpu)) findings.push_back(std::move(*finding));
  }
  return join_findings(id, findings, why_not(states));
}

constexpr std::string_view reset_remedy = "drain the node and reset the GPU (nvidia-smi -r), or reboot";
constexpr std::string_view replace_remedy = "drain the node and have the GPU replaced";

/// The number of "NVRM: Xid (PCI:0000:01:00): 79, ...".
std::optional<std::uint32_t> xid_of(std::string_view line) {
  const auto start = line.find("NVRM: Xid (");
  const auto colon = line.find("): ", std::min(start, line.size()));
  if (colon == std::string_view::npos) return std::nullopt;
  const std::string_view rest = line.substr(colon + 3);
  const auto number = text::to_number(rest.substr(0, rest.find_first_not_of("0123456789")), 9999);
  return number ? std::optional(static_cast<std::uint32_t>(*number)) : std::nullopt;
}

/// Xids that concern the hardware, after azurehpc-health-checks' azure_gpu_xid and NVIDIA's catalogue; 95 is an
/// uncontained memory error. Others (13, 31, 43, 45) are caused by programs. The last two: memory that was not
/// recovered, a GPU that does not start.
constexpr std::array<std::uint32_t, 21> sick_xids = {48, 56, 57, 58, 62, 63, 64,  65,  68,  69, 73,
                                                     74, 79, 80, 81, 92, 95, 119, 120, 140, 143};

/// Whether a Xid that may have two causes concerns the hardware: NVLink's from Blackwell on, "145, RLW_REMAP Fatal XC0
/// ..." or "Nonfatal", and the action that the driver recommends, "154, GPU recovery action changed from 0x0 (None) to
/// 0x2 (...)".
bool is_sick_by_its_text(std::uint32_t xid, std::string_view line) {
  constexpr std::uint32_t first_of_nvlink = 144;
  constexpr std::uint32_t last_of_nvlink = 150;
  constexpr std::uint32_t recovery_action = 154;
  if (xid >= first_of_nvlink && xid <= last_of_nvlink) return line.find(" Fatal") != std::string_view::npos;
  return xid == recovery_action && line.find("(None)", line.find(" to ")) == std::string_view::npos;
}

/// What the driver says about a GPU that it cannot start or no longer reaches, without a Xid.
bool is_about_a_lost_gpu(std::string_view line) {
  return line.find("NVRM: ") != std::string_view::npos &&
         (line.find("RmInitAdapter failed") != std::string_view::npos ||
          line.find("fallen off the bus") != std::string_view::npos);
}

}  // namespace

Check check_gpu_count(const GpuStates& states, const GpuExpectation& expected) {
  if (states.timed_out) {
    return {"gpu.count", Verdict::fail, concat({"the driver did not answer: ", states.problem}),
            "see the kernel log: the driver or a GPU hangs"};
  }
  const bool wanted = expected.count.value_or(0) > 0;
  const std::string source =
      expected.count ? concat({"; ", expected.source, ": ", std::to_string(*expected.count)}) : "";
  const std::string on_bus = concat({text::count(expected.on_bus, "GPU"), " on the PCI bus"});
  if (!states.problem.empty() || !states.asked) {
    if (expected.on_bus > 0 && expected.count && expected.on_bus < *expected.count)
      return {"gpu.count", Verdict::fail, concat({on_bus, source}), "a GPU is lost: see lspci and the kernel log"};
    return {"gpu.count", wanted ? Verdict::fail : Verdict::skip, concat({why_not(states), source}),
            wanted ? "load the driver (nvidia, amdgpu), and install libnvidia-ml or librocm_smi64" : ""};
  }
  std::vector<Finding> findings;
  for (const GpuState& gpu : states.gpus) {
    if (gpu.problem.empty()) continue;
    findings.push_back(
        {Verdict::fail, concat({name_of(gpu), ": ", printable(gpu.problem)}), std::string(reset_remedy)});
  }
  const std::string count = concat({text::count(states.gpus.size(), "GPU"), ", driver ", printable(states.driver, 40)});
  if (!expected.is_share && states.gpus.size() < expected.on_bus) {
    findings.push_back({Verdict::fail, concat({count, ", ", on_bus}),
                        "the driver does not show a GPU that is there: see the kernel log for its address"});
  }
  if (expected.count && states.gpus.size() < *expected.count) {
    findings.push_back(
        {Verdict::fail, concat({count, source}), "a GPU is lost: see lspci and the kernel log for its Xid"});
  }
  if (findings.empty()) findings.push_back({Verdict::pass, concat({count, source}), ""});
  return join_findings("gpu.count", findings, "");
}

Check check_gpu_ecc(const GpuStates& states) {
  return of_each("gpu.ecc", states, [](const GpuState& gpu) -> std::optional<Finding> {
    if (!gpu.ecc_volatile) return std::nullopt;
    const std::string evidence = concat({name_of(gpu), ": ", std::to_string(*gpu.ecc_volatile),
                                         " uncorrectable errors since the driver's start, ",
                                         std::to_string(gpu.ecc_aggregate.value_or(0)), " in all"});
    if (*gpu.ecc_volatile > 0) return Finding{Verdict::fail, evidence, std::string(reset_remedy)};
    return Finding{gpu.ecc_aggregate.value_or(0) > 0 ? Verdict::warn : Verdict::pass, evidence,
                   gpu.ecc_aggregate.value_or(0) > 0 ? "watch this GPU: it had such errors before" : ""};
  });
}

Check check_gpu_rows(const GpuStates& states) {
  constexpr std::uint32_t most_rows = 512;  // azurehpc-health-checks, azure_gpu_ecc
  return of_each("gpu.rows", states, [](const GpuState& gpu) -> std::optional<Finding> {
    if (!gpu.rows) return std::nullopt;
    const RemappedRows& rows = *gpu.rows;
    const std::string evidence =
        concat({name_of(gpu), ": ", std::to_string(rows.uncorrectable), " rows replaced after uncorrectable errors",
                rows.pending ? ", a replacement is pending" : "", rows.failed ? ", a replacement failed" : ""});
    if (rows.failed || rows.uncorrectable > most_rows) {
      return Finding{Verdict::fail, evidence, std::string(replace_remedy)};
    }
    return Finding{rows.pending ? Verdict::fail : Verdict::pass, evidence,
                   rows.pending ? std::string(reset_remedy) : ""};
  });
}

Check check_gpu_links(const GpuStates& states) {
  std::size_t most = 0;
  std::uint32_t fastest = 0;
  for (const GpuState& gpu : states.gpus) {
    most = std::max(most, static_cast<std::size_t>(std::ranges::count(gpu.links, true)));
    fastest = std::max(fastest, gpu.link_speed.value_or(0));
  }
  if (most == 0 && states.problem.empty()) {
    return {"gpu.nvlink", Verdict::skip, concat({"no ", states.links_are, " is active"}), ""};
  }
  return of_each("gpu.nvlink", states, [&](const GpuState& gpu) -> std::optional<Finding> {
    const auto active = static_cast<std::size_t>(std::ranges::count(gpu.links, true));
    const std::string speed =
        gpu.link_speed ? concat({" at ", std::to_string(*gpu.link_speed / 1000), " GB/s"}) : std::string();
    const std::string evidence = concat({name_of(gpu), ": ", std::to_string(active), " of ",
                                         std::to_string(gpu.links.size()), " ", states.links_are, "s active", speed});
    // Links that no GPU of the node uses are not cabled on this model.
    if (active < most) return Finding{Verdict::fail, evidence, std::string(reset_remedy)};
    if (gpu.link_speed && *gpu.link_speed < fastest) {
      return Finding{Verdict::warn, concat({evidence, ", others at ", std::to_string(fastest / 1000)}),
                     std::string(reset_remedy)};
    }
    if (gpu.link_errors.value_or(false)) {
      return Finding{Verdict::warn, concat({evidence, ", errors since the driver's start"}), std::string(reset_remedy)};
    }
    return Finding{Verdict::pass, evidence, ""};
  });
}

Check check_gpu_fabric(const GpuStates& states) {
  constexpr std::uint32_t not_supported = 0;
  constexpr std::uint32_t completed = 3;
  constexpr std::string_view manager = "start nvidia-fabricmanager (on NVL72: nvidia-imex and the domain's manager)";
  std::set<std::string> domains;
  Check check = of_each("gpu.fabric", states, [&](const GpuState& gpu) -> std::optional<Finding> {
    if (!gpu.fabric || gpu.fabric->state == not_supported) return std::nullopt;
    const FabricMembership& own = *gpu.fabric;
    domains.insert(concat({own.cluster, "/", std::to_string(own.clique)}));
    if (own.state != completed) {
      return Finding{
          Verdict::fail,
          concat({name_of(gpu), " has not joined the NVLink fabric (state ", std::to_string(own.state), ")"}),
          std::string(manager)};
    }
    if (own.status != 0) {
      return Finding{
          Verdict::fail,
          concat({name_of(gpu), ": joining the NVLink fabric failed with status ", std::to_string(own.status)}),
          std::string(manager)};
    }
    return Finding{Verdict::pass, concat({name_of(gpu), ": NVLink clique ", std::to_string(own.clique)}), ""};
  });
  if (check.verdict == Verdict::pass && domains.size() > 1) {
    return {"gpu.fabric", Verdict::fail,
            concat({"the GPUs are in ", std::to_string(domains.size()), " NVLink cliques"}), std::string(manager)};
  }
  return check;
}

Check check_gpu_imex(const GpuStates& states, const NodeFacts& node) {
  const std::string domain = nvlink_domain(states);
  if (domain.empty()) return {"gpu.imex", Verdict::skip, "no NVLink domain beyond this node", ""};
  if (node.imex_channel)
    return {"gpu.imex", Verdict::pass, concat({"domain ", domain, ", a channel is open to us"}), ""};
  return {"gpu.imex", Verdict::warn,
          concat({"NVLink domain ", domain, ", but no IMEX channel: its nodes will use the network"}),
          "start nvidia-imex, and give the job a channel (switch/nvidia_imex in slurm.conf)"};
}

Check check_gpu_pcie(const GpuStates& states) {
  return of_each("gpu.pcie", states, [](const GpuState& gpu) -> std::optional<Finding> {
    // The speed is no measure: an idle GPU lowers it.
    if (!gpu.pcie_width || !gpu.most_pcie_width) return std::nullopt;
    const bool narrow = *gpu.pcie_width < *gpu.most_pcie_width;
    return Finding{
        narrow ? Verdict::fail : Verdict::pass,
        concat({name_of(gpu), ": x", std::to_string(*gpu.pcie_width), " of x", std::to_string(*gpu.most_pcie_width)}),
        narrow ? "reseat the GPU or its riser" : ""};
  });
}

Check check_gpu_throttle(const GpuStates& states) {
  struct Reason {
    std::uint64_t bit;
    std::string_view what;
  };
  // nvml.h, nvmlClocksThrottleReason...: those that are not the load's or the administrator's doing.
  constexpr std::array<Reason, 4> reasons = {{{0x08, "slowed down by the hardware"},
                                              {0x20, "too hot (software)"},
                                              {0x40, "too hot (hardware)"},
                                              {0x80, "the power supply brakes"}}};
  return of_each("gpu.throttle", states, [&](const GpuState& gpu) -> std::optional<Finding> {
    if (!gpu.throttle) return std::nullopt;
    std::string what;
    for (const Reason& each : reasons) {
      if ((*gpu.throttle & each.bit) != 0) what += concat({what.empty() ? ": " : ", ", each.what});
    }
    if (what.empty()) return Finding{Verdict::pass, concat({name_of(gpu), " is not throttled"}), ""};
    return Finding{Verdict::warn, concat({name_of(gpu), what}), "check cooling and power of the node"};
  });
}

Check check_gpu_persistence(const GpuStates& states) {
  return of_each("gpu.persistence", states, [](const GpuState& gpu) -> std::optional<Finding> {
    if (!gpu.persistence) return std::nullopt;
    if (*gpu.persistence) return Finding{Verdict::pass, concat({name_of(gpu), " is persistent"}), ""};
    return Finding{Verdict::warn, concat({name_of(gpu), " is not persistent: each job waits for its start"}),
                   "start nvidia-persistenced"};
  });
}

Check check_gpu_xid(const std::optional<std::vector<std::string>>& lines) {
  if (!lines) return {"gpu.xid", Verdict::skip, "the kernel log was not read", ""};
  std::vector<Finding> findings;
  for (const std::string& line : *lines) {
    const auto xid = xid_of(line);
    const bool listed = xid && std::ranges::find(sick_xids, *xid) != sick_xids.end();
    const bool sick = listed || (xid && is_sick_by_its_text(*xid, line)) || is_about_a_lost_gpu(line);
    const bool contained = xid && *xid == 94;
    if (!sick && !contained) continue;
    findings.push_back({sick ? Verdict::fail : Verdict::warn, printable(line, 160), std::string(reset_remedy)});
  }
  if (findings.empty()) findings.push_back({Verdict::pass, "no Xid of the hardware since boot", ""});
  return join_findings("gpu.xid", findings, "");
}

std::vector<Check> verify_gpus(const GpuStates& states, const NodeFacts& node, const GpuExpectation& expected,
                               const std::optional<std::vector<std::string>>& kernel_log, launch::RdmaPolicy health) {
  if (health == launch::RdmaPolicy::off) return {};
  std::vector<Check> checks = {check_gpu_count(states, expected),
                               check_gpu_ecc(states),
                               check_gpu_rows(states),
                               check_gpu_links(states),
                               check_gpu_fabric(states),
                               check_gpu_imex(states, node),
                               check_gpu_pcie(states),
                               check_gpu_throttle(states),
                               check_gpu_persistence(states),
                               check_gpu_xid(kernel_log)};
  const bool nothing_asked =
      std::ranges::all_of(checks, [](const Check& check) { return check.verdict == Verdict::skip; });
  if (health == launch::RdmaPolicy::require && nothing_asked && (!node.gpus.empty() || !node.pci_problem.empty())) {
    checks.front() = {"gpu.count", Verdict::unknown,
                      concat({"health=require, and nothing could be verified: ", why_not(states)}),
                      "install libnvidia-ml or librocm_smi64 beside the driver"};
  }
  for (Check& check : checks) {
    if (health == launch::RdmaPolicy::prefer && check.verdict == Verdict::fail) check.verdict = Verdict::warn;
  }
  return checks;
}

}  // namespace amldist::fabric
