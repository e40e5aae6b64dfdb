// aml-torchrun: torchrun's command line as one srun line.
//
// Slurm starts the processes, one task each, unless a flag needs torchrun's own agent (restarts, logs by rank, ...):
// then the real torchrun is started, once on each node, and gets those flags.
#include <algorithm>
#include <optional>

#include "base/os/environment.hpp"
#include "launchers/launcher.hpp"
#include "launchers/python_value.hpp"
#include "shared/programs.hpp"

namespace amldist::launchers::torchrun {
namespace {

using text::concat;
using text::quote;

constexpr const char* help =
    R"(Examples:
  aml-torchrun --nproc-per-node=4 train.py                one node, 4 processes
  aml-torchrun --nnodes=2 --nproc-per-node=4 train.py     eight tasks of Slurm
  aml-torchrun --nnodes=2 --nproc-per-node=gpu train.py   one for each GPU
  aml-torchrun --nproc-per-node=4 --dry-run train.py      print the srun line
  aml-torchrun --slurm=--gpus-per-node=4 --nproc-per-node=4 train.py

aml-torchrun [FLAG]... SCRIPT [ARGUMENT]...

torchrun's command line as a step of Slurm: in an allocation in it, else in one
of its own.
  --nnodes N|MIN:MAX       nodes
  --nproc-per-node N|gpu   processes on each; gpu, auto, cpu: as torchrun counts
  -m, --module             SCRIPT is a module
  --no-python              SCRIPT is a program
  --max-restarts N, --tee, --log-dir, ...   the real torchrun on each node gets
                           these
  --rdzv-*, --master-addr, --node-rank      not needed: Slurm knows who is where
  --slurm=OPTION           an option of srun, as often as needed
  --dry-run                print the line and start nothing
  --list-flags             every flag of torchrun and what becomes of it
  --version, --help
)";

struct State : Base {
  std::uint32_t least_nodes = 1;
  std::uint32_t most_nodes = 1;
  std::string processes = "1";
  bool agent = false;  ///< the real torchrun is needed
  bool standalone = false;
  bool module = false;
  bool program = false;
  std::string backend;
  std::string endpoint;
  std::string id;
  std::string conf;
  std::optional<std::uint32_t> port;
  std::optional<std::uint32_t> endpoint_port;  ///< counts more
};

using Done = Result<void>;
using F = FlagHandling;
using Apply = Done (*)(State&, const GivenFlag&);

Done set_nodes(State& state, const GivenFlag& given) {
  const auto parts = text::split(given.value(), ':');
  const auto low = python_integer(parts.front());
  const auto high = python_integer(parts.back());
  if (parts.size() > 2 || !low || !high || *low < 1 || *low > *high || *high > 65536) {
    return invalid_value(given, "use N or MIN:MAX");
  }
  state.least_nodes = static_cast<std::uint32_t>(*low);
  state.most_nodes = static_cast<std::uint32_t>(*high);
  if (*low < *high) {
    state.line.note(
        "a job keeps the nodes that it starts with: MIN:MAX is how many Slurm may give, not how many may come "
        "and go");
  }
  return {};
}

Done set_processes(State& state, const GivenFlag& given) {
  const std::string& value = given.value();
  const auto number = python_integer(value);
  const bool word = value == "gpu" || value == "cpu" || value == "auto" || value == "xpu";
  if (!word && (!number || *number < 1 || *number > 65536)) {
    return invalid_value(given, "use a whole number, auto, cpu, gpu or xpu");
  }
  state.processes = word ? value : std::to_string(*number);
  if (word) state.agent = true;
  return {};
}

/// The spelling that every release of torchrun accepts: with underscores.
std::string old_spelling(std::string name) {
  std::replace(name.begin() + std::min<std::ptrdiff_t>(2, std::ssize(name)), name.end(), '-', '_');
  return name;
}

/// A flag and its value as words that argparse reads correctly: a value that looks like a flag goes into the same word.
void add_flag(std::vector<std::string>& words, const std::string& name, const std::string& value) {
  if (value.starts_with('-')) words.push_back(concat({name, "=", value}));
  else words.insert(words.end(), {name, value});
}

/// Only has an effect if another flag needs the agent.
Done hand_on_if_needed(State& state, const GivenFlag& given) {
  const std::string name = old_spelling(given.name);
  if (given.values.empty()) state.handed_on.push_back(name);
  else add_flag(state.handed_on, name, given.value());
  return {};
}

/// torchrun's agent does it; without the agent it has no effect.
Done hand_on(State& state, const GivenFlag& given) {
  state.agent = true;
  return hand_on_if_needed(state, given);
}

Done set_restarts(State& state, const GivenFlag& given) {
  const auto number = number_of(given, 0, 1000000);
  if (!number) return number.error();
  return *number > 0 ? hand_on(state, given) : Done();
}

Done set_port(State& state, const GivenFlag& given) {
  const auto number = number_of(given, 0, 65535);
  if (!number) return number.error();
  state.port = *number > 0 ? std::optional(*number) : std::nullopt;
  return {};
}

/// "KEY=VALUE,KEY=VALUE", as torchrun reads it.
Done set_rendezvous(State& state, const GivenFlag& given) {
  state.conf = std::string(text::trim(given.value()));
  if (state.conf.empty()) return {};
  for (const std::string_view pair : text::split(state.conf, ',')) {
    const auto equals = pair.find('=');
    const bool has_both = equals != std::string_view::npos && !text::trim(pair.substr(0, equals)).empty() &&
                          !text::trim(pair.substr(equals + 1)).empty();
    if (!has_both) return invalid_value(given, "use KEY=VALUE,KEY=VALUE");
  }
  return {};
}

/// The values of -r and -t: 0 to 3, or such a number for some of the processes.
Done hand_on_streams(State& state, const GivenFlag& given) {
  const auto is_streams = [](std::string_view text) { return text.size() == 1 && text[0] >= '0' && text[0] <= '3'; };
  const auto is_pair = [&](std::string_view text) {
    return text.size() == 3 && text[0] >= '0' && text[0] <= '9' && text[1] == ':' && is_streams(text.substr(2));
  };
  if (!is_streams(given.value()) && !std::ranges::all_of(text::split(given.value(), ','), is_pair)) {
    return invalid_value(given, "use 0, 1 (output), 2 (errors) or 3, or PROCESS:0-3,...");
  }
  return hand_on(state, given);
}

Done hand_on_ranks(State& state, const GivenFlag& given) {
  const auto is_number = [](std::string_view text) { return python_integer(text).has_value(); };
  if (!given.value().empty() && !std::ranges::all_of(text::split(given.value(), ','), is_number)) {
    return invalid_value(given, "use the numbers of processes: 0,1,2");
  }
  return hand_on(state, given);
}

/// Only the port is used; the host is rank 0's, whatever the flag says.
Done set_endpoint(State& state, const GivenFlag& given) {
  state.endpoint = given.value();
  const auto colon = state.endpoint.rfind(':');
  if (colon == std::string::npos) return {};
  const auto number = text::to_number(std::string_view(state.endpoint).substr(colon + 1), 65535);
  // An endpoint of etcd may be a URL, and a variable is expanded later; anything that is not a port is refused, as
  // torchrun does.
  if (!number && state.endpoint.find('$', colon) == std::string::npos) {
    return invalid_value(given, "use HOST or HOST:PORT with a port from 0 to 65535");
  }
  if (number && *number > 0) state.endpoint_port = static_cast<std::uint32_t>(*number);
  return {};
}

constexpr std::string_view slurm_watches = "with an agent handed to it; without one Slurm watches the processes";
constexpr std::string_view agent_logs = "starts the real torchrun on each node, which writes or filters the output";

std::vector<Row<State>> shape_rows() {
  return {
      {{"--nnodes", 1, F::translated, "--nodes=N, or --nodes=MIN-MAX"}, set_nodes},
      {{"--nproc_per_node --nproc-per-node", 1, F::translated,
        "--ntasks-per-node=N; with gpu, auto, cpu, xpu the real torchrun counts on each node"},
       set_processes},
      {{"--rdzv_backend --rdzv-backend", 1, F::translated,
        "srun is the meeting point; handed to the real torchrun where that is started"},
       keep<&State::backend>},
      {{"--rdzv_endpoint --rdzv-endpoint", 1, F::translated,
        "the port becomes master_port=N; the host is that of rank 0, whatever it says"},
       set_endpoint},
      {{"--rdzv_id --rdzv-id", 1, F::translated,
        "the step is the group; handed to the real torchrun where that is started"},
       keep<&State::id>},
      {{"--rdzv_conf --rdzv-conf", 1, F::translated,
        "handed to the real torchrun where that is started; else not needed"},
       set_rendezvous},
      {{"--standalone", 0, F::translated, "--nodes=1"}, mark<&State::standalone>},
  };
}

std::vector<Row<State>> agent_rows() {
  return {
      {{"--max_restarts --max-restarts", 1, F::handed_on, "starts the real torchrun on each node, if N is not 0",
        "int"},
       set_restarts},
      {{"--monitor_interval --monitor-interval", 1, F::handed_on, slurm_watches, "float"}, hand_on_if_needed},
      {{"--start_method --start-method", 1, F::handed_on, slurm_watches, "spawn|fork|forkserver"}, hand_on_if_needed},
      {{"--event_log_handler --event-log-handler", 1, F::handed_on, slurm_watches}, hand_on_if_needed},
      {{"--role", 1, F::handed_on, slurm_watches}, hand_on_if_needed},
      {{"-m --module", 0, F::translated, "python -m SCRIPT"}, mark<&State::module>},
      {{"--no_python --no-python", 0, F::translated, "SCRIPT is started as it is"}, mark<&State::program>},
      {{"--run_path --run-path", 0, F::handed_on, "starts the real torchrun on each node"}, hand_on},
      {{"--log_dir --log-dir", 1, F::handed_on, agent_logs}, hand_on},
      {{"-r --redirects", 1, F::handed_on, agent_logs}, hand_on_streams},
      {{"-t --tee", 1, F::handed_on, agent_logs}, hand_on_streams},
      {{"--log_line_prefix_template --log-line-prefix-template", 1, F::handed_on, agent_logs}, hand_on},
      {{"--local_ranks_filter --local-ranks-filter", 1, F::handed_on, agent_logs}, hand_on_ranks},
      {{"--duplicate_stdout_filters --duplicate-stdout-filters", 1, F::handed_on, agent_logs}, hand_on},
      {{"--duplicate_stderr_filters --duplicate-stderr-filters", 1, F::handed_on, agent_logs}, hand_on},
      {{"--logs_specs --logs-specs", 1, F::handed_on, agent_logs}, hand_on},
  };
}

std::vector<Row<State>> other_rows() {
  return {
      {{"--node_rank --node-rank", 1, F::ignored, "each node is told its own", "int"}},
      {{"--master_addr --master-addr", 1, F::ignored,
        "the processes meet on the host of rank 0, wherever Slurm puts it"}},
      {{"--master_port --master-port", 1, F::translated, "master_port=N", "int"}, set_port},
      {{"--local_addr --local-addr", 1, F::ignored, "each node has its own address"}},
      {{"--numa_binding --numa-binding", 1, F::handed_on,
        "starts the real torchrun on each node, which binds its processes", "node|socket|exclusive|core-complex"},
       hand_on},
      {{"--signals_to_handle --signals-to-handle", 1, F::handed_on, slurm_watches}, hand_on_if_needed},
      {{"--shutdown_timeout --shutdown-timeout", 1, F::handed_on, slurm_watches, "int+"}, hand_on_if_needed},
      {{"--virtual_local_rank --virtual-local-rank", 0, F::handed_on, "starts the real torchrun on each node"},
       hand_on},
      ignored("--use_env --use-env", 0, "each process has LOCAL_RANK in its environment, as under torchrun"),
      {{"--print_completion --print-completion", 1, F::refused, "completions are installed with aml-dist"}},
      {{"-h --help", 0, F::translated, "examples and the flags that matter"}, mark<&State::help>},
      {{"--version", 0, F::translated, "the release of aml-dist"}, mark<&State::version>},
  };
}

std::vector<Row<State>> rows() { return join_rows({shape_rows(), agent_rows(), other_rows(), own_rows<State>()}); }

/// torchrun takes the defaults of these from the environment.
Done read_defaults(State& state) {
  const std::pair<const char*, Apply> defaults[] = {{"PET_NNODES", set_nodes},
                                                    {"PET_NPROC_PER_NODE", set_processes},
                                                    {"PET_MAX_RESTARTS", set_restarts},
                                                    {"PET_MASTER_PORT", set_port}};
  if (own_variable("AMLDIST_STAMP")) return {};  // variables of an outer step of ours are not the user's request
  for (const auto& [name, apply] : defaults) {
    const auto value = own_variable(name);
    if (!value) continue;
    GivenFlag given{0, name, {*value}};
    if (auto status = apply(state, given); !status) return status.error();
    if (apply == &set_restarts && !state.handed_on.empty()) state.handed_on.front() = "--max_restarts";
  }
  return {};
}

/// Slurm starts each process.
void per_process(State& state, std::vector<std::string> program) {
  StepLine& line = state.line;
  if (!state.handed_on.empty()) {
    line.note(concat({state.handed_on.front(), " is ignored: without an agent Slurm watches the processes"}));
  }
  line.srun.set("ntasks-per-node", state.processes);
  line.option = "pytorch";
  if (state.processes != "1" && !own_variable("OMP_NUM_THREADS")) {
    line.set_variable("OMP_NUM_THREADS", "1");  // as torchrun does
  }
  if (!state.program) {
    line.words = {python(), "-u"};
    if (state.module) line.words.emplace_back("-m");
  }
  line.words.insert(line.words.end(), program.begin(), program.end());
}

/// Slurm starts one torchrun on each node, which finds the others by PET_* or by --rdzv-endpoint.
void per_node(State& state, std::vector<std::string> program) {
  StepLine& line = state.line;
  const bool number = text::to_number(state.processes, 65536).has_value();
  line.srun.set("ntasks-per-node", "1");
  // In an allocation the processes share what that has on the node; elsewhere it has to be asked for.
  if (number && !own_variable("SLURM_JOB_ID")) line.srun.set("cpus-per-task", state.processes);
  line.option = "pytorch,launch=per-node";
  line.words = {"torchrun"};
  if (state.processes == "xpu") line.words.insert(line.words.end(), {"--nproc_per_node", "xpu"});
  else line.add_key(concat({"nproc_per_node=", state.processes}));
  if (!state.backend.empty() && state.backend != "static") {
    const bool meets_at_rank_0 = state.backend == "c10d" || state.endpoint.empty();
    add_flag(line.words, "--rdzv_backend", state.backend);
    add_flag(line.words, "--rdzv_endpoint", meets_at_rank_0 ? "$MASTER_ADDR:$MASTER_PORT" : state.endpoint);
    line.expand = meets_at_rank_0;
    if (!state.id.empty()) add_flag(line.words, "--rdzv_id", state.id);
  }
  if (!state.conf.empty()) add_flag(line.words, "--rdzv_conf", state.conf);
  line.words.insert(line.words.end(), state.handed_on.begin(), state.handed_on.end());
  if (state.module) line.words.emplace_back("--module");
  if (state.program) line.words.emplace_back("--no_python");
  line.words.insert(line.words.end(), program.begin(), program.end());
}

Done translate(State& state, const Tool<State>& /*tool*/, std::vector<std::string> program,
               const std::vector<std::string>& /*words*/) {
  const bool runs_path = std::ranges::find(state.handed_on, "--run_path") != state.handed_on.end();
  if (state.module && state.program && !runs_path) {  // --run-path goes before both
    return Error{Errc::invalid_argument, "--module and --no-python cannot be combined: give one"};
  }
  if (state.standalone) state.least_nodes = state.most_nodes = 1;
  state.line.binds_nothing = true;
  const auto nodes = std::to_string(state.least_nodes);
  state.line.srun.set(
      "nodes", state.least_nodes == state.most_nodes ? nodes : concat({nodes, "-", std::to_string(state.most_nodes)}));
  if (state.agent) per_node(state, std::move(program));
  else per_process(state, std::move(program));
  const auto port = state.endpoint_port ? state.endpoint_port : state.port;
  if (port) state.line.add_key(concat({"master_port=", std::to_string(*port)}));
  return {};
}

}  // namespace

int run(int argc, char** argv) {
  return run_tool(Tool<State>{{.tool = "torchrun", .argparse = true}, help, rows(), read_defaults, translate}, argc,
                  argv);
}

}  // namespace amldist::launchers::torchrun
