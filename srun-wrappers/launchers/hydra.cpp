#include "launchers/hydra.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "base/os/environment.hpp"
#include "base/text/natural_order.hpp"
#include "launchers/node_names.hpp"

namespace amldist::launchers {
namespace hydra {
namespace {

using text::concat;
using Done = Result<void>;
using F = FlagHandling;

Error given_twice(const GivenFlag& given) { return invalid_value(given, "it is given a second time: keep one"); }

Done set_processes(MpiState& state, const GivenFlag& given) {
  const auto number = number_of(given, 1, 1U << 20U);
  if (!number) return number.error();
  if (state.processes) return given_twice(given);
  state.processes = *number;
  return {};
}

Done set_per_node(MpiState& state, const GivenFlag& given) {
  const auto number = number_of(given, 1, 65536);
  if (!number) return number.error();
  if (state.per_node) return given_twice(given);
  state.per_node = *number;
  return {};
}

template <Repeats repeats>
Done add_host_list(MpiState& state, const GivenFlag& given) {
  auto hosts = parse_host_list(given.value(), 1, repeats);
  if (!hosts) return hosts.error();
  if (!state.hosts.empty()) return given_twice(given);
  state.hosts = std::move(*hosts);
  return {};
}

Done add_host_file(MpiState& state, const GivenFlag& given) {
  auto hosts = read_machine_file(given.value());
  if (!hosts) return hosts.error();
  if (!state.hosts.empty()) return given_twice(given);
  state.hosts = std::move(*hosts);
  return {};
}

/// Intel MPI reads only the names of -f and -hosts; the numbers are those of -machinefile.
template <Done (*add)(MpiState&, const GivenFlag&)>
Done add_names(MpiState& state, const GivenFlag& given) {
  if (auto status = add(state, given); !status) return status;
  for (Host& host : state.hosts) host.slots.reset();
  return {};
}

Done set_for_all(MpiState& state, const GivenFlag& given) {
  state.line.set_variable(given.values[0], given.values[1]);
  return {};
}

Done set_for_program(MpiState& state, const GivenFlag& given) {
  state.line.set_variable(given.values[0], given.values[1]);
  state.exported.push_back(given.values[0]);
  return {};
}

Done unset_list(MpiState& state, const GivenFlag& given) {
  for (const std::string_view name : text::split(given.value(), ',')) {
    if (name.empty() || name.find('=') != std::string_view::npos)
      return invalid_value(given, "write names of variables, separated by commas");
    state.unset.emplace_back(name);
  }
  return {};
}

/// A process manager's binding: "core", "socket:2", "none".
Done set_binding(MpiState& state, const GivenFlag& given) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 7> units = {{{"none", "none"},
                                                                                   {"core", "cores"},
                                                                                   {"hwthread", "threads"},
                                                                                   {"socket", "sockets"},
                                                                                   {"numa", "ldoms"},
                                                                                   {"board", "none"},
                                                                                   {"machine", "none"}}};
  const auto parts = text::split(given.value(), ':');
  const auto* const found = std::ranges::find(units, parts.front(), [](const auto& each) { return each.first; });
  if (found == units.end()) return invalid_value(given, "use none, core, hwthread, socket or numa");
  if (parts.size() > 1) {
    const auto number = text::to_number(parts[1], 65536);
    if (!number || *number == 0 || parts.size() > 2 || (parts[0] != "core" && parts[0] != "hwthread"))
      return invalid_value(given, "only core and hwthread take a number: core:N");
    state.line.srun.set("cpus-per-task", std::to_string(*number));
  }
  state.line.srun.set("cpu-bind", std::string(found->second));
  return {};
}

Done set_mapping(MpiState& state, const GivenFlag& given) {
  const std::string_view unit = text::split(given.value(), ':').front();
  if (unit == "socket" || unit == "numa") state.line.srun.set("distribution", "*:cyclic");
  else if (unit == "core" || unit == "hwthread") state.line.srun.set("distribution", "*:block");
  else return invalid_value(given, "use core, hwthread, socket or numa: -ppn says how many a host has");
  return {};
}

/// "%r" is the rank, "%h" the host, "%p" the node; the rest of Hydra's patterns has no counterpart.
template <const std::string_view& option>
Done set_file_pattern(MpiState& state, const GivenFlag& given) {
  std::string out;
  const std::string& pattern = given.value();
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '%') {
      out += pattern[i];
      continue;
    }
    const char letter = i + 1 < pattern.size() ? pattern[++i] : '\0';
    if (letter == 'r') out += "%t";
    else if (letter == 'h') out += "%N";
    else if (letter == 'p') out += "%n";
    else return invalid_value(given, "use %r (rank), %h (host) and %p (node)");
  }
  if (const auto slash = out.rfind('/'); slash != std::string::npos && slash > 0) {
    if (const std::string folder = out.substr(0, slash); folder.find('%') == std::string::npos)
      state.line.folders.push_back(folder);
  }
  state.line.srun.set(option, out);
  return {};
}
constexpr std::string_view output = "output";
constexpr std::string_view error = "error";

