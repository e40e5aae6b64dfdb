// aml-deepspeed: the command line of deepspeed's launcher as one srun line, one task for each process.
#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <set>

#include "base/os/environment.hpp"
#include "launch/option/spec.hpp"
#include "launchers/hosts.hpp"
#include "launchers/launcher.hpp"
#include "launchers/node_names.hpp"
#include "shared/programs.hpp"
#include "shared/shell.hpp"

namespace amldist::launchers::deepspeed {
namespace {

using text::concat;
using text::quote;

constexpr std::size_t longest_environment_file = std::size_t{64} * 1024;

constexpr const char* help =
    R"(Examples:
  aml-deepspeed --num_gpus 4 train.py --deepspeed ds.json        one node
  aml-deepspeed --num_nodes 2 --num_gpus 8 train.py --deepspeed ds.json
  aml-deepspeed --hostfile hosts --include 'n1@n2:0,1' train.py  these nodes
  aml-deepspeed --num_gpus 8 --dry-run train.py                  the srun line

aml-deepspeed [FLAG]... SCRIPT [ARGUMENT]...

deepspeed's command line as a step of Slurm: in an allocation in it, else in
one of its own.
  --num_nodes N            nodes
  --num_gpus N             processes, and GPUs, on each
  -H, --hostfile FILE      lines 'NAME slots=N': these nodes
  -i, --include, -e, --exclude SPEC   which of them; Slurm chooses a node's GPUs
  --module, --no_python    SCRIPT is a module, a program
  --no_local_rank          SCRIPT gets no --local_rank=N
  --autotuning tune|run    the real deepspeed is started instead
  --slurm=OPTION           an option of srun, as often as needed
  --dry-run                print the line and start nothing
  --list-flags             every flag of deepspeed and what becomes of it
  --version, --help
)";

struct State : Base {
  std::optional<std::uint32_t> nodes;
  std::optional<std::uint32_t> gpus;
  std::optional<std::uint32_t> port;
  std::string hostfile;
  std::string include;
  std::string exclude;
  std::string venv_script;
  std::string launcher = "pdsh";
  bool module = false;
  bool program = false;
  bool no_local_rank = false;
  bool autotuning = false;
  bool force_multi = false;
};

using Done = Result<void>;
using F = FlagHandling;

/// 0 and below mean "all" to deepspeed.
template <std::optional<std::uint32_t> State::*member, std::uint32_t high>
Done set_number(State& state, const GivenFlag& given) {
  if (given.value() == "0" || given.value().starts_with('-')) return {};
  const auto number = number_of(given, 1, high);
  if (!number) return number.error();
  state.*member = *number;
  return {};
}

Done set_port(State& state, const GivenFlag& given) {
  const auto number = number_of(given, 1, 65535);
  if (!number) return number.error();
  state.port = *number;
  return {};
}

Done set_log_folder(State& state, const GivenFlag& given) {
  if (given.value() == "None") return {};
  state.line.folders.push_back(given.value());
  state.line.srun.set("output", concat({given.value(), "/rank%t.log"}));
  return {};
}

std::vector<Row<State>> shape_rows() {
  return {
      {{"-H --hostfile", 1, F::translated, "--nodelist and the tasks on each node; /job/hostfile is not looked for"},
       keep<&State::hostfile>},
      {{"-i --include", 1, F::translated, "--nodelist; of slots only the number counts, as Slurm chooses the GPUs"},
       keep<&State::include>},
      {{"-e --exclude", 1, F::translated, "--exclude for whole nodes; of slots only the number counts"},
       keep<&State::exclude>},
      {{"--num_nodes", 1, F::translated, "--nodes=N", "int"}, set_number<&State::nodes, 65536>},
      {{"--num_accelerators --num_gpus", 1, F::translated, "--ntasks-per-node=N --gpus-per-node=N", "int"},
       set_number<&State::gpus, 1024>},
      {{"--master_port", 1, F::translated, "master_port=N", "int"}, set_port},
      ignored("--master_addr", 1, "the processes meet on the host of rank 0, wherever Slurm puts it"),
      ignored("--node_rank", 1, "each node is told its own", "int"),
      {{"--launcher", 1, F::ignored, "Slurm is the launcher"}, keep<&State::launcher>},
      ignored("--launcher_args", 1, "Slurm is the launcher: give its options with --slurm"),
  };
}

std::vector<Row<State>> start_rows() {
  constexpr std::string_view no_ssh = "Slurm starts the processes, without ssh";
  constexpr std::string_view fixed = "a job keeps the nodes that it starts with";
  return {
      {{"--module", 0, F::translated, "python -m SCRIPT"}, mark<&State::module>},
      {{"--no_python", 0, F::translated, "SCRIPT is started as it is"}, mark<&State::program>},
      {{"--no_local_rank", 0, F::translated, "SCRIPT gets no --local_rank=N"}, mark<&State::no_local_rank>},
      ignored("--no_ssh", 0, no_ssh),
      ignored("--no_ssh_check", 0, no_ssh),
      ignored("--ssh_port", 1, no_ssh, "int"),
      {{"--force_multi", 0, F::ignored, "one node and many are started alike"}, mark<&State::force_multi>},
      ignored("--save_pid", 0, "a step is found by its id: squeue --steps"),
      {{"--enable_each_rank_log", 1, F::translated, "--output=FOLDER/rank%t.log"}, set_log_folder},
      {{"--autotuning", 1, F::handed_on, "the real deepspeed is started instead, with the whole command line",
        "tune|run"},
       mark<&State::autotuning>},
      {{"--comment", 1, F::translated, "--comment"},
       [](State& state, const GivenFlag& given) { return state.line.srun.set("comment", given.value()), Done(); }},
      {{"--account", 1, F::translated, "--account"},
       [](State& state, const GivenFlag& given) { return state.line.srun.set("account", given.value()), Done(); }},
      {{"--venv_script", 1, F::translated, "each task sources it before it starts SCRIPT"}, keep<&State::venv_script>},
      ignored("--log_level", 1, "it is of deepspeed's runner, which is not started",
              "debug|info|warning|error|critical"),
      {{"-q --quiet", 0, F::translated, "--quiet"},
       [](State& state, const GivenFlag&) { return state.line.srun.set("quiet"), Done(); }},
      {{"--elastic_training", 0, F::refused, fixed}},
      {{"--min_elastic_nodes", 1, F::refused, fixed, "int"}},
      {{"--max_elastic_nodes", 1, F::refused, fixed, "int"}},
      {{"--bind_cores_to_rank", 0, F::translated, "--cpu-bind=cores"},
       [](State& state, const GivenFlag&) { return state.line.srun.set("cpu-bind", "cores"), Done(); }},
      {{"--bind_core_list", 1, F::refused,
        "the cores of a job are Slurm's choice: use --slurm=--cpu-bind=map_cpu:LIST"}},
      {{"-h --help", 0, F::translated, "examples and the flags that matter"}, mark<&State::help>},
      {{"--version", 0, F::translated, "the release of aml-dist"}, mark<&State::version>},
  };
}

std::vector<Row<State>> rows() { return join_rows({shape_rows(), start_rows(), own_rows<State>()}); }

using Slots = std::set<std::uint32_t>;

/// A node of --include or --exclude, and which of its slots; empty: all.
struct Chosen {
  std::string name;
  Slots slots;
};

/// "NAME@NAME:0,2". A node that is named again adds to its slots.
Result<std::vector<Chosen>> parse_selection(std::string_view text) {
  std::vector<Chosen> out;
  for (const std::string_view node : text::split(text, '@')) {
    const auto colon = node.find(':');
    const std::string_view name = node.substr(0, colon);
    if (!launch::is_host(name)) {
      return Error{Errc::invalid_argument, concat({quote(node), " is not a node: write NAME or NAME:SLOT,SLOT"})};
    }
    auto own = node_name(name);
    if (!own) return own.error();
    const auto same = std::ranges::find(out, *own, &Chosen::name);
    Chosen& chosen = same != out.end() ? *same : out.emplace_back(Chosen{std::move(*own), {}});
    if (colon == std::string_view::npos) continue;
    for (const std::string_view slot : text::split(node.substr(colon + 1), ',')) {
      const auto number = text::to_number(slot, 1023);
      if (!number) return Error{Errc::invalid_argument, concat({quote(node), ": slots are numbers, such as NAME:0,2"})};
      chosen.slots.insert(static_cast<std::uint32_t>(*number));
    }
  }
  return out;
}

/// Each node must be in the hostfile, and have the slots that are named.
Done check_selection(std::string_view flag, const State& state, const std::vector<Chosen>& chosen,
                     const std::vector<Host>& hosts) {
  for (const Chosen& each : chosen) {
    const auto known = std::ranges::find(hosts, each.name, &Host::name);
    if (known == hosts.end())
      return Error{Errc::not_found, concat({flag, ": ", quote(each.name), " is not in ", state.hostfile})};
    if (!each.slots.empty() && *each.slots.rbegin() >= known->slots.value_or(0)) {
      return Error{Errc::not_found,
                   concat({flag, ": ", quote(each.name), " has no slot ", std::to_string(*each.slots.rbegin()), ": ",
                           state.hostfile, " gives it ", text::count(known->slots.value_or(0), "slot")})};
    }
  }
  return {};
}

Done include_hosts(State& state, std::vector<Host>& hosts) {
  const auto chosen = parse_selection(state.include);
  if (!chosen) return chosen.error();
  const auto count = [](const Chosen& each) { return static_cast<std::uint32_t>(each.slots.size()); };
  if (hosts.empty()) {
    for (const Chosen& each : *chosen) {
      hosts.push_back({each.name, each.slots.empty() ? std::nullopt : std::optional(count(each))});
    }
    return {};
  }
  if (auto status = check_selection("--include", state, *chosen, hosts); !status) return status;
  // Ranks follow the hostfile, not the order of --include.
  std::vector<Host> kept;
  for (const Host& host : hosts) {
    const auto each = std::ranges::find(*chosen, host.name, &Chosen::name);
    if (each == chosen->end()) continue;
    kept.push_back({host.name, each->slots.empty() ? host.slots : std::optional(count(*each))});
  }
  hosts = std::move(kept);
  return {};
}

/// Without a hostfile Slurm chooses among the other nodes.
Done exclude_from_cluster(State& state, const std::vector<Chosen>& excluded) {
  std::string whole;
  for (const Chosen& each : excluded) {
    if (!each.slots.empty()) {
      return Error{Errc::invalid_argument, "--exclude of slots needs a --hostfile that says how many there are"};
    }
    whole += concat({whole.empty() ? "" : ",", each.name});
  }
  state.line.srun.set("exclude", whole);
  return {};
}

Done exclude_hosts(State& state, std::vector<Host>& hosts) {
  const auto excluded = parse_selection(state.exclude);
  if (!excluded) return excluded.error();
  if (hosts.empty()) return exclude_from_cluster(state, *excluded);
  if (auto status = check_selection("--exclude", state, *excluded, hosts); !status) return status;
  for (const Chosen& each : *excluded) {
    const auto known = std::ranges::find(hosts, each.name, &Host::name);
    const std::uint32_t left = each.slots.empty() ? 0 : *known->slots - static_cast<std::uint32_t>(each.slots.size());
    if (left == 0) hosts.erase(known);
    else known->slots = left;
  }
  if (hosts.empty()) return Error{Errc::mismatch, "--exclude leaves no node"};
  return {};
}

/// deepspeed accepts a node once, with its slots.
Result<std::vector<Host>> hosts_of_file(const std::string& file) {
  auto hosts = read_hostfile(file, Again::adds_slots);
  if (!hosts) return hosts;
  for (const Host& host : *hosts) {
    if (!host.slots) {
      return Error{Errc::invalid_argument, concat({file, " does not say how many slots ", quote(host.name),
                                                   " has: write ", host.name, " slots=N"})};
    }
    if (host.lines > 1) {
      return Error{Errc::invalid_argument, concat({file, " names ", quote(host.name),
                                                   " more than once, which deepspeed does not take: keep one"})};
    }
  }
  return hosts;
}

/// The nodes that the flags name; empty: Slurm chooses.
Result<std::vector<Host>> chosen_hosts(State& state) {
  std::vector<Host> hosts;
  if (!state.include.empty() && !state.exclude.empty()) {
    return Error{Errc::invalid_argument, "--include and --exclude cannot be combined: give one"};
  }
  if (!state.hostfile.empty()) {
    const bool selects = !state.include.empty() || !state.exclude.empty();
    if (selects && (state.nodes || state.gpus)) {
      return Error{Errc::invalid_argument,
                   "--include and --exclude say which nodes and slots of the hostfile are used: leave --num_nodes and "
                   "--num_gpus out"};
    }
    auto read = hosts_of_file(state.hostfile);
    if (!read) return read.error();
    hosts = std::move(*read);
  }
  if (!state.include.empty()) {
    if (auto status = include_hosts(state, hosts); !status) return status.error();
  }
  if (!state.exclude.empty()) {
    if (auto status = exclude_hosts(state, hosts); !status) return status.error();
  }
  if (state.nodes && hosts.size() > *state.nodes) hosts.resize(*state.nodes);
  if (state.gpus) {
    // As deepspeed does: it uses this number for each node, whatever the hostfile says.
    const bool from_file = !state.hostfile.empty();
    for (Host& host : hosts)
      host.slots = from_file ? *state.gpus : std::min(host.slots.value_or(*state.gpus), *state.gpus);
  }
  return hosts;
}

std::optional<std::uint32_t> gpus_of_allocation() {
  for (const char* const name : {"SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE"}) {
    const std::string value = own_variable(name).value_or("");
    const auto number = text::to_number(std::string_view(value).substr(value.rfind(':') + 1), 1024);
    if (number && *number > 0) return static_cast<std::uint32_t>(*number);
  }
  return std::nullopt;
}

/// Asks for the GPUs, unless we are in an allocation without GPUs.
void ask_for_gpus(State& state, std::uint32_t count) {
  const bool none_to_give = own_variable("SLURM_JOB_ID") && !gpus_of_allocation();
  if (none_to_give) state.line.note("the allocation has no GPUs: the processes run without");
  else state.line.srun.set("gpus-per-node", std::to_string(count));
}

Done set_shape(State& state) {
  auto hosts = chosen_hosts(state);
  if (!hosts) return hosts.error();
  const auto gpus = state.gpus ? state.gpus : gpus_of_allocation();
  for (Host& host : *hosts) {
    if (!host.slots) host.slots = gpus;
  }
  const bool known =
      !hosts->empty() && std::ranges::all_of(*hosts, [](const Host& host) { return host.slots.has_value(); });
  if (!known && !gpus) {
    return Error{Errc::invalid_argument,
                 "the number of processes of a node is not known before it is allocated: give "
                 "--num_gpus N"};
  }
  if (hosts->empty()) {
    state.line.srun.set("nodes", std::to_string(state.nodes.value_or(1)));
    state.line.srun.set("ntasks-per-node", std::to_string(*gpus));
    ask_for_gpus(state, *gpus);
    return {};
  }
  std::uint32_t most = 0;
  for (const Host& host : *hosts) most = std::max(most, *host.slots);
  if (auto status = place(*hosts, std::nullopt, Distribution::by_slot, state.line.srun); !status) return status.error();
  ask_for_gpus(state, most);
  return {};
}

/// One file of NAME=VALUE lines, as deepspeed reads it.
Done read_environment(const std::string& file, StepLine& line) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(file, ignored)) return {};
  const auto content = commands::read_file(file, longest_environment_file);
  if (!content) return content.error();
  std::size_t number = 0;
  for (const std::string_view each : text::split(*content, '\n')) {
    ++number;
    if (text::trim(each).empty()) continue;
    const auto equals = each.find('=');
    const std::string_view name = text::trim(each.substr(0, equals));
    if (equals == std::string_view::npos || !shell::is_name(name)) {
      return Error{Errc::invalid_argument, concat({file, ":", std::to_string(number), ": ", quote(each),
                                                   " is not a variable: write NAME=VALUE"})};
    }
    line.set_variable(std::string(name), std::string(text::trim(each.substr(equals + 1))));
  }
  return {};
}

