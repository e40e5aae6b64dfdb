// aml-horovodrun: horovodrun's command line as one srun line, over MPI.
#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "launchers/hosts.hpp"
#include "launchers/launcher.hpp"
#include "launchers/mpi_flags.hpp"
#include "shared/shell.hpp"

namespace {

using namespace amldist;
using namespace amldist::launchers;
using text::concat;
using text::quote;

constexpr const char* help =
    R"(Examples:
  aml-horovodrun -np 8 python train.py                   eight processes
  aml-horovodrun -np 8 -H node1:4,node2:4 python train.py
  aml-horovodrun -np 8 --fusion-threshold-mb 64 --timeline-filename t.json python train.py
  aml-horovodrun -np 8 --dry-run python train.py         print the srun line

aml-horovodrun [FLAG]... COMMAND [ARGUMENT]...

horovodrun's command line as a step of Slurm, over MPI: in an allocation, or in one of its own.
  -np N                    processes
  -H LIST, --hostfile FILE these nodes, with so many slots
  --fusion-threshold-mb, --cycle-time-ms, --timeline-filename, ...   HOROVOD_* variables
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

Done add_hosts(State& state, const GivenFlag& given) {
  auto hosts = parse_host_list(given.value(), std::nullopt);
  if (!hosts) return hosts.error();
  state.hosts = std::move(*hosts);
  return {};
}

Done add_hostfile(State& state, const GivenFlag& given) {
  auto hosts = read_hostfile(given.value());
  if (!hosts) return hosts.error();
  state.hosts = std::move(*hosts);
  return {};
}

Done add_interface(State& state, const GivenFlag& given) {
  state.interfaces += concat({state.interfaces.empty() ? "" : ",", given.value()});
  return {};
}

Done set_output(State& state, const GivenFlag& given) {
  state.line.folders.push_back(given.value());
  state.line.srun.set("output", concat({given.value(), "/rank.%t.stdout"}));
  state.line.srun.set("error", concat({given.value(), "/rank.%t.stderr"}));
  return {};
}

enum class SettingType { text, integer, real, level };

/// Horovod's settings: flag, variable, the value of a flag that has none, and what another takes.
struct Setting {
  std::string_view flag;
  std::string_view variable;
  std::string_view value = {};
  SettingType type = SettingType::text;
};

constexpr std::array settings = {
    Setting{"--cycle-time-ms", "HOROVOD_CYCLE_TIME", {}, SettingType::real},
    Setting{"--cache-capacity", "HOROVOD_CACHE_CAPACITY", {}, SettingType::integer},
    Setting{"--hierarchical-allreduce", "HOROVOD_HIERARCHICAL_ALLREDUCE", "1"},
    Setting{"--no-hierarchical-allreduce", "HOROVOD_HIERARCHICAL_ALLREDUCE", "0"},
    Setting{"--hierarchical-allgather", "HOROVOD_HIERARCHICAL_ALLGATHER", "1"},
    Setting{"--no-hierarchical-allgather", "HOROVOD_HIERARCHICAL_ALLGATHER", "0"},
    Setting{"--torus-allreduce", "HOROVOD_TORUS_ALLREDUCE", "1"},
    Setting{"--no-torus-allreduce", "HOROVOD_TORUS_ALLREDUCE", "0"},
    Setting{"--autotune", "HOROVOD_AUTOTUNE", "1"},
    Setting{"--no-autotune", "HOROVOD_AUTOTUNE", "0"},
    Setting{"--autotune-log-file", "HOROVOD_AUTOTUNE_LOG"},
    Setting{"--autotune-warmup-samples", "HOROVOD_AUTOTUNE_WARMUP_SAMPLES", {}, SettingType::integer},
    Setting{"--autotune-steps-per-sample", "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", {}, SettingType::integer},
    Setting{"--autotune-bayes-opt-max-samples", "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", {}, SettingType::integer},
    Setting{"--autotune-gaussian-process-noise", "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", {}, SettingType::real},
    Setting{"--timeline-filename", "HOROVOD_TIMELINE"},
    Setting{"--timeline-mark-cycles", "HOROVOD_TIMELINE_MARK_CYCLES", "1"},
    Setting{"--no-timeline-mark-cycles", "HOROVOD_TIMELINE_MARK_CYCLES", "0"},
    Setting{"--no-stall-check", "HOROVOD_STALL_CHECK_DISABLE", "1"},
    Setting{"--stall-check", "HOROVOD_STALL_CHECK_DISABLE", "0"},
    Setting{"--stall-check-warning-time-seconds", "HOROVOD_STALL_CHECK_TIME_SECONDS", {}, SettingType::integer},
    Setting{"--stall-check-shutdown-time-seconds", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", {}, SettingType::integer},
    Setting{"--mpi-threads-disable", "HOROVOD_MPI_THREADS_DISABLE", "1"},
    Setting{"--no-mpi-threads-disable", "HOROVOD_MPI_THREADS_DISABLE", "0"},
    Setting{"--num-nccl-streams", "HOROVOD_NUM_NCCL_STREAMS", {}, SettingType::integer},
    Setting{"--thread-affinity", "HOROVOD_THREAD_AFFINITY", {}, SettingType::integer},
    Setting{"--gloo-timeout-seconds", "HOROVOD_GLOO_TIMEOUT_SECONDS", {}, SettingType::integer},
    Setting{"--log-level", "HOROVOD_LOG_LEVEL", {}, SettingType::level},
    Setting{"--log-with-timestamp", "HOROVOD_LOG_HIDE_TIME", "0"},
    Setting{"--log-without-timestamp", "HOROVOD_LOG_HIDE_TIME", "1"},
    Setting{"--log-hide-timestamp", "HOROVOD_LOG_HIDE_TIME", "1"},
    Setting{"--no-log-hide-timestamp", "HOROVOD_LOG_HIDE_TIME", "0"},
};

constexpr std::array<std::string_view, 6> levels = {"TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "FATAL"};

/// Digits as Python writes them, with single underscores between. Returns how many characters they are; 0: none.
std::size_t digits_of(std::string_view text) {
  std::size_t at = 0;
  const auto is_digit = [&](std::size_t i) { return i < text.size() && text[i] >= '0' && text[i] <= '9'; };
  while (is_digit(at) || (at > 0 && at < text.size() && text[at] == '_' && is_digit(at + 1))) ++at;
  return at;
}

std::string_view without_sign(std::string_view text) {
  if (text.starts_with('+') || text.starts_with('-')) text.remove_prefix(1);
  return text;
}

/// What Python's int() takes.
bool is_python_integer(std::string_view text) {
  text = without_sign(text::trim(text));
  return !text.empty() && digits_of(text) == text.size();
}

/// What float() takes besides: a point, an exponent, inf and nan.
bool is_python_number(std::string_view text) {
  text = without_sign(text::trim(text));
  const std::string lower = text::to_lower(text);
  if (lower == "inf" || lower == "infinity" || lower == "nan") return true;
  const std::size_t whole = digits_of(text);
  text.remove_prefix(whole);
  std::size_t fraction = 0;
  if (text.starts_with('.')) {
    fraction = digits_of(text.substr(1));
    text.remove_prefix(1 + fraction);
  }
  if (whole + fraction == 0) return false;
  if (!text.starts_with('e') && !text.starts_with('E')) return text.empty();
  return is_python_integer(text.substr(1)) && text.size() > 1 && text[1] != ' ';
}

Done check_value(SettingType type, const GivenFlag& given) {
  const auto wrong = [&](std::string_view kind) {
    return Error{Errc::invalid_argument,
                 concat({given.name, " needs ", kind, ", and ", quote(given.value()), " is none"})};
  };
  if (type == SettingType::integer && !is_python_integer(given.value())) return wrong("a whole number");
  if (type == SettingType::real && !is_python_number(given.value())) return wrong("a number");
  if (type == SettingType::level && std::ranges::find(levels, given.value()) == levels.end())
    return wrong(concat({"one of ", text::join(levels)}));
  return {};
}

Done set_horovod(State& state, const GivenFlag& given) {
  const auto* const setting = std::ranges::find(settings, given.name, &Setting::flag);
  const bool has_value = !given.values.empty();
  if (has_value) {
    if (auto checked = check_value(setting->type, given); !checked) return checked;
  }
  state.line.set_variable(std::string(setting->variable), has_value ? given.value() : std::string(setting->value));
  return {};
}

/// Of a flag without effect, whose value horovodrun would look at all the same.
Done take_integer(State& /*state*/, const GivenFlag& given) { return check_value(SettingType::integer, given); }

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

Row<State> ignored(std::string_view names, std::size_t values, std::string_view why) {
  return {{names, values, F::ignored, why}, nullptr};
}
Row<State> refused(std::string_view names, std::size_t values, std::string_view why) {
  return {{names, values, F::refused, why}, nullptr};
}

std::vector<Row<State>> setting_rows() {
  std::vector<Row<State>> out;
  out.reserve(settings.size());
  for (const Setting& setting : settings) {
    out.push_back({{setting.flag, setting.value.empty() ? 1U : 0U, F::translated, setting.variable}, set_horovod});
  }
  return out;
}

std::vector<Row<State>> rows() {
  constexpr std::string_view no_ssh = "Slurm starts the processes, without ssh";
  constexpr std::string_view fixed = "a job keeps the nodes that it starts with: elastic training is not possible";
  std::vector<Row<State>> out = {
      {{"--num-proc -np", 1, F::translated, "--ntasks=N"}, set_processes},
      {{"-H --hosts", 1, F::translated, "--nodelist and the tasks on each node"}, add_hosts},
      {{"-hostfile --hostfile", 1, F::translated, "--nodelist and the tasks on each node"}, add_hostfile},
      {{"--network-interfaces", 1, F::translated, "OMPI_MCA_btl_tcp_if_include and NCCL_SOCKET_IFNAME"}, add_interface},
      {{"--network-interface", 1, F::translated, "as --network-interfaces"}, add_interface},
      {{"--output-filename", 1, F::translated, "--output and --error in that folder, a file for each rank"},
       set_output},
      {{"--fusion-threshold-mb", 1, F::translated, "HOROVOD_FUSION_THRESHOLD, in bytes"}, set_fusion},
      {{"--mpi-args", 1, F::translated, "flags of mpirun: as aml-mpirun translates them"}, add_mpi_args},
      {{"--binding-args", 1, F::translated, "flags of mpirun: as aml-mpirun translates them"}, add_mpi_args},
      {{"--tcp", 0, F::translated, "OMPI_MCA_pml=ob1, OMPI_MCA_btl=^openib, NCCL_IB_DISABLE=1"}, set_tcp},
      {{"-cb --check-build", 0, F::handed_on, "the real horovodrun is started instead"}, mark<&State::check_build>},
      {{"--start-timeout", 1, F::ignored,
        "Slurm starts all processes of a step or none; --slurm=--immediate=60 gives up when the "
        "nodes are not free within 60 s"},
       take_integer},
      ignored("--disable-cache", 0, "nothing is checked over ssh, so nothing is cached"),
      ignored("--verbose", 0, "--slurm=--verbose shows srun's own steps"),
      {{"-p --ssh-port", 1, F::ignored, no_ssh}, take_integer},
      ignored("-i --ssh-identity-file", 1, no_ssh),
      ignored("-prefix-timestamp --prefix-output-with-timestamp", 0, "srun does not write the time"),
      ignored("--mpi", 0, "it is what is done here"),
      refused("--gloo", 0, "Horovod's Gloo needs horovodrun's own server: leave it out, and MPI is used"),
      refused("--jsrun", 0, "this is a cluster of Slurm"),
      refused("--config-file", 1, "give what it says as flags"),
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
  const auto rest = read_into(mpi, Dialect{"mpirun", false, true, true}, mpi_rows(), *words);
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
  if (!state.processes) return Error{Errc::invalid_argument, "how many processes there are is not said: give -np N"};
  if (state.hosts.empty()) line.srun.set("ntasks", std::to_string(*state.processes));
  else if (auto placed = place(state.hosts, state.processes, Distribution::by_slot, line.srun); !placed)
    return placed.error();
  if (auto used = use_mpi_args(state); !used) return used.error();
  if (!state.interfaces.empty()) {
    line.set_variable("OMPI_MCA_btl_tcp_if_include", state.interfaces);
    line.set_variable("NCCL_SOCKET_IFNAME", state.interfaces);
  }
  line.srun.set("mpi", "pmix");
  line.option = "mpi";
  line.words = std::move(program);
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  constexpr Dialect dialect{"horovodrun", true, true, true};
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