Done set_input(MpiState& state, const GivenFlag& given) {
  if (given.value() != "all" && !text::to_number(given.value(), 1U << 30U))
    return invalid_value(given, "use all, or one rank");
  state.line.srun.set("input", given.value());
  return {};
}

Done set_gpus(MpiState& state, const GivenFlag& given) {
  if (given.value() == "auto") return {};
  const auto number = number_of(given, 0, 1024);
  if (!number) return number.error();
  state.line.srun.set("gpus-per-task", std::to_string(*number));
  return {};
}

Done set_depth(MpiState& state, const GivenFlag& given) {
  const auto number = number_of(given, 1, 65536);
  if (!number) return number.error();
  state.line.srun.set("cpus-per-task", std::to_string(*number));
  return {};
}

/// Of HPE's mpiexec: "depth", "verbose,core".
Done set_cpu_bind(MpiState& state, const GivenFlag& given) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 6> units = {{{"none", "none"},
                                                                                          {"core", "cores"},
                                                                                          {"thread", "threads"},
                                                                                          {"socket", "sockets"},
                                                                                          {"numa", "ldoms"},
                                                                                          {"depth", ""}}};
  std::string_view unit = given.value();
  const bool verbose = unit.starts_with("verbose");
  if (verbose) unit.remove_prefix(std::min(unit.find(',') + 1, unit.size()));
  const auto* const found = std::ranges::find(units, unit, [](const auto& each) { return each.first; });
  if (found == units.end())
    return invalid_value(given,
                         "use depth, core, thread, socket, numa or none; for a list --slurm=--cpu-bind=map_cpu:LIST");
  const std::string value =
      concat({verbose ? "verbose" : "", verbose && !found->second.empty() ? "," : "", found->second});
  if (!value.empty()) state.line.srun.set("cpu-bind", value);
  return {};
}

Done set_pmi(MpiState& state, const GivenFlag& given) {
  if (given.value() == "pmix" || given.value() == "pmi2") state.slurm.push_back(concat({"--mpi=", given.value()}));
  return {};
}

constexpr std::string_view no_hydra = "there are no daemons of Hydra: Slurm starts the processes";
constexpr std::string_view see_explain = "aml-dist explain shows the layout";
constexpr std::string_view all_passes = "srun passes on the whole environment";
constexpr std::string_view in_front = "start the tool in the program's place: aml-mpirun -n 4 TOOL PROGRAM";
constexpr std::string_view nodes_tasks = "--nodelist and the tasks on each node";
constexpr std::string_view names_only = "--nodelist; Intel MPI does not read the numbers there, -ppn says them";

