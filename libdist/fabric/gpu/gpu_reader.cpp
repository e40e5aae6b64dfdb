#include "fabric/gpu/gpu_reader.hpp"

#include <sys/prctl.h>

#include <csignal>

#include "base/os/child_process.hpp"
#include "base/os/whole_file.hpp"
#include "base/text/text.hpp"
#include "base/time/clock.hpp"
#include "fabric/gpu/nvml.hpp"
#include "fabric/gpu/rocm_smi.hpp"

namespace amldist::fabric {
namespace {

using text::concat;

template <typename Number>
std::string optional_text(const std::optional<Number>& number) {
  return number ? std::to_string(static_cast<std::uint64_t>(*number)) : "-";
}

std::optional<std::uint64_t> optional_number(std::string_view text) { return text::to_number(text, UINT64_MAX); }

std::optional<std::uint32_t> small_number(std::string_view text) {
  const auto number = text::to_number(text, UINT32_MAX);
  return number ? std::optional(static_cast<std::uint32_t>(*number)) : std::nullopt;
}

constexpr std::size_t field_count = 15;

}  // namespace

std::string to_text(const GpuStates& states) {
  std::string out = concat({states.asked ? "1" : "0", "\t", printable(states.driver, 80), "\t",
                            printable(states.problem, 200), "\t", states.links_are, "\n"});
  for (const GpuState& gpu : states.gpus) {
    std::string links;
    for (const bool active : gpu.links) links += active ? '1' : '0';
    const std::string rows =
        gpu.rows ? concat({std::to_string(gpu.rows->correctable), ",", std::to_string(gpu.rows->uncorrectable), ",",
                           gpu.rows->pending ? "1" : "0", ",", gpu.rows->failed ? "1" : "0"})
                 : "-";
    const std::string fabric = gpu.fabric
                                   ? concat({std::to_string(gpu.fabric->state), ",", std::to_string(gpu.fabric->status),
                                             ",", gpu.fabric->cluster, ",", std::to_string(gpu.fabric->clique)})
                                   : "-";
    out += concat({std::to_string(gpu.index),
                   "\t",
                   gpu.address,
                   "\t",
                   printable(gpu.problem, 120),
                   "\t",
                   optional_text(gpu.ecc_volatile),
                   "\t",
                   optional_text(gpu.ecc_aggregate),
                   "\t",
                   rows,
                   "\t",
                   links,
                   "\t",
                   optional_text(gpu.pcie_width),
                   "\t",
                   optional_text(gpu.most_pcie_width),
                   "\t",
                   optional_text(gpu.throttle),
                   "\t",
                   optional_text(gpu.persistence),
                   "\t",
                   fabric,
                   "\t",
                   optional_text(gpu.link_speed),
                   "\t",
                   optional_text(gpu.link_errors),
                   "\t.\n"});
  }
  return out;
}

Result<GpuStates> gpu_states_from_text(std::string_view text) {
  const Error malformed{Errc::invalid_argument, "what was read from the driver is malformed"};
  GpuStates states;
  const auto lines = text::split(text, '\n');
  const auto head = text::split(lines.front(), '\t');
  if (head.size() != 4 || lines.size() < 2 || !lines.back().empty()) return malformed;
  states.asked = head[0] == "1";
  states.driver = head[1];
  states.problem = head[2];
  states.links_are = head[3];
  for (std::size_t i = 1; i + 1 < lines.size(); ++i) {
    const auto fields = text::split(lines[i], '\t');
    if (fields.size() != field_count || fields.back() != ".") return malformed;
    GpuState gpu;
    gpu.index = small_number(fields[0]).value_or(0);
    gpu.address = fields[1];
    gpu.problem = fields[2];
    gpu.ecc_volatile = optional_number(fields[3]);
    gpu.ecc_aggregate = optional_number(fields[4]);
    if (const auto rows = text::split(fields[5], ','); rows.size() == 4) {
      gpu.rows = RemappedRows{small_number(rows[0]).value_or(0), small_number(rows[1]).value_or(0), rows[2] == "1",
                              rows[3] == "1"};
    }
    for (const char link : fields[6]) gpu.links.push_back(link == '1');
    gpu.pcie_width = small_number(fields[7]);
    gpu.most_pcie_width = small_number(fields[8]);
    gpu.throttle = optional_number(fields[9]);
    if (const auto mode = small_number(fields[10])) gpu.persistence = *mode != 0;
    if (const auto fabric = text::split(fields[11], ','); fabric.size() == 4) {
      gpu.fabric = FabricMembership{small_number(fabric[0]).value_or(0), small_number(fabric[1]).value_or(0),
                                    std::string(fabric[2]), small_number(fabric[3]).value_or(0)};
    }
    gpu.link_speed = small_number(fields[12]);
    if (const auto errors = small_number(fields[13])) gpu.link_errors = *errors != 0;
    states.gpus.push_back(std::move(gpu));
  }
  return states;
}

GpuStates read_gpu_states(GpuVendor vendor, const std::string& library, std::chrono::milliseconds timeout) {
  constexpr std::size_t longest_answer = std::size_t{64} << 10;
  GpuStates failed;
  const auto deadline = Clock::now() + timeout;
  auto pipe = Pipe::make();
  if (!pipe) {
    failed.problem = pipe.error().message;
    return failed;
  }
  auto child = ChildProcess::fork([&] {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // if the parent is killed, this must end too
    amldist::write_all(pipe->writing.get(),
                       to_text(vendor == GpuVendor::amd ? ask_rocm_smi(library) : ask_nvml(library)));
  });
  if (!child) {
    failed.problem = child.error().message;
    return failed;
  }
  pipe->writing = FileDescriptor();
  const auto text = read_until_end(pipe->reading.get(), deadline, longest_answer);
  const bool ended = text && child->wait_until(deadline).has_value();
  if (!ended) child->kill(SIGKILL);
  auto states = text ? gpu_states_from_text(*text) : Result<GpuStates>(text.error());
  if (states) return std::move(*states);
  failed.asked = true;
  failed.timed_out = true;
  failed.problem = ended ? "the process that asked it died"
                         : concat({"no answer in ", std::to_string(timeout.count() / 1000), " s"});
  return failed;
}

}  // namespace amldist::fabric
