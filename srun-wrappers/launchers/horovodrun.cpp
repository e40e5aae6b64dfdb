// aml-horovodrun: horovodrun's command line as one srun line, over MPI.
#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "launchers/hosts.hpp"
#include "launchers/launcher.hpp"
#include "launchers/mpi_flags.hpp"
#include "shared/shell.hpp"

namespace amldist::launchers::horovodrun {
namespace {

using text::concat;
using text::quote;

constexpr const char* help =
    R"(Examples:
  aml-horovodrun -np 8 python train.py                   eight processes
  aml-horovodrun -np 8 -H node1:4,node2:4 python train.py
  aml-horovodrun -np 8 --fusion-threshold-mb 64 python train.py
  aml-horovodrun -np 8 --dry-run python train.py         print the srun line

aml-horovodrun [FLAG]... COMMAND [ARGUMENT]...

horovodrun's command line as a step of Slurm, over MPI: in an allocation in it,
else in one of its own.
  -np N                    processes
  -H LIST, --hostfile FILE these nodes, with so many slots
  --fusion-threshold-mb, --cycle-time-ms, ...   HOROVOD_* variables
  --network-interfaces LIST, --tcp   which network
  --mpi-args ARGS          flags of mpirun, translated as aml-mpirun does
  --check-build            the real horovodrun is started
  --slurm=OPTION           an option of srun, as often as needed
  --dry-run                print the line and start nothing
  --list-flags             every flag of horovodrun and what becomes of it
  --version, --help
)";

struct State : Base {
  std::optional<std::uint32_t> processes;
  std::vector<Host> hosts;
  std::string interfaces;
  std::string mpi_args;
  std::vector<std::pair<std::string, std::string>> settings;  ///< HOROVOD_* of the flags
  bool check_build = false;
};

using Done = Result<void>;
using F = FlagHandling;

Done set_processes(State& state, const GivenFlag& given) {
  const auto number = number_of(given, 1, 1U << 20U);
  if (!number) return number.error();
  state.processes = *number;
  return {};
}

/// An empty list or file counts as not given, as with horovodrun.
Done add_hosts(State& state, const GivenFlag& given) {
  if (given.value().empty()) return {};
  auto hosts = parse_host_list(given.value(), std::nullopt);
  if (!hosts) return hosts.error();
  for (const Host& host : *hosts) {
    if (!host.slots) {
      return Error{Errc::invalid_argument,
                   concat({given.name, ": ", quote(host.name), " has no number of slots: write ", host.name, ":N"})};
    }
  }
  state.hosts = std::move(*hosts);
  return {};
}

Done add_hostfile(State& state, const GivenFlag& given) {
  if (given.value().empty()) return {};
  auto hosts = read_hostfile(given.value(), Again::adds_slots);
  if (!hosts) return hosts.error();
  state.hosts = std::move(*hosts);
  return {};
}

Done add_interface(State& state, const GivenFlag& given) {
  for (const std::string_view name : text::split(given.value(), ',')) {
    const auto known = text::split(state.interfaces, ',');
    if (name.empty() || std::ranges::find(known, name) != known.end()) continue;  // "$IF" that is empty names none
    state.interfaces += concat({state.interfaces.empty() ? "" : ",", name});
  }
  return {};
}

Done set_output(State& state, const GivenFlag& given) {
  state.line.folders.push_back(given.value());
  state.line.srun.set("output", concat({given.value(), "/rank.%t.stdout"}));
  state.line.srun.set("error", concat({given.value(), "/rank.%t.stderr"}));
  return {};
}

/// Horovod's settings: flag, variable, its value for a flag without one, the type of the others, and the flags that
/// exclude each other.
struct Setting {
  std::string_view flag;
  std::string_view variable;
  std::string_view value = {};
  std::string_view type = {};
  std::string_view group = {};
};

constexpr std::array settings = {
    Setting{"--cycle-time-ms", "HOROVOD_CYCLE_TIME", {}, "float+"},
    Setting{"--cache-capacity", "HOROVOD_CACHE_CAPACITY", {}, "int+"},
    Setting{"--hierarchical-allreduce", "HOROVOD_HIERARCHICAL_ALLREDUCE", "1", {}, "allreduce"},
    Setting{"--no-hierarchical-allreduce", "HOROVOD_HIERARCHICAL_ALLREDUCE", "0", {}, "allreduce"},
    Setting{"--hierarchical-allgather", "HOROVOD_HIERARCHICAL_ALLGATHER", "1", {}, "allgather"},
    Setting{"--no-hierarchical-allgather", "HOROVOD_HIERARCHICAL_ALLGATHER", "0", {}, "allgather"},
    Setting{"--torus-allreduce", "HOROVOD_TORUS_ALLREDUCE", "1", {}, "torus"},
    Setting{"--no-torus-allreduce", "HOROVOD_TORUS_ALLREDUCE", "0", {}, "torus"},
    Setting{"--autotune", "HOROVOD_AUTOTUNE", "1", {}, "autotune"},
    Setting{"--no-autotune", "HOROVOD_AUTOTUNE", "0", {}, "autotune"},
    Setting{"--autotune-log-file", "HOROVOD_AUTOTUNE_LOG"},
    Setting{"--autotune-warmup-samples", "HOROVOD_AUTOTUNE_WARMUP_SAMPLES", {}, "int+"},
    Setting{"--autotune-steps-per-sample", "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", {}, "int+"},
    Setting{"--autotune-bayes-opt-max-samples", "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", {}, "int+"},
    Setting{"--autotune-gaussian-process-noise", "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", {}, "share"},
    Setting{"--timeline-filename", "HOROVOD_TIMELINE"},
    Setting{"--timeline-mark-cycles", "HOROVOD_TIMELINE_MARK_CYCLES", "1", {}, "cycles"},
    Setting{"--no-timeline-mark-cycles", "HOROVOD_TIMELINE_MARK_CYCLES", "0", {}, "cycles"},
    Setting{"--no-stall-check", "HOROVOD_STALL_CHECK_DISABLE", "1", {}, "stall"},
    Setting{"--stall-check", "HOROVOD_STALL_CHECK_DISABLE", "0", {}, "stall"},
    Setting{"--stall-check-warning-time-seconds", "HOROVOD_STALL_CHECK_TIME_SECONDS", {}, "int+"},
    Setting{"--stall-check-shutdown-time-seconds", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", {}, "int+"},
    Setting{"--mpi-threads-disable", "HOROVOD_MPI_THREADS_DISABLE", "1", {}, "threads"},
    Setting{"--no-mpi-threads-disable", "HOROVOD_MPI_THREADS_DISABLE", "0", {}, "threads"},
    Setting{"--num-nccl-streams", "HOROVOD_NUM_NCCL_STREAMS", {}, "int+"},
    Setting{"--thread-affinity", "HOROVOD_THREAD_AFFINITY", {}, "int+"},
    Setting{"--gloo-timeout-seconds", "HOROVOD_GLOO_TIMEOUT_SECONDS", {}, "int+"},
    Setting{"--log-level", "HOROVOD_LOG_LEVEL", {}, "TRACE|DEBUG|INFO|WARNING|ERROR|FATAL"},
    Setting{"--log-with-timestamp", "HOROVOD_LOG_HIDE_TIME", "0", {}, "timestamp"},
    Setting{"--log-without-timestamp", "HOROVOD_LOG_HIDE_TIME", "1", {}, "timestamp"},
    Setting{"--log-hide-timestamp", "HOROVOD_LOG_HIDE_TIME", "1", {}, "timestamp"},
    Setting{"--no-log-hide-timestamp", "HOROVOD_LOG_HIDE_TIME", "0", {}, "timestamp"},
};

/// As in horovodrun, settings for tuning and the timeline count only with --autotune and --timeline-filename.
void add_settings(const State& state, StepLine& line) {
  const auto given = [&](std::string_view name) {
    const auto found = std::ranges::find(state.settings, name, &std::pair<std::string, std::string>::first);
    return found == state.settings.end() ? std::string() : found->second;
  };
  const bool tunes = given("HOROVOD_AUTOTUNE") == "1";
  const bool draws = !given("HOROVOD_TIMELINE").empty();
  for (const auto& [name, value] : state.settings) {
    if (name.starts_with("HOROVOD_AUTOTUNE") && !tunes) continue;
    if (name.starts_with("HOROVOD_TIMELINE") && !draws) continue;
    line.set_variable(name, value);
  }
}

Done set_horovod(State& state, const GivenFlag& given) {
  const auto* const setting = std::ranges::find(settings, given.name, &Setting::flag);
  const bool has_value = !given.values.empty();
  std::string value = has_value ? given.value() : std::string(setting->value);
  const auto same = std::ranges::find(state.settings, setting->variable, &std::pair<std::string, std::string>::first);
  if (same != state.settings.end()) same->second = std::move(value);
  else state.settings.emplace_back(setting->variable, std::move(value));
  return {};
}

/// Megabytes on the command line, bytes in the variable.
Done set_fusion(State& state, const GivenFlag& given) {
  const auto megabytes = number_of(given, 0, 1U << 20U);
  if (!megabytes) return megabytes.error();
  state.line.set_variable("HOROVOD_FUSION_THRESHOLD", std::to_string(std::uint64_t{*megabytes} * 1024 * 1024));
  return {};
}

Done set_tcp(State& state, const GivenFlag& /*given*/) {
  state.line.set_variable("OMPI_MCA_pml", "ob1");
  state.line.set_variable("OMPI_MCA_btl", "^openib");
  state.line.set_variable("NCCL_IB_DISABLE", "1");
  return {};
}

Done add_mpi_args(State& state, const GivenFlag& given) {
  state.mpi_args += concat({" ", given.value()});
  return {};
}

std::vector<Row<State>> setting_rows() {
  std::vector<Row<State>> out;
  out.reserve(settings.size());
  for (const Setting& setting : settings) {
    out.push_back(
        {{setting.flag, setting.value.empty() ? 1U : 0U, F::translated, setting.variable, setting.type, setting.group},
         set_horovod});
  }
  return out;
}

std::vector<Row<State>> rows() {
  constexpr std::string_view no_ssh = "Slurm starts the processes, without ssh";
  constexpr std::string_view fixed = "a job keeps the nodes that it starts with: elastic training is not possible";
  std::vector<Row<State>> out = {
      {{"--num-proc -np", 1, F::translated, "--ntasks=N", "int"}, set_processes},
      {{"-H --hosts", 1, F::translated, "--nodelist and the tasks on each node", {}, "hosts"}, add_hosts},
      {{"-hostfile --hostfile", 1, F::translated, "--nodelist and the tasks on each node", {}, "hosts"}, add_hostfile},
      {{"--network-interfaces", 1, F::translated, "OMPI_MCA_btl_tcp_if_include and NCCL_SOCKET_IFNAME", {}, {}, true},
       add_interface},
      {{"--network-interface", 1, F::translated, "as --network-interfaces", {}, {}, true}, add_interface},
      {{"--output-filename", 1, F::translated, "--output and --error in that folder, a file for each rank"},
       set_output},
      {{"--fusion-threshold-mb", 1, F::translated, "HOROVOD_FUSION_THRESHOLD, in bytes", "int+"}, set_fusion},
      {{"--mpi-args", 1, F::translated, "flags of mpirun: as aml-mpirun translates them"}, add_mpi_args},
      {{"--binding-args", 1, F::translated, "flags of mpirun: as aml-mpirun translates them"}, add_mpi_args},
      {{"--tcp", 0, F::translated, "OMPI_MCA_pml=ob1, OMPI_MCA_btl=^openib, NCCL_IB_DISABLE=1"}, set_tcp},
      {{"-cb --check-build", 0, F::handed_on, "the real horovodrun is started instead"}, mark<&State::check_build>},
      {{"--start-timeout", 1, F::ignored,
        "Slurm starts all processes of a step or none; --slurm=--immediate=60 gives up when the "
        "nodes are not free within 60 s",
        "int"}},
      ignored("--disable-cache", 0, "nothing is checked over ssh, so nothing is cached"),
      ignored("--verbose", 0, "--slurm=--verbose shows srun's own steps"),
      {{"-p --ssh-port", 1, F::ignored, no_ssh, "int"}},
      ignored("-i --ssh-identity-file", 1, no_ssh),
      {{"-prefix-timestamp --prefix-output-with-timestamp",
        0,
        F::ignored,
        "srun does not write the time",
        {},
        "timestamp"}},
      {{"--mpi", 0, F::ignored, "MPI is always used here", {}, "controller"}},
      refused("--gloo", 0, "Horovod's Gloo needs horovodrun's own server: leave it out, and MPI is used"),
      refused("--jsrun", 0, "this is a cluster of Slurm"),
      refused("--config-file", 1, "write its contents as flags"),
      refused("--min-num-proc --min-np", 1, fixed),
      refused("--max-num-proc --max-np", 1, fixed),
      refused("--slots-per-host", 1, fixed),
      refused("--elastic-timeout", 1, fixed),
      refused("--reset-limit", 1, fixed),
      refused("--blacklist-cooldown-range", 2, fixed),
      refused("--host-discovery-script", 1, fixed),
      {{"-h --help", 0, F::translated, "examples and the flags that matter"}, mark<&State::help>},
      {{"-v --version", 0, F::translated, "the release of aml-dist"}, mark<&State::version>},
  };
  return join_rows({out, setting_rows(), own_rows<State>()});
}

/// --mpi-args: the same table as aml-mpirun's.
Done use_mpi_args(State& state) {
  const auto words = shell::split_words(state.mpi_args);
  if (!words) return words.error();
  MpiState mpi;
  const auto rest = read_into(mpi, mpi_dialect, mpi_rows(), *words);
  if (!rest) return rest.error();
  if (!rest->empty())
    return Error{Errc::invalid_argument, concat({quote(rest->front()), " in --mpi-args is not a flag"})};
  state.line.srun.merge(mpi.line.srun);
  for (auto& [name, value] : mpi.line.environment) state.line.set_variable(name, value);
  state.line.notes.insert(state.line.notes.end(), mpi.line.notes.begin(), mpi.line.notes.end());
  if (mpi.per_node) state.line.srun.set("ntasks-per-node", std::to_string(*mpi.per_node));
  if (mpi.distribution_chosen)
    state.line.srun.set("distribution", mpi.distribution == Distribution::by_node ? "cyclic" : "block");
  return {};
}

Done translate(State& state, const Tool<State>& /*tool*/, std::vector<std::string> program,
               const std::vector<std::string>& /*words*/) {
  StepLine& line = state.line;
  if (!state.processes) return Error{Errc::invalid_argument, "the number of processes is missing: give -np N"};
  if (state.hosts.empty()) line.srun.set("ntasks", std::to_string(*state.processes));
  else if (auto status = place(state.hosts, state.processes, Distribution::by_slot, line.srun); !status)
    return status.error();
  add_settings(state, line);
  if (auto status = use_mpi_args(state); !status) return status.error();
  if (!state.interfaces.empty()) {
    line.set_variable("OMPI_MCA_btl_tcp_if_include", state.interfaces);
    line.set_variable("NCCL_SOCKET_IFNAME", state.interfaces);
  }
  line.srun.set("mpi", "pmix");
  line.option = "mpi";
  line.binds_nothing = true;  // it gives mpirun "-bind-to none"
  line.words = std::move(program);
  return {};
}

}  // namespace

int run(int argc, char** argv) {
  constexpr Dialect dialect{.tool = "horovodrun", .argparse = true};
  const std::vector<Flag> flags = flags_of(rows());
  const auto reading = read_flags(dialect, flags, {argv + 1, argv + argc});
  const auto is_check = [&](const GivenFlag& given) { return has_name(flags[given.flag], "--check-build"); };
  if (reading && std::ranges::any_of(reading->flags, is_check)) {
    StepLine real;
    real.instead = {"horovodrun", "--check-build"};
    return start(real);
  }
  return run_tool(Tool<State>{dialect, help, rows(), nullptr, translate}, argc, argv);
}

}  // namespace amldist::launchers::horovodrun
