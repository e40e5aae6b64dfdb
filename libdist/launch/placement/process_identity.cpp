#include "launch/placement/process_identity.hpp"

#include <array>
#include <initializer_list>
#include <string_view>

#include "base/text/tasks_per_node.hpp"
#include "base/text/text.hpp"

namespace amldist::launch {
namespace {

using text::concat;

/// The six variables of one launcher; "" for those that it does not set.
struct LauncherVariables {
  std::string_view source;
  std::string_view rank;
  std::string_view size;
  std::string_view local_rank = "";
  std::string_view local_size = "";
  std::string_view node_rank = "";
  std::string_view nodes = "";
};

constexpr LauncherVariables torchrun = {"torchrun",         "RANK",       "WORLD_SIZE",      "LOCAL_RANK",
                                        "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE"};
constexpr LauncherVariables mpirun = {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                      "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr LauncherVariables own = {"aml-dist", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK"};
constexpr LauncherVariables slurm = {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"};
constexpr LauncherVariables generic = {"RANK and WORLD_SIZE", "RANK",     "WORLD_SIZE", "LOCAL_RANK",
                                       "LOCAL_WORLD_SIZE",    "NODE_RANK"};
constexpr LauncherVariables pmi = {"PMI", "PMI_RANK", "PMI_SIZE"};

class Reader {
 public:
  explicit Reader(const EnvironmentReader& environment) : environment_(environment) {}

  [[nodiscard]] bool has(std::string_view name) const { return !name.empty() && environment_(name).has_value(); }

  [[nodiscard]] std::string word(std::string_view name) const { return environment_(name).value_or(""); }
  [[nodiscard]] bool is_in_step() const { return has("SLURM_STEP_ID") && has("SLURM_STEP_NUM_TASKS"); }

  /// Whether `named` ("JOB.STEP") can be the step of this process. True if nothing contradicts it. The components of a
  /// heterogeneous step have different job ids.
  [[nodiscard]] bool is_own_step(std::string_view named) const {
    if (!is_in_step() || named.empty()) return true;
    const std::string step = concat({".", word("SLURM_STEP_ID")});
    return has("SLURM_HET_SIZE") ? named.ends_with(step) : named == word("SLURM_JOB_ID") + step;
  }

  [[nodiscard]] Result<std::optional<std::uint32_t>> number(std::string_view name) const {
    if (!has(name)) return std::optional<std::uint32_t>();
    const std::string value = *environment_(name);
    const auto parsed = text::to_number(value, most_tasks);
    if (!parsed)
      return Error{Errc::invalid_argument,
                   concat({name, "=", text::quote(value), " ", text::number_problem(value, most_tasks)})};
    return std::optional(static_cast<std::uint32_t>(*parsed));
  }

  /// Checks that `name`, if set, equals our value, which was read from `our_name`.
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

/// Reads all variables of one launcher. unavailable without rank or size.
Result<ProcessIdentity> read_variables(const Reader& reader, const LauncherVariables& variables) {
  ProcessIdentity out;
  out.source = variables.source;
  std::optional<std::uint32_t> rank;
  std::optional<std::uint32_t> size;
  const std::array<std::pair<std::string_view, std::optional<std::uint32_t>*>, 6> fields = {
      {{variables.rank, &rank},
       {variables.size, &size},
       {variables.local_rank, &out.local_rank},
       {variables.local_size, &out.local_size},
       {variables.node_rank, &out.node_rank},
       {variables.nodes, &out.nodes}}};
  for (const auto& [name, target] : fields) {
    auto value = reader.number(name);
    if (!value) return value.error();
    *target = *value;
  }
  if (!rank || !size) {
    return Error{Errc::mismatch, concat({rank ? variables.rank : variables.size, " is set but ",
                                         rank ? variables.size : variables.rank, " is not"})};
  }
  if (*rank >= *size) {
    return Error{Errc::mismatch, concat({variables.rank, "=", std::to_string(*rank), " is not below ", variables.size,
                                         "=", std::to_string(*size)})};
  }
  out.rank = *rank;
  out.size = *size;
  return out;
}

/// Whether the environment has a stamp, and of which step.
enum class Stamped : std::uint8_t { no, by_this_step, by_an_outer_step };

Stamped stamped(const Reader& reader) {
  const std::string stamp = reader.word("AMLDIST_STAMP");
  if (stamp.empty()) return Stamped::no;
  return reader.is_own_step(stamp.substr(0, stamp.find(' '))) ? Stamped::by_this_step : Stamped::by_an_outer_step;
}

/// The launcher closest to this process; nullptr if no launcher started it.
const LauncherVariables* nearest_launcher(const Reader& reader, int own_pid) {
  const bool ranked = reader.has("RANK") && reader.has("WORLD_SIZE");
  const bool in_step = reader.is_in_step() && reader.has(slurm.rank);
  const bool by_slurmstepd = in_step && reader.word("SLURM_TASK_PID") == std::to_string(own_pid);
  // In a per-node step the launcher that the task runs assigns the ranks.
  const bool per_node = reader.has("AMLDIST_HIDDEN_SLURM_STEP_ID");
  const bool own_ranks = ranked && !per_node && stamped(reader) == Stamped::by_this_step;
  if (reader.has("TORCHELASTIC_RUN_ID") && ranked) return &torchrun;
  if (reader.has(mpirun.rank) && reader.has("OMPI_UNIVERSE_SIZE") && !by_slurmstepd) return &mpirun;
  if (own_ranks) return &own;
  if (in_step) return &slurm;
  if (ranked || reader.has(generic.rank) || reader.has(generic.size)) return &generic;
  if (reader.has(mpirun.rank)) return &mpirun;
  if (reader.has(pmi.rank)) return &pmi;
  return nullptr;
}

constexpr std::string_view space_of_slurm = "slurm.pmix.";

bool is_pmix_of_step(const Reader& reader) {
  const std::string space = reader.word("PMIX_NAMESPACE");
  return space.starts_with(space_of_slurm) && reader.is_own_step(std::string_view(space).substr(space_of_slurm.size()));
}

/// The other sources that may describe this process.
struct OtherSources {
  bool slurm = false;
  bool pmix = false;
  bool pmi = false;
  bool open_mpi = false;
  bool names = false;  ///< RANK, WORLD_SIZE, ...
};

OtherSources other_sources_of(const Reader& reader, const LauncherVariables& chosen) {
  const std::string space = reader.word("PMIX_NAMESPACE");
  const Stamped stamp = stamped(reader);
  const bool per_node = reader.has("AMLDIST_HIDDEN_SLURM_STEP_ID");
  OtherSources ask;
  if (&chosen == &mpirun) {
    ask.pmix = !space.starts_with(space_of_slurm);
    ask.names = stamp == Stamped::no;
  } else if (&chosen == &own || &chosen == &slurm || (&chosen == &generic && !per_node)) {
    ask.slurm = &chosen == &own && reader.is_in_step();
    ask.pmix = !reader.is_in_step() || space.empty() || is_pmix_of_step(reader);
    ask.pmi = reader.is_own_step(reader.word("PMI_JOBID"));
    ask.open_mpi = !reader.has("OMPI_UNIVERSE_SIZE") && stamp != Stamped::by_an_outer_step;
    ask.names = &chosen == &slurm && stamp != Stamped::by_an_outer_step;
  }
  return ask;
}

/// All sources that describe this process must agree.
Result<void> check_agreement(const Reader& reader, const LauncherVariables& chosen, const ProcessIdentity& id) {
  const OtherSources ask = other_sources_of(reader, chosen);
  const auto same = [&](const LauncherVariables& other) -> Result<void> {
    using Number = std::optional<std::uint32_t>;
    struct Pair {
      std::string_view theirs;
      Number ours;
      std::string_view our_name;
    };
    for (const Pair& pair : {Pair{other.rank, id.rank, chosen.rank}, Pair{other.size, id.size, chosen.size},
                             Pair{other.local_rank, id.local_rank, chosen.local_rank},
                             Pair{other.local_size, id.local_size, chosen.local_size}}) {
      if (!pair.ours) continue;
      if (auto status = reader.agrees(pair.theirs, *pair.ours, pair.our_name); !status) return status;
    }
    return {};
  };
  // In a heterogeneous step Slurm counts local ranks per component.
  constexpr LauncherVariables slurm_whole = {"Slurm", "SLURM_PROCID", "SLURM_NTASKS"};
  constexpr LauncherVariables pmix = {"PMIx", "PMIX_RANK", ""};
  struct Question {
    bool is_asked;
    const LauncherVariables& variables;
  };
  for (const Question& each : {Question{ask.slurm, slurm_whole}, Question{ask.pmix, pmix}, Question{ask.pmi, pmi},
                               Question{ask.open_mpi, mpirun}, Question{ask.names, generic}}) {
    if (!each.is_asked) continue;
    if (auto status = same(each.variables); !status) return status;
  }
  return {};
}

}  // namespace

Result<ProcessIdentity> read_process_identity(const EnvironmentReader& environment, int own_pid) {
  const Reader reader(environment);
  const LauncherVariables* const launcher = nearest_launcher(reader, own_pid);
  if (launcher == nullptr) return ProcessIdentity();
  auto identity = read_variables(reader, *launcher);
  if (!identity) return identity;
  if (auto status = check_agreement(reader, *launcher, *identity); !status) return status.error();
  return identity;
}

bool has_own_pmix(const EnvironmentReader& environment, const ProcessIdentity& identity) {
  const Reader reader(environment);
  const std::string space = reader.word("PMIX_NAMESPACE");
  if (space.starts_with(space_of_slurm)) return is_pmix_of_step(reader);
  const bool is_task = reader.is_in_step() && (identity.source == slurm.source || identity.source == own.source);
  return !space.empty() && !is_task;
}

}  // namespace amldist::launch
