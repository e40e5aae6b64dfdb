// aml-torchrun: torchrun's command line as one srun line.
//
// Processes are started by Slurm, one task each, unless a flag needs torchrun's own agent (restarts, logs by rank,
// ...): then the real torchrun is started, once on each node, and gets those flags.
#include <algorithm>
#include <optional>

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
  aml-torchrun --nproc-per-node=4 train.py                      one node, four processes
  aml-torchrun --nnodes=2 --nproc-per-node=4 train.py --lr 0.1  eight tasks of Slurm
  aml-torchrun --nnodes=2 --nproc-per-node=gpu train.py         as many as a node has GPUs
  aml-torchrun --nnodes=2 --nproc-per-node=4 --dry-run train.py print the srun line
  aml-torchrun --slurm=--gpus-per-node=4 --slurm=--time=1:00:00 --nproc-per-node=4 train.py

aml-torchrun [FLAG]... SCRIPT [ARGUMENT]...

torchrun's command line as a step of Slurm: in an allocation in it, else in one of its own.
  --nnodes N|MIN:MAX       nodes
  --nproc-per-node N|gpu   processes on each; gpu, auto, cpu: torchrun counts them
  -m, --module             SCRIPT is a module
  --no-python              SCRIPT is a program
  --max-restarts N, --tee, --log-dir, ...   the real torchrun runs on each node and gets these
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
  bool module = false;
  bool program = false;
  bool run_path = false;
  std::string backend;
  std::string endpoint;
  std::string id;
  std::string conf;
  std::optional<std::uint32_t> port;
};

using Done = Result<void>;
using F = FlagHandling;
using Apply = Done (*)(State&, const GivenFlag&);

Done set_nodes(State& state, const GivenFlag& given) {
  const auto parts = text::split(given.value(), ':');
  const auto low = text::to_number(parts.front(), 65536);
  const auto high = text::to_number(parts.back(), 65536);
  if (parts.size() > 2 || !low || !high || *low == 0 || *low > *high) {
    return Error{Errc::invalid_argument,
                 concat({given.name, " ", quote(given.value()), " is not possible: give N or MIN:MAX"})};
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
  const auto number = text::to_number(value, 65536);
  const bool word = value == "gpu" || value == "cpu" || value == "auto" || value == "xpu";
  if (!word && (!number || *number == 0)) {
    return Error{Errc::invalid_argument, concat({given.name, " ", quote(value),
                                                 " is not possible: give a whole number, or "
                                                 "auto, cpu, gpu or xpu"})};
  }
  state.processes = value;
  if (word) state.agent = true;
  return {};
}

/// The spelling that every release of torchrun takes: with underscores.
std::string old_spelling(std::string name) {
  std::replace(name.begin() + std::min<std::ptrdiff_t>(2, std::ssize(name)), name.end(), '-', '_');
  return name;
}

/// Only with an agent that something else asks for.
Done hand_on_if_needed(State& state, const GivenFlag& given) {
  state.handed_on.push_back(old_spelling(given.name));
  state.handed_on.insert(state.handed_on.end(), given.values.begin(), given.values.end());
  return {};
}

/// torchrun's agent does it; without the agent it means nothing.
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
  const auto number = number_of(given, 1, 65535);
  if (!number) return number.error();
  state.port = *number;
  return {};
}

/// The port counts; the host is rank 0's, whatever the flag says.
Done set_endpoint(State& state, const GivenFlag& given) {
  state.endpoint = given.value();
  const auto colon = state.endpoint.rfind(':');
  if (colon == std::string::npos) return {};
  const auto number = text::to_number(std::string_view(state.endpoint).substr(colon + 1), 65535);
  // An endpoint of etcd may be a URL, a variable is expanded later; a port that is none is refused, as torchrun does.
  if (!number && state.endpoint.find('$', colon) == std::string::npos) {
    return Error{Errc::invalid_argument, concat({given.name, " ", quote(state.endpoint),
                                                 ": give HOST or HOST:PORT with a port from 0 to 65535"})};
  }
  if (number && *number > 0) state.port = static_cast<std::uint32_t>(*number);
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
       keep<&State::conf>},
      {{"--standalone", 0, F::translated, "--nodes=1"},
       [](State& state, const GivenFlag&) { return state.least_nodes = state.most_nodes = 1, Done(); }},
  };
}