std::vector<Row<MpiState>> both_rows() {
  return {
      {{"-np -n", 1, F::translated, "--ntasks=N"}, set_processes},
      {{"-ppn", 1, F::translated, "so many on each host in turn"}, set_per_node},
      {{"-machine -machines -machinelist -machinefile", 1, F::translated, nodes_tasks}, add_host_file},
      {{"-genv", 2, F::translated, "the variable is set for srun"}, set_for_all},
      {{"-env", 2, F::translated, "the variable is set for that program alone"}, set_for_program},
      ignored("-genvall", 0, all_passes),
      ignored("-envall", 0, all_passes),
      ignored("-genvlist", 1, all_passes),
      ignored("-envlist", 1, all_passes),
      refused("-genvnone", 0, "srun passes on the whole environment: use --slurm=--export=NONE"),
      refused("-envnone", 0, "srun passes on the whole environment: use --slurm=--export=NONE"),
      {{"-wdir", 1, F::translated, "--chdir"}, keep<&MpiState::folder>},
      refused("-configfile", 1, "write the programs on the command line, with : between them"),
      {{"-prepend-rank -l", 0, F::translated, "--label"},
       [](MpiState& state, const GivenFlag&) { return state.line.srun.set("label"), Done(); }},
      refused("-prepend-pattern", 1, "srun labels lines with the rank only: use -l"),
      {{"-outfile -outfile-pattern", 1, F::translated, "--output=PATTERN"}, set_file_pattern<output>},
      {{"-errfile -errfile-pattern", 1, F::translated, "--error=PATTERN"}, set_file_pattern<error>},
      {{"-binding -bind-to", 1, F::translated, "--cpu-bind=none, cores, threads, sockets or ldoms"}, set_binding},
      {{"-map-by", 1, F::translated, "core: --distribution=*:block; socket, numa: *:cyclic"}, set_mapping},
      refused("-membind", 1, "use --slurm=--mem-bind=local"),
      ignored("-iface", 1, "it is for Hydra's connections; for those of MPI set FI_TCP_IFACE or UCX_NET_DEVICES"),
      ignored("-launcher -bootstrap", 1, no_hydra),
      ignored("-launcher-exec -bootstrap-exec", 1, no_hydra),
      ignored("-rmk", 1, no_hydra),
      ignored("-demux", 1, no_hydra),
      ignored("-localhost", 1, no_hydra),
      ignored("-enable-x -disable-x", 0, no_hydra),
      ignored("-usize", 1, "the universe is the step"),
      refused("-nameserver", 1, "names are published within a step only"),
      ignored("-verbose -v", 0, "--slurm=--verbose shows srun's own steps"),
      ignored("-info", 0, see_explain),
      ignored("-print-all-exitcodes", 0, "srun names the tasks that failed"),
      ignored("-profile", 0, no_hydra),
      ignored("-enable-auto-cleanup", 0, "it is what is done here: --kill-on-bad-exit=1"),
      {{"-disable-auto-cleanup", 0, F::translated, "--kill-on-bad-exit=0"},
       [](MpiState& state, const GivenFlag&) { return state.slurm.emplace_back("--kill-on-bad-exit=0"), Done(); }},
      ignored("-enable-hostname-propagation -disable-hostname-propagation", 0, no_hydra),
      {{"-help --help", 0, F::translated, "examples and the flags that matter"}, mark<&Base::help>},
      {{"-V -version --version", 0, F::translated, "the release of aml-dist"}, mark<&Base::version>},
  };
}

std::vector<Row<MpiState>> mpich_rows() {
  return {
      {{"-host -hostlist -hosts", 1, F::translated, nodes_tasks}, add_host_list<Repeats::neighbours>},
      {{"-hostfile -f", 1, F::translated, nodes_tasks}, add_host_file},
      {{"-gpus-per-proc", 1, F::translated, "--gpus-per-task=N"}, set_gpus},
      refused("-rankmap", 1,
              "write the hosts, one for each rank, into SLURM_HOSTFILE=FILE, with "
              "--slurm=--distribution=arbitrary"),
      refused("-order-nodes", 1, "write the hosts in the order that you want"),
      refused("-skip-launch-node", 0, "use --slurm=--exclude=NODE: the login machine is not one of the job's nodes"),
      refused("-output-from", 1, "use --slurm=--output with %t"),
      ignored("-topolib", 1, no_hydra),
      ignored("-pmi-port", 0, no_hydra),
      ignored("-hybrid-hosts", 0, no_hydra),
      ignored("-debug", 0, no_hydra),
      ignored("-memory-alloc-kinds", 1, "MPICH's own default holds when Slurm starts the processes"),
      // HPE's mpiexec (PALS) has these beside Hydra's.
      {{"-depth", 1, F::translated, "--cpus-per-task=N"}, set_depth},
      {{"-cpu-bind", 1, F::translated, "--cpu-bind=cores, threads, sockets, ldoms or none; depth: Slurm's own"},
       set_cpu_bind},
      {{"-pmi", 1, F::translated, "--mpi=pmix or pmi2"}, set_pmi},
      {{"-label", 0, F::translated, "--label"},
       [](MpiState& state, const GivenFlag&) { return state.line.srun.set("label"), Done(); }},
      ignored("-line-buffer", 0, "srun writes whole lines"),
      ignored("-no-vni", 0, "Slurm's switch plugin does that"),
  };
}

