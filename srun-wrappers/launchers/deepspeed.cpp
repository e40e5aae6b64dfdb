// aml-deepspeed: the command line of deepspeed's launcher as one srun line, one task for each process.
#include <algorithm>
#include <optional>

#include "core/spec.hpp"
#include "launchers/hosts.hpp"
#include "launchers/launcher.hpp"
#include "os/environment.hpp"
#include "shared/programs.hpp"

namespace {

using namespace amldist;
using namespace amldist::launchers;
using text::concat;
using text::quote;

constexpr const char* help =
    R"(Examples:
  aml-deepspeed --num_gpus 4 train.py --deepspeed ds.json             one node, four GPUs
  aml-deepspeed --num_nodes 2 --num_gpus 8 train.py --deepspeed ds.json
  aml-deepspeed --hostfile hosts --include 'n1@n2:0,1' train.py       these nodes
  aml-deepspeed --num_nodes 2 --num_gpus 8 --dry-run train.py         print the srun line

aml-deepspeed [FLAG]... SCRIPT [ARGUMENT]...

deepspeed's command line as a step of Slurm: in an allocation in it, else in one of its own.
  --num_nodes N            nodes
  --num_gpus N             processes, and GPUs, on each
  -H, --hostfile FILE      lines 'NAME slots=N': these nodes
  -i, --include, -e, --exclude SPEC   which of them; Slurm chooses the GPUs of a node itself
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
  bool module = false;
  bool program = false;
  bool no_local_rank = false;
  bool autotuning = false;
};

using Done = Result<void>;
using F = FlagHandling;

/// -1 is deepspeed's word for "all".
template <std::optional<std::uint32_t> State::*member, std::uint32_t high>
Done set_number(State& state, const GivenFlag& given) {
  if (given.value() == "-1") return {};
  const auto number = number_of(given, 1, high);
  if (!number) return number.error();
  state.*member = *number;
  return {};
}

Done set_log_folder(State& state, const GivenFlag& given) {
  if (given.value() == "None") return {};
  state.line.folders.push_back(given.value());
  state.line.srun.set("output", concat({given.value(), "/rank%t.log"}));
  return {};
}

Row<State> ignored(std::string_view names, std::size_t values, std::string_view why) {
  return {{names, values, FlagHandling::ignored, why}, nullptr};
}

std::vector<Row<State>> shape_rows() {
  return {
      {{"-H --hostfile", 1, F::translated, "--nodelist and the tasks on each node; /job/hostfile is not looked for"},
       keep<&State::hostfile>},
      {{"-i --include", 1, F::translated, "--nodelist; of slots only the number counts, as Slurm chooses the GPUs"},
       keep<&State::include>},
      {{"-e --exclude", 1, F::translated, "--exclude for whole nodes; of slots only the number counts"},
       keep<&State::exclude>},
      {{"--num_nodes", 1, F::translated, "--nodes=N"}, set_number<&State::nodes, 65536>},
      {{"--num_accelerators --num_gpus", 1, F::translated, "--ntasks-per-node=N --gpus-per-node=N"},
       set_number<&State::gpus, 1024>},
      {{"--master_port", 1, F::translated, "master_port=N"}, set_number<&State::port, 65535>},
      ignored("--master_addr", 1, "the processes meet on the host of rank 0, wherever Slurm puts it"),
      ignored("--node_rank", 1, "each node is told its own"),
      ignored("--launcher", 1, "Slurm is the launcher"),
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
      ignored("--ssh_port", 1, no_ssh),
      ignored("--force_multi", 0, "one node and many are started alike"),
      ignored("--save_pid", 0, "a step is found by its id: squeue --steps"),
      {{"--enable_each_rank_log", 1, F::translated, "--output=FOLDER/rank%t.log"}, set_log_folder},
      {{"--autotuning", 1, F::handed_on, "the real deepspeed is started instead, with the whole command line"},
       mark<&State::autotuning>},
      {{"--comment", 1, F::translated, "--comment"},
       [](State& state, const GivenFlag& given) { return state.line.srun.set("comment", given.value()), Done(); }},
      {{"--account", 1, F::translated, "--account"},
       [](State& state, const GivenFlag& given) { return state.line.srun.set("account", given.value()), Done(); }},
      {{"--venv_script", 1, F::translated, "each task sources it before it starts SCRIPT"}, keep<&State::venv_script>},
      ignored("--log_level", 1, "it is of deepspeed's runner, which is not started"),
      {{"-q --quiet", 0, F::translated, "--quiet"},
       [](State& state, const GivenFlag&) { return state.line.srun.set("quiet"), Done(); }},
      {{"--elastic_training", 0, F::refused, fixed}},
      {{"--min_elastic_nodes", 1, F::refused, fixed}},
      {{"--max_elastic_nodes", 1, F::refused, fixed}},
      {{"--bind_cores_to_rank", 0, F::translated, "--cpu-bind=cores"},
       [](State& state, const GivenFlag&) { return state.line.srun.set("cpu-bind", "cores"), Done(); }},
      {{"--bind_core_list", 1, F::refused,
        "the cores of a job are Slurm's choice: use --slurm=--cpu-bind=map_cpu:LIST"}},
      {{"-h --help", 0, F::translated, "examples and the flags that matter"}, mark<&State::help>},
      {{"--version", 0, F::translated, "the release of aml-dist"}, mark<&State::version>},
  };
}