std::vector<Row<State>> agent_rows() {
  return {
      {{"--max_restarts --max-restarts", 1, F::handed_on, "starts the real torchrun on each node, if N is not 0"},
       set_restarts},
      {{"--monitor_interval --monitor-interval", 1, F::handed_on, slurm_watches}, hand_on_if_needed},
      {{"--start_method --start-method", 1, F::handed_on, slurm_watches}, hand_on_if_needed},
      {{"--event_log_handler --event-log-handler", 1, F::handed_on, slurm_watches}, hand_on_if_needed},
      {{"--role", 1, F::handed_on, slurm_watches}, hand_on_if_needed},
      {{"-m --module", 0, F::translated, "python -m SCRIPT"}, mark<&State::module>},
      {{"--no_python --no-python", 0, F::translated, "SCRIPT is started as it is"}, mark<&State::program>},
      {{"--run_path --run-path", 0, F::handed_on, "starts the real torchrun on each node"}, hand_on},
      {{"--log_dir --log-dir", 1, F::handed_on, agent_logs}, hand_on},
      {{"-r --redirects", 1, F::handed_on, agent_logs}, hand_on},
      {{"-t --tee", 1, F::handed_on, agent_logs}, hand_on},
      {{"--log_line_prefix_template --log-line-prefix-template", 1, F::handed_on, agent_logs}, hand_on},
      {{"--local_ranks_filter --local-ranks-filter", 1, F::handed_on, agent_logs}, hand_on},
      {{"--duplicate_stdout_filters --duplicate-stdout-filters", 1, F::handed_on, agent_logs}, hand_on},
      {{"--duplicate_stderr_filters --duplicate-stderr-filters", 1, F::handed_on, agent_logs}, hand_on},
      {{"--logs_specs --logs-specs", 1, F::handed_on, agent_logs}, hand_on},
  };
}

std::vector<Row<State>> other_rows() {
  return {
      {{"--node_rank --node-rank", 1, F::ignored, "each node is told its own"}},
      {{"--master_addr --master-addr", 1, F::ignored,
        "the processes meet on the host of rank 0, wherever Slurm puts it"}},
      {{"--master_port --master-port", 1, F::translated, "master_port=N"}, set_port},
      {{"--local_addr --local-addr", 1, F::ignored, "each node has its own address"}},
      {{"--numa_binding --numa-binding", 1, F::handed_on,
        "starts the real torchrun on each node, which binds its processes"},
       hand_on},
      {{"--signals_to_handle --signals-to-handle", 1, F::handed_on, slurm_watches}, hand_on_if_needed},
      {{"--shutdown_timeout --shutdown-timeout", 1, F::handed_on, slurm_watches}, hand_on_if_needed},
      {{"--virtual_local_rank --virtual-local-rank", 0, F::handed_on, "starts the real torchrun on each node"},
       hand_on},
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
  if (own_variable("AMLDIST_STAMP")) return {};  // those of an outer step of ours are no wish of the user's
  for (const auto& [name, apply] : defaults) {
    const auto value = own_variable(name);
    if (!value) continue;
    GivenFlag given{0, name, {*value}};
    if (auto done = apply(state, given); !done) return done.error();
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
  if (number && !own_variable("SLURM_CPUS_PER_TASK")) line.srun.set("cpus-per-task", state.processes);
  line.option = "pytorch,launch=per-node";
  line.words = {"torchrun"};
  if (state.processes == "xpu") line.words.insert(line.words.end(), {"--nproc_per_node", "xpu"});
  else line.add_key(concat({"nproc_per_node=", state.processes}));
  if (!state.backend.empty() && state.backend != "static") {
    const bool meets_at_rank_0 = state.backend == "c10d" || state.endpoint.empty();
    line.words.insert(line.words.end(), {"--rdzv_backend", state.backend, "--rdzv_endpoint",
                                         meets_at_rank_0 ? "$MASTER_ADDR:$MASTER_PORT" : state.endpoint});
    line.expand = meets_at_rank_0;
    if (!state.id.empty()) line.words.insert(line.words.end(), {"--rdzv_id", state.id});
  }
  if (!state.conf.empty()) line.words.insert(line.words.end(), {"--rdzv_conf", state.conf});
  line.words.insert(line.words.end(), state.handed_on.begin(), state.handed_on.end());
  if (state.module) line.words.emplace_back("--module");
  if (state.program) line.words.emplace_back("--no_python");
  line.words.insert(line.words.end(), program.begin(), program.end());
}

Done translate(State& state, const Tool<State>& /*tool*/, std::vector<std::string> program,
               const std::vector<std::string>& /*words*/) {
  if (state.module && state.program) {
    return Error{Errc::invalid_argument, "--module and --no-python cannot be combined: give one"};
  }
  const auto nodes = std::to_string(state.least_nodes);
  state.line.srun.set(
      "nodes", state.least_nodes == state.most_nodes ? nodes : concat({nodes, "-", std::to_string(state.most_nodes)}));
  if (state.agent) per_node(state, std::move(program));
  else per_process(state, std::move(program));
  if (state.port) state.line.add_key(concat({"master_port=", std::to_string(*state.port)}));
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  return run_tool(Tool<State>{{"torchrun", true, true, true}, help, rows(), read_defaults, translate}, argc, argv);
}
