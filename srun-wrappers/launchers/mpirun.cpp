// aml-mpirun: the mpirun of Open MPI, MPICH, Intel MPI and MVAPICH as one srun line.
#include <algorithm>

#include "launchers/hydra.hpp"
#include "launchers/mpi_flags.hpp"
#include "launchers/node_names.hpp"
#include "shared/shell.hpp"

namespace amldist::launchers::mpirun {
namespace {

using text::concat;

constexpr const char* help =
    R"(Examples:
  aml-mpirun -n 8 ./solver input.dat                  eight processes
  aml-mpirun -n 8 --map-by ppr:4:node --bind-to core ./solver
  aml-mpirun -host node1:2,node2:1 ./solver           these nodes
  aml-mpirun -n 1 ./master : -n 7 ./worker            two programs
  aml-mpirun -ppn 4 -n 8 -genv A 2 ./solver           as for MPICH and Intel MPI
  aml-mpirun -n 8 --dry-run ./solver                  print the srun line

aml-mpirun [FLAG]... PROGRAM [ARGUMENT]... [: [FLAG]... PROGRAM ...]...

mpirun's command line as a step of Slurm: in an allocation in it, else in one
of its own. It is Open MPI's, or that of MPICH, Intel MPI or MVAPICH if a flag
is there that only they have.
  --mpi openmpi|mpich|intel|mvapich   whose command line it is
  -n, -np N                processes
  -N, -npernode N          processes on each node
  -host LIST, --hostfile FILE   these nodes, with so many slots
  --map-by, --rank-by, --bind-to   where processes go and what they are bound to
  -x NAME[=VALUE]          set a variable
  --mca NAME VALUE         a parameter of Open MPI
  --tag-output, --output-filename FOLDER, -wdir FOLDER, --timeout SECONDS
  --slurm=OPTION           an option of srun, as often as needed
  --dry-run                print the line and start nothing
  --list-flags             every flag of mpirun and what becomes of it
                           (with --mpi: those of that MPI)
  --version, --help
)";

/// One of several programs, with its number of processes.
struct Part {
  std::uint32_t processes;
  std::string folder;
  std::vector<std::string> words;
};

/// Words between colons.
std::vector<std::vector<std::string>> split_parts(const std::vector<std::string>& words) {
  std::vector<std::vector<std::string>> parts(1);
  for (const std::string& word : words) {
    if (word == ":") parts.emplace_back();
    else parts.back().push_back(word);
  }
  return parts;
}

/// The words by which each task becomes its program: SLURM_PROCID counts through the parts. Each part's words stay
/// separate words, because Linux limits the length of one.
std::vector<std::string> dispatch(const std::vector<Part>& parts) {
  std::string script;
  std::vector<std::string> words;
  std::uint32_t end = 0;
  for (const Part& part : parts) {
    end += part.processes;
    const std::string folder = part.folder.empty() ? "" : concat({"cd -- ", shell::quote(part.folder), " || exit; "});
    const std::string program = concat(
        {folder, "exec \"${@:", std::to_string(words.size() + 1), ":", std::to_string(part.words.size()), "}\""});
    if (&part == &parts.back()) script += program;
    else script += concat({"if [ \"$SLURM_PROCID\" -lt ", std::to_string(end), " ]; then ", program, "; fi; "});
    words.insert(words.end(), part.words.begin(), part.words.end());
  }
  std::vector<std::string> out = {"bash", "-c", std::move(script), "aml-mpirun"};
  out.insert(out.end(), words.begin(), words.end());
  return out;
}

/// The words before a program that has lost variables (--unset-env).
std::vector<std::string> without_variables(const std::vector<std::string>& unset) {
  std::vector<std::string> words;
  for (const std::string& name : unset) {
    if (words.empty()) words.emplace_back("env");
    words.insert(words.end(), {"-u", name});
  }
  return words;
}

/// As mpirun 5.0.11 does it: -x of the first program applies to all, of a later one to that program alone. Parameters
/// (--mca) apply to all, wherever they are. Returns the words before a later program.
/// Hydra's -env always applies to its program alone.
std::vector<std::string> take_variables(MpiState& whole, const MpiState& part, bool is_first, MpiFamily family) {
  std::vector<std::string> own;
  for (const auto& [name, value] : part.line.environment) {
    const bool is_own =
        (!is_first || family != MpiFamily::open_mpi) && std::ranges::find(part.exported, name) != part.exported.end();
    if (is_own) own.push_back(concat({name, "=", value}));
    else whole.line.set_variable(name, value);
  }
  if (is_first) whole.unset = part.unset;
  std::vector<std::string> lost = whole.unset;
  if (!is_first) lost.insert(lost.end(), part.unset.begin(), part.unset.end());
  const auto unset = without_variables(lost);
  own.insert(own.begin(), unset.begin(), unset.end());
  if (unset.empty() && !own.empty()) own.insert(own.begin(), "env");
  return own;
}

/// How many processes of one program a node may have. As in Open MPI 5, the first program's limit (-N, --ppr) applies
/// to all; that of a later one only determines its number of processes if -n does not, as in 4.1.
std::optional<std::uint32_t> limit_of(const MpiState& whole, const MpiState& part, bool is_first) {
  if (is_first) return part.per_node;
  return part.processes || !part.per_node ? whole.per_node : part.per_node;
}

void merge_line(MpiState& whole, const MpiState& part) {
  whole.line.srun.merge(part.line.srun);
  whole.line.notes.insert(whole.line.notes.end(), part.line.notes.begin(), part.line.notes.end());
  whole.line.folders.insert(whole.line.folders.end(), part.line.folders.begin(), part.line.folders.end());
  whole.slurm.insert(whole.slurm.end(), part.slurm.begin(), part.slurm.end());
  whole.dry_run = whole.dry_run || part.dry_run;
  whole.json = whole.json || part.json;
}

/// The settings in one program's flags that concern the whole step.
Result<void> merge_part(MpiState& whole, MpiState& part, std::vector<std::string>& ranks, bool is_first) {
  if (auto status = choose_hosts(part); !status) return status;
  if (!part.processes && part.hosts.empty()) {
    return Error{Errc::invalid_argument, "with several programs each needs its number of processes: give -n N"};
  }
  if (auto status = check_count(part); !status) return status;
  if (is_first) whole.per_node = part.per_node;
  if (!part.hosts.empty()) {
    if (auto status = limit_hosts(part, limit_of(whole, part, is_first)); !status) return status;
    if (part.line.srun.has("overcommit") || whole.line.srun.has("overcommit")) {
      oversubscribe(part.hosts, part.processes);
    }
    auto dealt = deal_ranks(part.hosts, part.processes, part.distribution);
    if (!dealt) return dealt.error();
    part.processes = static_cast<std::uint32_t>(dealt->size());
    ranks.insert(ranks.end(), dealt->begin(), dealt->end());
  }
  merge_line(whole, part);
  return {};
}

/// A host for each rank, if all programs name hosts.
Result<void> set_hosts(MpiState& whole, const std::vector<std::string>& ranks, std::uint32_t total) {
  whole.line.srun.set("ntasks", std::to_string(total));
  if (ranks.empty()) return {};
  if (ranks.size() != total) {
    return Error{Errc::invalid_argument,
                 "some of the programs name hosts and some do not: name them for all, or for none"};
  }
  const bool on_any_node = std::ranges::all_of(ranks, [](const std::string& host) { return host == any_node; });
  if (on_any_node) {
    whole.line.srun.set("nodes", "1");
    return {};
  }
  std::string list;
  for (const std::string& host : ranks) list += concat({list.empty() ? "" : ",", host});
  whole.line.srun.set("distribution", "arbitrary");
  whole.line.srun.set("nodelist", list);
  return {};
}

/// What one program says of a step of Hydra's: the hosts are those of the step.
Result<void> merge_hydra_part(MpiState& whole, const MpiState& part) {
  if (!part.processes) {
    return Error{Errc::invalid_argument, "with several programs each needs its number of processes: give -n N"};
  }
  if (!part.hosts.empty()) whole.hosts = part.hosts;
  if (part.per_node) whole.per_node = part.per_node;
  merge_line(whole, part);
  return {};
}

template <MpiFamily family>
Result<void> translate_parts(MpiState& state, const Tool<MpiState>& tool, const std::vector<std::string>& program) {
  std::vector<Part> parts;
  std::vector<std::string> ranks;
  MpiState whole;
  MpiState part = std::move(state);  // the first one's flags are read
  std::uint32_t total = 0;
  for (auto& words : split_parts(program)) {
    if (!parts.empty()) {
      part = MpiState();
      auto own = read_into(part, tool.dialect, tool.rows, words);
      if (!own) return own.error();
      words = std::move(*own);
    }
    if (words.empty()) return Error{Errc::invalid_argument, "a program is missing before or after a ':'"};
    auto status =
        family == MpiFamily::open_mpi ? merge_part(whole, part, ranks, parts.empty()) : merge_hydra_part(whole, part);
    if (!status) return status;
    const auto variables = take_variables(whole, part, parts.empty(), family);
    words.insert(words.begin(), variables.begin(), variables.end());
    parts.push_back({*part.processes, part.folder, std::move(words)});
    total += *part.processes;
  }
  if (family != MpiFamily::open_mpi) whole.processes = total;
  auto placed = family == MpiFamily::open_mpi ? set_hosts(whole, ranks, total) : set_hydra_shape(whole, family);
  if (!placed) return placed;
  whole.line.words = dispatch(parts);
  state = std::move(whole);
  return {};
}

/// By what the processes find each other: MPICH, Intel MPI and MVAPICH speak PMI, which Slurm's pmi2 serves.
constexpr std::string_view meeting_of(MpiFamily family) { return family == MpiFamily::open_mpi ? "pmix" : "pmi2"; }

template <MpiFamily family>
Result<void> translate(MpiState& state, const Tool<MpiState>& tool, std::vector<std::string> program,
                       const std::vector<std::string>& /*words*/) {
  if (std::ranges::find(program, ":") != program.end()) {
    if (auto status = translate_parts<family>(state, tool, program); !status) return status.error();
  } else {
    auto taken = family == MpiFamily::mvapich ? take_mvapich_words(state, program) : Result<void>();
    if (!taken) return taken;
    auto status = family == MpiFamily::open_mpi ? set_mpi_shape(state) : set_hydra_shape(state, family);
    if (!status) return status;
    if (!state.folder.empty()) state.line.srun.set("chdir", state.folder);
    state.line.words = without_variables(state.unset);
    state.line.words.insert(state.line.words.end(), program.begin(), program.end());
  }
  state.line.srun.set("mpi", std::string(meeting_of(family)));
  state.line.option = "mpi";
  return {};
}

}  // namespace

int run(int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  const auto family = take_family(words);
  if (!family) return commands::fail({family.error().code, concat({"aml-mpirun: ", family.error().message})});
  if (*family == MpiFamily::open_mpi)
    return run_tool(Tool<MpiState>{mpi_dialect, help, mpi_rows(), nullptr, translate<MpiFamily::open_mpi>}, words);
  const auto translation = *family == MpiFamily::intel     ? translate<MpiFamily::intel>
                           : *family == MpiFamily::mvapich ? translate<MpiFamily::mvapich>
                                                           : translate<MpiFamily::mpich>;
  return run_tool(Tool<MpiState>{hydra_dialect, help, hydra_rows(*family), nullptr, translation},
                  plain_hydra_words(words));
}

}  // namespace amldist::launchers::mpirun