/// deepspeed looks at --launcher when it starts processes on several nodes.
Done check_launcher(const std::string& launcher) {
  constexpr std::array<std::string_view, 6> known = {"pdsh", "openmpi", "mpich", "impi", "slurm", "mvapich"};
  if (std::ranges::find(known, text::to_lower(launcher)) != known.end()) return {};
  return Error{Errc::invalid_argument,
               concat({"invalid value ", quote(launcher), " for --launcher: leave it out, Slurm is the launcher"})};
}

/// ~/.deepspeed_env and then that of the folder, which deepspeed reads when it starts processes on several nodes.
Done add_environment_files(StepLine& line) {
  const std::string name = own_variable("DS_ENV_FILE").value_or(".deepspeed_env");
  for (const std::string& folder : {own_variable("HOME").value_or(""), std::string(".")}) {
    if (folder.empty()) continue;
    if (auto status = read_environment((std::filesystem::path(folder) / name).string(), line); !status) return status;
  }
  return {};
}

/// The real deepspeed does not know --dry-run, --json and --slurm.
std::vector<std::string> without_own_flags(const std::vector<std::string>& flags) {
  const std::vector<Flag> own = flags_of(own_rows<State>());
  std::vector<std::string> out;
  out.reserve(flags.size());
  for (std::size_t i = 0; i < flags.size(); ++i) {
    const std::string_view name = std::string_view(flags[i]).substr(0, flags[i].find('='));
    const auto flag = std::ranges::find_if(own, [&](const Flag& each) { return has_name(each, name); });
    if (flag == own.end()) out.push_back(flags[i]);
    else if (name == flags[i]) i += flag->values;
  }
  return out;
}