std::vector<Row<State>> rows() { return join_rows({shape_rows(), start_rows(), own_rows<State>()}); }

/// "NAME@NAME:0,2": hosts, with the number of slots where some are named.
Result<std::vector<Host>> parse_selection(std::string_view text) {
  std::vector<Host> out;
  for (const std::string_view node : text::split(text, '@')) {
    const auto colon = node.find(':');
    const std::string_view name = node.substr(0, colon);
    if (!is_host(name)) {
      return Error{Errc::invalid_argument, concat({quote(node), " is not a node: write NAME or NAME:SLOT,SLOT"})};
    }
    Host host{std::string(name), std::nullopt};
    if (colon != std::string_view::npos) {
      const auto slots = text::split(node.substr(colon + 1), ',');
      const bool numbers =
          std::ranges::all_of(slots, [](std::string_view slot) { return text::to_number(slot, 1023).has_value(); });
      if (!numbers)
        return Error{Errc::invalid_argument, concat({quote(node), ": slots are numbers, such as NAME:0,2"})};
      host.slots = static_cast<std::uint32_t>(slots.size());
    }
    out.push_back(std::move(host));
  }
  return out;
}

Done include_hosts(State& state, std::vector<Host>& hosts) {
  auto chosen = parse_selection(state.include);
  if (!chosen) return chosen.error();
  for (Host& host : *chosen) {
    const auto known = std::ranges::find(hosts, host.name, &Host::name);
    if (!hosts.empty() && known == hosts.end()) {
      return Error{Errc::not_found, concat({"--include: ", quote(host.name), " is not in ", state.hostfile})};
    }
    if (!host.slots && known != hosts.end()) host.slots = known->slots;
  }
  hosts = std::move(*chosen);
  return {};
}

Done exclude_hosts(State& state, std::vector<Host>& hosts) {
  const auto excluded = parse_selection(state.exclude);
  if (!excluded) return excluded.error();
  std::string whole;
  for (const Host& host : *excluded) {
    const auto known = std::ranges::find(hosts, host.name, &Host::name);
    if (hosts.empty() && host.slots) {
      return Error{Errc::invalid_argument, "--exclude of slots needs a --hostfile that says how many there are"};
    }
    if (hosts.empty()) {
      whole += concat({whole.empty() ? "" : ",", host.name});
    } else if (known == hosts.end()) {
      return Error{Errc::not_found, concat({"--exclude: ", quote(host.name), " is not in ", state.hostfile})};
    } else if (!host.slots || *host.slots >= known->slots.value_or(1)) {
      hosts.erase(known);
    } else {
      known->slots = known->slots.value_or(1) - *host.slots;
    }
  }
  if (!whole.empty()) state.line.srun.set("exclude", whole);
  else if (hosts.empty()) return Error{Errc::mismatch, "--exclude leaves no node"};
  return {};
}

/// The nodes that the flags name; empty: Slurm chooses.
Result<std::vector<Host>> chosen_hosts(State& state) {
  std::vector<Host> hosts;
  if (!state.include.empty() && !state.exclude.empty()) {
    return Error{Errc::invalid_argument, "--include and --exclude cannot be combined: give one"};
  }
  if (!state.hostfile.empty()) {
    auto read = read_hostfile(state.hostfile);
    if (!read) return read.error();
    hosts = std::move(*read);
  }
  if (!state.include.empty()) {
    if (auto done = include_hosts(state, hosts); !done) return done.error();
  }
  if (!state.exclude.empty()) {
    if (auto done = exclude_hosts(state, hosts); !done) return done.error();
  }
  if (state.nodes && hosts.size() > *state.nodes) hosts.resize(*state.nodes);
  if (state.gpus) {
    for (Host& host : hosts) host.slots = std::min(host.slots.value_or(*state.gpus), *state.gpus);
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

/// Asks for the GPUs, unless we are in an allocation that has none.
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
                 "how many processes run on a node is not known before it is allocated: give "
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
  if (auto placed = place(*hosts, std::nullopt, Distribution::by_slot, state.line.srun); !placed) return placed.error();
  ask_for_gpus(state, most);
  return {};
}

Done translate(State& state, const Tool<State>& /*tool*/, std::vector<std::string> program,
               const std::vector<std::string>& words) {
  StepLine& line = state.line;
  if (state.autotuning) {
    line = {};
    line.instead = {"deepspeed"};
    line.instead.insert(line.instead.end(), words.begin(), words.end());
    std::erase(line.instead, "--dry-run");
    line.note("--autotuning is deepspeed's own work: the real deepspeed is started");
    return {};
  }
  if (auto shaped = set_shape(state); !shaped) return shaped.error();
  line.option = "pytorch";
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

int main(int argc, char** argv) {
  return run_tool(Tool<State>{{"deepspeed", true, true, true}, help, rows(), nullptr, translate}, argc, argv);
}
