#include "world/settings.hpp"

#include <array>
#include <utility>
#include <vector>

#include "base/net/congestion_control.hpp"
#include "base/text/text.hpp"

namespace amldist::world {
namespace {

using setting::read_word;
using setting::value_of;
using text::concat;

constexpr std::uint64_t longest_timeout = INT32_MAX;

constexpr auto table = std::to_array<SettingDescription>({
    {variable::bootstrap, "`amldist_init()`", "`tcp`, `pmix`, `slurm`, `mpi`",
     "MPI if the program has initialised it, else the first of the others that is available",
     "how the ranks find rank 0: by `MASTER_ADDR` and `MASTER_PORT`, PMIx, Slurm's variables, or MPI"},
    {variable::integrity, "`amldist_init()`", "`off`, `crc`, `mac`", "`off`",
     "what is appended to each message between nodes: nothing, a checksum (CRC-32C), or a message authentication code "
     "(BLAKE2b, keyed with the secret); the same on all ranks. With `crc` and `mac` messages go over TCP"},
    {variable::mpi_library, "`amldist_init()`", "path", "`aml-dist/libamldist_mpi.so` beside `libamldist.so`",
     "the part of the library that is linked with MPI"},
    {variable::node_name, "`amldist_init()`", "name", "the host name",
     "ranks with different names share no memory; tests simulate several nodes on one machine with it"},
    {variable::port_range, "`amldist_init()`", "`LO-HI[,LO-HI]...`",
     "any; rank 0 listens at `MASTER_PORT` + 48 ([decision 5](decisions/0005-port-by-hash-and-stride.md))",
     "ports on which the ranks listen, rank 0 included; the same on all ranks"},
    {variable::tcp_congestion, "`amldist_init()`", "`auto`, `system`, or an algorithm that the kernel allows", "`auto`",
     "the congestion control of connections that carry data between nodes: `system` is the system's (sysctl "
     "`net.ipv4.tcp_congestion_control`), `auto` the same with Reno in place of BBR, which halves the speed of a "
     "cluster's network"},
    {variable::timeout, "`amldist_init()`", "milliseconds, 1 to 2147483647", "300000",
     "deadline of each call, if the program sets none"},
    {variable::transport, "`amldist_init()`", "`tcp`, `mpi`",
     "MPI if the program has initialised Open MPI on every rank, else TCP",
     "what carries host buffers between nodes; with `mpi` here or in `AMLDIST_BOOTSTRAP`, MPI is initialised if the "
     "program has not done it"},
    {variable::mpi_yields, "`amldist_init()`", "`1`, `true`", "no",
     "Open MPI's own: a process that waits in MPI yields its processor; waits in libamldist do the same"},
    {variable::slurm_step, "`amldist_init()`", "set or not", "not set",
     "Slurm's own: the process that names a dead rank ends half a second after the others, so that srun prints its "
     "line"},
});

Result<void> read_timeout(const EnvironmentReader& environment, std::chrono::milliseconds& out) {
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

Result<void> read_ports(const EnvironmentReader& environment, PortRanges& out) {
  const auto given = value_of(environment, variable::port_range);
  if (!given) return {};
  auto ports = PortRanges::parse(*given);
  if (!ports) return Error{Errc::invalid_argument, concat({variable::port_range, ": ", ports.error().message})};
  out = std::move(*ports);
  return {};
}

Result<void> read_congestion_control(const EnvironmentReader& environment, std::string& out) {
  out = value_of(environment, variable::tcp_congestion).value_or(std::string(congestion_control::automatic));
  if (congestion_control::is_valid(out)) return {};
  const auto valid = congestion_control::choices();
  const std::vector<std::string_view> words(valid.begin(), valid.end());
  return setting::invalid_word(variable::tcp_congestion, out, words);
}

Result<void> read_words(const EnvironmentReader& environment, Settings& out) {
  if (auto status = read_word(environment, launch::variable::secret, out.secret,
                              {{"require", launch::SecretPolicy::require}, {"prefer", launch::SecretPolicy::prefer}});
      !status)
    return status;
  if (auto status = read_word(environment, variable::integrity, out.integrity,
                              {{"off", Integrity::off}, {"crc", Integrity::crc}, {"mac", Integrity::mac}});
      !status)
    return status;
  if (auto status = read_word(
          environment, variable::bootstrap, out.bootstrap,
          {{"tcp", Bootstrap::tcp}, {"pmix", Bootstrap::pmix}, {"slurm", Bootstrap::slurm}, {"mpi", Bootstrap::mpi}});
      !status)
    return status;
  return read_word(environment, variable::transport, out.transport, {{"mpi", Carrier::mpi}, {"tcp", Carrier::tcp}});
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
  Settings out;
  if (auto status = read_words(environment, out); !status) return status.error();
  if (auto status = read_timeout(environment, out.timeout); !status) return status.error();
  if (auto status = read_ports(environment, out.ports); !status) return status.error();
  if (auto status = read_congestion_control(environment, out.tcp_congestion); !status) return status.error();
  out.node_name = environment(variable::node_name).value_or("");
  out.mpi_library = environment(variable::mpi_library).value_or("");
  const std::string yields = environment(variable::mpi_yields).value_or("");
  out.mpi_yields = yields == "1" || yields == "true";
  out.is_under_srun = environment(variable::slurm_step).has_value();
  return out;
}

}  // namespace amldist::world