Done translate(State& state, const Tool<State>& /*tool*/, std::vector<std::string> program,
               const std::vector<std::string>& words) {
  StepLine& line = state.line;
  if (state.autotuning) {
    line = {};
    line.instead = without_own_flags({words.begin(), words.end() - std::ssize(program)});
    line.instead.insert(line.instead.begin(), "deepspeed");
    line.instead.insert(line.instead.end(), program.begin(), program.end());
    line.note("--autotuning is deepspeed's own work: the real deepspeed is started");
    return {};
  }
  if (state.module && state.program) {
    return Error{Errc::invalid_argument, "--module and --no_python cannot be combined: give one"};
  }
  if (auto status = set_shape(state); !status) return status.error();
  if (state.force_multi || line.srun.value_of("nodes") != "1") {
    if (auto status = check_launcher(state.launcher); !status) return status.error();
    if (auto status = add_environment_files(line); !status) return status.error();
  }
  line.option = "pytorch";
  line.binds_nothing = true;
  if (state.port) line.add_key(concat({"master_port=", std::to_string(*state.port)}));
  if (!state.venv_script.empty()) {
    line.words = {"bash", "-c", ". \"$0\" && exec \"$@\"", state.venv_script};
  }
  if (!state.program) {
    line.words.insert(line.words.end(), {state.venv_script.empty() ? python() : "python", "-u"});
    if (state.module) line.words.emplace_back("-m");
  }
  line.words.push_back(program.front());
  if (!state.no_local_rank) {
    line.words.emplace_back("--local_rank=$LOCAL_RANK");
    line.expand = true;
  }
  line.words.insert(line.words.end(), program.begin() + 1, program.end());
  return {};
}

}  // namespace

int run(int argc, char** argv) {
  return run_tool(Tool<State>{{.tool = "deepspeed", .argparse = true}, help, rows(), nullptr, translate}, argc, argv);
}

}  // namespace amldist::launchers::deepspeed