/// MVAPICH has Hydra and mpirun_rsh, whose flags these are.
std::vector<Row<MpiState>> mvapich_rows() {
  return {
      {{"-rsh -ssh", 0, F::translated, "Slurm starts the processes; -np N is followed by N hosts, if there is no file"},
       mark<&MpiState::names_hosts>},
      {{"-show", 0, F::translated, "prints the line instead of starting it"}, mark<&MpiState::dry_run>},
      ignored("-export -export-all", 0, all_passes),
      ignored("-legacy -fastssh", 0, no_hydra),
      refused("-config", 1, "write the programs on the command line, with : between them and --mpi mpich"),
      refused("-paramfile", 1, "write the variables on the command line: NAME=VALUE"),
      refused("-tv -xterm", 0, in_front),
  };
}

std::vector<Row<MpiState>> intel_rows() {
  return {
      {{"-host -hostlist -hosts", 1, F::translated, names_only}, add_names<add_host_list<Repeats::turns>>},
      {{"-hostfile -f", 1, F::translated, names_only}, add_names<add_host_file>},
      {{"-grr -perhost", 1, F::translated, "as -ppn"}, set_per_node},
      {{"-rr", 0, F::translated, "as -ppn 1"},
       [](MpiState& state, const GivenFlag&) { return state.per_node = 1, Done(); }},
      refused("-hosts-group", 1, "write the names with -hosts"),
      {{"-genvexcl", 1, F::translated, "env -u NAME in front of the program"}, unset_list},
      {{"-envexcl", 1, F::translated, "env -u NAME in front of the program"}, unset_list},
      {{"-s", 1, F::translated, "--input=RANK or all"}, set_input},
      {{"-tune", 1, F::translated, "I_MPI_TUNING_BIN=FILE"},
       [](MpiState& state, const GivenFlag& given) {
         return state.line.set_variable("I_MPI_TUNING_BIN", given.value()), Done();
       }},
      refused("-nolocal", 0, "use --slurm=--exclude=NODE: the login machine is not one of the job's nodes"),
      refused("-path", 1, "set PATH: srun passes it on"),
      refused("-gpath", 1, "set PATH: srun passes it on"),
      refused("-gdb -gdba -gdb-ia", 0, in_front),
      refused("-gdb-args", 1, in_front),
      refused("-gtool", 1, in_front),
      refused("-gtoolfile", 1, in_front),
      refused("-aps -mps", 0, in_front),
      refused("-trace -check_mpi", 0, "preload the library with -genv LD_PRELOAD LIBRARY"),
      refused("-cpu-bind", 1, "use --slurm=--cpu-bind=..., or -genv I_MPI_PIN_PROCESSOR_LIST LIST"),
      ignored("-print-rank-map", 0, see_explain),
      ignored("-prepend-timestamp", 0, "srun does not write the time"),
      ignored("-ordered-output", 0, "srun writes whole lines"),
      ignored("-silent-abort", 0, no_hydra),
      ignored("-prot", 0, "set -genv I_MPI_DEBUG 5"),
      ignored("-tmpdir", 1, "processes find TMPDIR in the environment"),
      ignored("-cleanup -noconf -prefork", 0, no_hydra),
      ignored("-pmi-connect -pmi-aggregate -pmi-noaggregate", 0, no_hydra),
      ignored("-branch-count", 1, no_hydra),
      ignored("-bootstrap-exec-args", 1, no_hydra),
  };
}

/// Ranks dealt round and round: to each host its slots in turn, until all have a place.
std::vector<std::string> deal_in_turns(const std::vector<Host>& hosts, std::uint32_t processes) {
  std::vector<std::string> ranks;
  ranks.reserve(processes);
  while (ranks.size() < processes) {
    for (const Host& host : hosts) {
      const std::size_t room = std::min<std::size_t>(host.slots.value_or(1), processes - ranks.size());
      ranks.insert(ranks.end(), room, host.name);
    }
  }
  return ranks;
}

/// Hosts whose slots do not hold all processes at once, or that have several turns: named for each rank, since Slurm's
/// plane distribution evens the nodes out.
void place_in_turns(const std::vector<Host>& hosts, std::uint32_t processes, commands::SlurmOptions& srun) {
  srun.set("ntasks", std::to_string(processes));
  srun.set("distribution", "arbitrary");
  std::string list;
  for (const std::string& name : deal_in_turns(hosts, processes)) list += concat({list.empty() ? "" : ",", name});
  srun.set("nodelist", list);
}

