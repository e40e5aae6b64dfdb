#include "placement/process_identity.hpp"

#include <array>
#include <initializer_list>
#include <string_view>

#include "core/tasks_per_node.hpp"
#include "core/text.hpp"

namespace amldist {
namespace {

using text::concat;

/// Names of the six numbers in one launcher's language; "" where it has none.
struct Dialect {
  std::string_view source;
  std::string_view rank;
  std::string_view size;
  std::string_view local_rank = "";
  std::string_view local_size = "";
  std::string_view node_rank = "";
  std::string_view nodes = "";
};

constexpr Dialect torchrun = {"torchrun",         "RANK",       "WORLD_SIZE",      "LOCAL_RANK",
                              "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE"};
constexpr Dialect mpirun = {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                            "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr Dialect own = {"aml-dist", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK"};
constexpr Dialect slurm = {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"};
constexpr Dialect plain = {"RANK and WORLD_SIZE", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK"};
constexpr Dialect pmi = {"PMI", "PMI_RANK", "PMI_SIZE"};

class Reader {
 public:
  explicit Reader(const EnvironmentReader& environment) : environment_(environment) {}

  [[nodiscard]] bool has(std::string_view name) const { return !name.empty() && environment_(name).has_value(); }

  [[nodiscard]] Result<std::optional<std::uint32_t>> number(std::string_view name) const {
    if (!has(name)) return std::optional<std::uint32_t>();
    const std::string value = *environment_(name);
    const auto parsed = text::to_number(value, most_tasks);
    if (!parsed) return Error{Errc::invalid_argument, concat({name, "=", text::quote(value), " is no number"})};
    return std::optional(static_cast<std::uint32_t>(*parsed));
  }

  /// Whether `name`, where it is set, says the same as ours, which came from `our_name`.
  [[nodiscard]] Result<void> agrees(std::string_view name, std::uint32_t ours, std::string_view our_name) const {
    const auto theirs = number(name);
    if (!theirs) return theirs.error();
    if (!*theirs || **theirs == ours) return {};
    return Error{Errc::mismatch, concat({our_name, "=", std::to_string(ours), " but ", name, "=",
                                         std::to_string(**theirs), ": unset the wrong one"})};
  }

 private:
  const EnvironmentReader& environment_;
};

/// All numbers of one launcher. unavailable without rank or size.
Result<ProcessIdentity> read_dialect(const Reader& reader, const Dialect& dialect) {
  ProcessIdentity out;
  out.source = dialect.source;
  std::optional<std::uint32_t> rank;
  std::optional<std::uint32_t> size;
  const std::array<std::pair<std::string_view, std::optional<std::uint32_t>*>, 6> fields = {
      {{dialect.rank, &rank},
       {dialect.size, &size},
       {dialect.local_rank, &out.local_rank},
       {dialect.local_size, &out.local_size},
       {dialect.node_rank, &out.node_rank},
       {dialect.nodes, &out.nodes}}};
  for (const auto& [name, target] : fields) {
    auto value = reader.number(name);
    if (!value) return value.error();
    *target = *value;
  }
  if (!rank || !size) {
    return Error{Errc::mismatch, concat({rank ? dialect.rank : dialect.size, " is set but ",
                                         rank ? dialect.size : dialect.rank, " is not"})};
  }
  if (*rank >= *size) {
    return Error{Errc::mismatch, concat({dialect.rank, "=", std::to_string(*rank), " is not below ", dialect.size, "=",
                                         std::to_string(*size)})};
  }
  out.rank = *rank;
  out.size = *size;
  return out;
}

/// The launcher that is nearest to this process; nullptr: nobody started it.
const Dialect* nearest_launcher(const Reader& reader, bool stamped) {
  const bool ranked = reader.has("RANK") && reader.has("WORLD_SIZE");
  if (reader.has("TORCHELASTIC_RUN_ID") && ranked) return &torchrun;
  if (reader.has(mpirun.rank) && reader.has("OMPI_UNIVERSE_SIZE")) return &mpirun;
  if (stamped && ranked) return &own;
  if (reader.has("SLURM_STEP_ID") && reader.has("SLURM_STEP_NUM_TASKS") && reader.has(slurm.rank)) return &slurm;
  if (ranked || reader.has(plain.rank) || reader.has(plain.size)) return &plain;
  if (reader.has(mpirun.rank)) return &mpirun;
  if (reader.has(pmi.rank)) return &pmi;
  return nullptr;
}

/// Under srun several agents describe the same task: they must say the same.
Result<void> check_agreement(const Reader& reader, const Dialect& chosen, const ProcessIdentity& id) {
  struct Pair {
    std::string_view name;
    std::uint32_t ours;
    std::string_view our_name;
  };
  const bool in_step = reader.has("SLURM_STEP_ID") && reader.has("SLURM_STEP_NUM_TASKS");
  const bool near_slurm = &chosen == &own || &chosen == &slurm || &chosen == &plain;
  std::initializer_list<Pair> pairs = {{"SLURM_PROCID", id.rank, chosen.rank}, {"SLURM_NTASKS", id.size, chosen.size},
                                       {"PMIX_RANK", id.rank, chosen.rank},    {"PMI_RANK", id.rank, chosen.rank},
                                       {"PMI_SIZE", id.size, chosen.size},     {"RANK", id.rank, chosen.rank},
                                       {"WORLD_SIZE", id.size, chosen.size}};
  if (!near_slurm) return {};
  for (const Pair& pair : pairs) {
    const bool of_step = pair.name.starts_with("SLURM_");
    if (of_step && !in_step) continue;
    if (auto same = reader.agrees(pair.name, pair.ours, pair.our_name); !same) return same;
  }
  return {};
}

}  // namespace

Result<ProcessIdentity> read_process_identity(const EnvironmentReader& environment) {
  const Reader reader(environment);
  const auto stamp = environment("AMLDIST_STAMP");
  const Dialect* const launcher = nearest_launcher(reader, stamp.has_value());
  if (launcher == nullptr) return ProcessIdentity();
  auto identity = read_dialect(reader, *launcher);
  if (!identity) return identity;
  if (auto same = check_agreement(reader, *launcher, *identity); !same) return same.error();
  return identity;
}

}  // namespace amldist
