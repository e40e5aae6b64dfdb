#include "core/settings.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "core/text.hpp"

namespace amldist {
namespace {

using text::concat;

constexpr std::uint64_t longest_timeout = INT32_MAX;

constexpr auto table = std::to_array<SettingDescription>({
    {variable::bootstrap, "`amldist_init()`", "`tcp`, `pmix`, `slurm`, `mpi`",
     "MPI if the program has initialised it, else the first of the others that is available",
     "how the ranks find rank 0: by `MASTER_ADDR` and `MASTER_PORT`, PMIx, Slurm's variables, or MPI"},
    {variable::cuda_library, "`aml-dist check --bench`", "path", "`libcuda.so.1`",
     "the CUDA driver, for writes from a GPU's memory and for NCCL's bandwidth"},
    {variable::instance_types, "`aml-run`", "path", "the site's table",
     "table of instance types, where `--instance-types` is not given"},
    {variable::integrity, "`amldist_init()`", "`off`, `crc`, `mac`", "`off`",
     "what is appended to each message between nodes: nothing, a checksum (CRC-32C), or a message authentication code "
     "(BLAKE2b, keyed with the secret); the same on all ranks. With `crc` and `mac` messages go over TCP"},
    {variable::instruction_set, "`amldist_init()`", "`plain`, `avx2`, `avx512`", "the best that the processor has",
     "highest instruction set that reductions use"},
    {variable::verbs_library, "`amldist_init()`, `aml-dist check`", "path", "`libibverbs.so.1`",
     "library by which RDMA devices are opened"},
    {variable::mpi_library, "`amldist_init()`", "path", "`aml-dist/libamldist_mpi.so` beside `libamldist.so`",
     "the part of the library that is linked with MPI"},
    {variable::nccl_library, "first buffer on a GPU, `aml-dist check --bench`", "path",
     "the one that the process has loaded, else `libnccl.so.2`", "NCCL library for buffers on a GPU"},
    {variable::nccl_profiler, "the libraries of `aml-dist trace`", "path", "none",
     "another profiler for NCCL, which gets the events that it asks for; the plugin puts the user's "
     "NCCL_PROFILER_PLUGIN "
     "here"},
    {variable::node_domains, "`amldist_init()`", "`auto`, `off`, `RANKS[,RANKS]...[/RANKS...]`", "`auto`",
     "which ranks of a node share a last-level cache, as the kernel says it (`auto`), or by their numbers on the node: "
     "`0-3,4-7`, or `0-1,2-3/4-5,6-7` with two sockets; `off`: no leaders inside a node. If a rank is not listed, or "
     "one rank has `off`, no rank of the node uses leaders"},
    {variable::node_name, "`amldist_init()`", "name", "the host name",
     "ranks with different names share no memory; tests simulate several nodes on one machine with it"},
    {variable::nvml_library, "`aml-dist check`", "path", "`libnvidia-ml.so.1`; with AMD's GPUs `librocm_smi64.so`",
     "library that is asked about the GPUs: NVML, or with AMD's GPUs ROCm SMI"},
    {variable::port_range, "`amldist_init()`", "`LO-HI[,LO-HI]...`",
     "any; rank 0 is met at `MASTER_PORT` + 48 ([decision 5](decisions/0005-port-by-hash-and-stride.md))",
     "ports on which the ranks listen, rank 0's meeting place included; the same on all ranks"},
    {variable::rdma, "`amldist_init()`", "`require`, `prefer`, `off`", "`off`",
     "policy for the verification of the fabric; the plugin sets it under `rdma=require` and `prefer` with several "
     "nodes ([fabric.md](fabric.md))"},
    {variable::rdma_sku, "`amldist_init()`", "name of an SKU", "none",
     "what the nodes should have; the plugin sets it with `AMLDIST_RDMA`"},
    {variable::secret, "`amldist_init()`", "`require`, `prefer`", "`prefer`",
     "`require` refuses a world whose ranks have no secret, or got it over PMIx, MPI or a store; the plugin sets it "
     "where "
     "the site has `secret=require`"},
    {variable::single_copy, "`amldist_init()`", "`on`, `off`, `always`", "`on`",
     "whether long messages between ranks of a node are copied once, by the kernel, where it allows that "
     "(`process_vm_readv`); `always`: reductions too where measurement would not choose it. `off` or `always` on one "
     "rank "
     "holds for all"},
    {variable::step_secret, "`amldist_init()`, `aml-dist check`", "64 hexadecimal digits", "none",
     "secret by which the processes of a step recognise each other; the plugin makes one for every step and replaces "
     "any other. As private as the environment"},
    {variable::timeout, "`amldist_init()`", "milliseconds, 1 to 2147483647", "300000",
     "deadline of each call, where the program gives none"},
    {variable::trace, "the libraries of `aml-dist trace`", "JOBID.STEP", "none: nothing is recorded",
     "the step whose calls are recorded; the plugin sets it under `trace` and removes any other"},
    {variable::trace_folder, "`amldist_init()`, `aml-dist trace`", "path, `off`, `none`", "`/dev/shm/aml-dist-UID`",
     "folder of the flight recorders; `off` and `none`: no recorder"},
    {variable::transport, "`amldist_init()`", "`tcp`, `mpi`",
     "MPI if the program has initialised Open MPI on every rank, else TCP",
     "what carries host buffers between nodes; with `mpi` here or in `AMLDIST_BOOTSTRAP`, MPI is initialised where the "
     "program has not done it"},
    {variable::mpi_yields, "`amldist_init()`", "`1`, `true`", "no",
     "Open MPI's own: a process that waits in MPI yields its processor; waits in libamldist do the same"},
    {variable::slurm_step, "`amldist_init()`", "set or not", "not set",
     "Slurm's own: the process that names a dead rank ends half a second after the others, so that srun prints its "
     "line"},
});

/// The value of one variable; nullopt where it is not set or empty.
std::optional<std::string> value_of(const EnvironmentReader& environment, std::string_view name) {
  auto value = environment(name);
  if (value && value->empty()) return std::nullopt;
  return value;
}

/// "tcp, pmix, slurm or mpi".
std::string alternatives(std::span<const std::string_view> words) {
  return concat({text::join(words.first(words.size() - 1)), " or ", words.back()});
}

/// Takes a word that stands for a value; a variable that is not set changes nothing.
template <typename Value>
struct Choice {
  std::string_view word;
  Value value;
};
template <typename Value, std::size_t N>
Result<void> take_word(const EnvironmentReader& environment, std::string_view name, Value& out,
                       const std::array<Choice<Value>, N>& choices) {
  const auto given = value_of(environment, name);
  if (!given) return {};
  const auto found = std::ranges::find(choices, std::string_view(*given), &Choice<Value>::word);
  if (found != choices.end()) {
    out = found->value;
    return {};
  }
  std::vector<std::string_view> words;
  words.reserve(N);
  for (const auto& each : choices) words.push_back(each.word);
  return Error{Errc::invalid_argument, concat({name, "=", text::quote(*given), ": use ", alternatives(words)})};
}

Result<void> take_timeout(const EnvironmentReader& environment, std::chrono::milliseconds& out) {
  const auto given = value_of(environment, variable::timeout);
  if (!given) return {};
  const auto number = text::to_number(*given, longest_timeout);
  if (!number || *number == 0) {
    return Error{Errc::invalid_argument,
                 concat({variable::timeout, "=", text::quote(*given), ": use a number of milliseconds from 1 to ",
                         std::to_string(longest_timeout)})};
  }
  out = std::chrono::milliseconds(*number);
  return {};
}

Result<void> take_ports(const EnvironmentReader& environment, PortRanges& out) {
  const auto given = value_of(environment, variable::port_range);
  if (!given) return {};
  auto ports = PortRanges::parse(*given);
  if (!ports) return Error{Errc::invalid_argument, concat({variable::port_range, ": ", ports.error().message})};
  out = std::move(*ports);
  return {};
}

Result<void> take_domains(const EnvironmentReader& environment, NodeDomains& out) {
  const auto given = value_of(environment, variable::node_domains);
  if (!given) return {};
  auto domains = NodeDomains::parse(*given);
  if (!domains) return Error{Errc::invalid_argument, concat({variable::node_domains, ": ", domains.error().message})};
  out = std::move(*domains);
  return {};
}

Result<void> take_words(const EnvironmentReader& environment, Settings& out) {
  constexpr auto bootstraps = std::to_array<Choice<Bootstrap>>(
      {{"tcp", Bootstrap::tcp}, {"pmix", Bootstrap::pmix}, {"slurm", Bootstrap::slurm}, {"mpi", Bootstrap::mpi}});
  constexpr auto transports =
      std::to_array<Choice<NodeTransport>>({{"mpi", NodeTransport::mpi}, {"tcp", NodeTransport::tcp}});
  constexpr auto sets = std::to_array<Choice<InstructionSet>>(
      {{"plain", InstructionSet::plain}, {"avx2", InstructionSet::avx2}, {"avx512", InstructionSet::avx512}});
  constexpr auto policies = std::to_array<Choice<RdmaPolicy>>(
      {{"require", RdmaPolicy::require}, {"prefer", RdmaPolicy::prefer}, {"off", RdmaPolicy::off}});
  constexpr auto secrets =
      std::to_array<Choice<SecretPolicy>>({{"require", SecretPolicy::require}, {"prefer", SecretPolicy::prefer}});
  constexpr auto integrities =
      std::to_array<Choice<Integrity>>({{"off", Integrity::off}, {"crc", Integrity::crc}, {"mac", Integrity::mac}});
  constexpr auto switches = std::to_array<Choice<SingleCopyPolicy>>(
      {{"on", SingleCopyPolicy::on}, {"off", SingleCopyPolicy::off}, {"always", SingleCopyPolicy::always}});
  if (auto taken = take_word(environment, variable::single_copy, out.single_copy, switches); !taken) return taken;
  if (auto taken = take_word(environment, variable::secret, out.secret, secrets); !taken) return taken;
  if (auto taken = take_word(environment, variable::integrity, out.integrity, integrities); !taken) return taken;
  if (auto taken = take_word(environment, variable::bootstrap, out.bootstrap, bootstraps); !taken) return taken;
  if (auto taken = take_word(environment, variable::transport, out.transport, transports); !taken) return taken;
  if (auto taken = take_word(environment, variable::instruction_set, out.instruction_set, sets); !taken) return taken;
  return take_word(environment, variable::rdma, out.rdma, policies);
}

}  // namespace

std::span<const SettingDescription> setting_descriptions() noexcept { return table; }

std::string_view to_string(Integrity integrity) noexcept {
  switch (integrity) {
    case Integrity::crc:
      return "crc";
    case Integrity::mac:
      return "mac";
    case Integrity::off:
      break;
  }
  return "off";
}

Result<Settings> Settings::read(const EnvironmentReader& environment) {
  const auto word = [&](std::string_view name) { return environment(name).value_or(""); };
  Settings out;
  if (auto taken = take_words(environment, out); !taken) return taken.error();
  if (auto taken = take_timeout(environment, out.timeout); !taken) return taken.error();
  if (auto taken = take_ports(environment, out.ports); !taken) return taken.error();
  if (auto taken = take_domains(environment, out.node_domains); !taken) return taken.error();
  out.rdma_sku = word(variable::rdma_sku);
  out.node_name = word(variable::node_name);
  out.mpi_library = word(variable::mpi_library);
  out.nccl_library = word(variable::nccl_library);
  out.trace_folder = word(variable::trace_folder);
  const std::string yields = word(variable::mpi_yields);
  out.mpi_yields = yields == "1" || yields == "true";
  out.is_under_srun = environment(variable::slurm_step).has_value();
  return out;
}

}  // namespace amldist