bool has_turns(const std::vector<Host>& hosts) {
  std::vector<std::string_view> names;
  names.reserve(hosts.size());
  for (const Host& host : hosts) names.emplace_back(host.name);
  std::ranges::sort(names);
  return std::ranges::adjacent_find(names) != names.end();
}

/// The slots of each host: -ppn's, except over those of Intel's machine file; else those that the hosts were given.
Done set_slots(MpiState& state, MpiFamily family) {
  const bool counted = std::ranges::all_of(state.hosts, [](const Host& host) { return host.slots.has_value(); });
  const bool intel = family == MpiFamily::intel;
  if (state.per_node && !(intel && counted)) {
    for (Host& host : state.hosts) host.slots = *state.per_node;
  } else if (intel && !counted) {
    if (state.hosts.size() > 1 || !state.processes) {
      return Error{Errc::invalid_argument,
                   "Intel MPI would give each host as many processes as it has cores, which Slurm knows only later: "
                   "say how many with -ppn N"};
    }
    state.hosts.front().slots = *state.processes;
  }
  if (state.hosts.size() == 1 && state.processes) state.hosts.front().slots = *state.processes;  // all turns are its
  return {};
}

Done place_on_hosts(MpiState& state, MpiFamily family) {
  if (auto status = set_slots(state, family); !status) return status;
  std::uint64_t slots = 0;
  for (const Host& host : state.hosts) slots += host.slots.value_or(1);
  const bool turns = has_turns(state.hosts);
  if (!turns && state.processes.value_or(0) <= slots)
    return place(state.hosts, state.processes, Distribution::by_slot, state.line.srun);
  if (slots > 1U << 20U) return Error{Errc::limit, "the hosts have more than 1048576 slots: name fewer"};
  place_in_turns(state.hosts, state.processes.value_or(static_cast<std::uint32_t>(slots)), state.line.srun);
  return {};
}

}  // namespace
}  // namespace hydra

using namespace hydra;

std::vector<Row<MpiState>> hydra_rows(MpiFamily family) {
  auto rows = join_rows({both_rows(), family == MpiFamily::intel ? intel_rows() : mpich_rows()});
  if (family == MpiFamily::mvapich) rows = join_rows({rows, mvapich_rows()});
  return join_rows({rows, own_rows<MpiState>()});
}

Result<void> take_mvapich_words(MpiState& state, std::vector<std::string>& program) {
  // Without -rsh and -ssh, hosts are known by the variables behind them.
  const std::size_t place = state.processes.value_or(0);
  const bool before_variables =
      place < program.size() && !is_assignment(program.front()) && is_assignment(program[place]);
  if ((state.names_hosts || before_variables) && state.hosts.empty() && state.processes) {
    const std::size_t count = std::min<std::size_t>(*state.processes, program.size());
    std::string list;
    for (std::size_t i = 0; i < count; ++i) list += concat({list.empty() ? "" : ",", program[i]});
    auto hosts = parse_host_list(list, 1, Repeats::neighbours);
    if (!hosts) return hosts.error();
    state.hosts = std::move(*hosts);
    program.erase(program.begin(), program.begin() + static_cast<std::ptrdiff_t>(count));
  }
  while (!program.empty() && is_assignment(program.front())) {
    const auto equals = program.front().find('=');
    state.line.set_variable(program.front().substr(0, equals), program.front().substr(equals + 1));
    program.erase(program.begin());
  }
  if (program.empty()) return Error{Errc::invalid_argument, "there is no program to start (see --help)"};
  return {};
}

Result<void> set_hydra_shape(MpiState& state, MpiFamily family) {
  if (state.hosts.empty() && state.per_node) {
    for (std::string& node : allocated_nodes()) state.hosts.push_back({std::move(node), *state.per_node});
  }
  if (!state.hosts.empty()) return place_on_hosts(state, family);
  if (state.per_node) return place_per_node(state, "-hosts");
  if (state.processes) state.line.srun.set("ntasks", std::to_string(*state.processes));
  else if (!own_variable("SLURM_JOB_ID"))
    return Error{Errc::invalid_argument, "the number of processes is missing: give -n N"};
  return {};
}

}  // namespace amldist::launchers
