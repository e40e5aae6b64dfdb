#include "launch/frameworks/launchers.hpp"

#include <algorithm>
#include <array>

#include "base/text/shell_commands.hpp"
#include "base/text/text.hpp"

namespace amldist::launch {
namespace {

using text::concat;
using Words = std::span<const std::string>;

/// Flags are lists of names without dashes in front, and with '-' where a user may write '_'.
struct Launcher {
  std::string_view name;         ///< as users write it
  std::string_view program;      ///< or module of Python, "torch.distributed.run"
  std::string_view subcommands;  ///< one of which it needs to be a launcher; empty: it always is one
  LauncherReach reach;
  std::string_view processes;  ///< flags for how many it starts
  std::string_view nodes;
  std::string_view node_rank;
  std::string_view nodes_variable = {};  ///< in place of the flag for nodes
};

// Sources: torch 2.15 run.py; accelerate 1.15 launch.py; lightning 2.5 fabric/cli.py; composer 0.30 cli/launcher.py;
// DeepSpeed 0.18 launcher/runner.py; colossalai 0.5 cli/launcher; horovod 0.28 runner/launch.py; mpirun(1) of Open MPI,
// MPICH, MVAPICH. Not compared with their sources: ft_launcher, tune run, llamafactory-cli, ray symmetric-run. axolotl
// starts accelerate by default, or only with --accelerate, by its release: it is warned about, never refused.
constexpr auto its_node = LauncherReach::node;
constexpr auto all_nodes = LauncherReach::world;
constexpr std::string_view of_torchrun = "PET_NNODES";  ///< accelerate, axolotl and others call torchrun's functions
constexpr std::array<Launcher, 34> launcher_table = {{
    {"torchrun", "torchrun", "", its_node, "nproc-per-node", "nnodes", "node-rank", of_torchrun},
    {"torch.distributed.run", "torch.distributed.run", "", its_node, "nproc-per-node", "nnodes", "node-rank",
     of_torchrun},
    {"torch.distributed.launch", "torch.distributed.launch", "", its_node, "nproc-per-node", "nnodes", "node-rank",
     of_torchrun},
    {"ft_launcher", "ft_launcher", "", its_node, "nproc-per-node", "nnodes", "node-rank", of_torchrun},
    {"tune run", "tune", "run", its_node, "nproc-per-node", "nnodes", "node-rank", of_torchrun},
    {"accelerate launch", "accelerate", "launch", its_node, "num-processes", "num-machines", "machine-rank",
     of_torchrun},
    {"accelerate launch", "accelerate.commands.launch", "", its_node, "num-processes", "num-machines", "machine-rank",
     of_torchrun},
    {"accelerate launch", "accelerate.commands.accelerate_cli", "launch", its_node, "num-processes", "num-machines",
     "machine-rank", of_torchrun},
    {"axolotl", "axolotl", "train evaluate", its_node, "num-processes nproc-per-node", "num-machines nnodes",
     "machine-rank node-rank", of_torchrun},
    {"llamafactory-cli", "llamafactory-cli", "train", its_node, "", "", "", "NNODES"},
    {"llamafactory-cli", "lmf", "train", its_node, "", "", "", "NNODES"},
    {"fabric run", "fabric", "run", its_node, "devices", "num-nodes", "node-rank"},
    {"lightning run", "lightning", "run", its_node, "devices", "num-nodes", "node-rank"},
    {"composer", "composer", "", its_node, "nproc n", "world-size", "node-rank"},
    {"composer", "composer.cli.launcher", "", its_node, "nproc n", "world-size", "node-rank"},
    {"ray symmetric-run", "ray", "symmetric-run", its_node, "", "address", ""},
    {"deepspeed", "deepspeed", "", all_nodes, "num-gpus", "num-nodes", "node-rank"},
    {"deepspeed", "deepspeed.launcher.runner", "", all_nodes, "num-gpus", "num-nodes", "node-rank"},
    {"colossalai run", "colossalai", "run", all_nodes, "nproc-per-node", "num-nodes", ""},
    {"horovodrun", "horovodrun", "", all_nodes, "np num-proc", "", ""},
    {"horovodrun", "horovod.runner", "", all_nodes, "np num-proc", "", ""},
    {"horovodrun", "horovod.runner.launch", "", all_nodes, "np num-proc", "", ""},
    {"mpirun", "mpirun", "", all_nodes, "np n c", "", ""},
    {"mpirun", "mpirun.openmpi", "", all_nodes, "np n c", "", ""},
    {"mpirun", "mpirun.mpich", "", all_nodes, "np n", "", ""},
    {"mpiexec", "mpiexec", "", all_nodes, "np n c", "", ""},
    {"mpiexec", "mpiexec.openmpi", "", all_nodes, "np n c", "", ""},
    {"mpiexec", "mpiexec.mpich", "", all_nodes, "np n", "", ""},
    {"mpiexec", "mpiexec.hydra", "", all_nodes, "np n", "", ""},
    {"mpirun_rsh", "mpirun_rsh", "", all_nodes, "np n", "", ""},
    {"orterun", "orterun", "", all_nodes, "np n c", "", ""},
    {"prterun", "prterun", "", all_nodes, "np n c", "", ""},
    {"oshrun", "oshrun", "", all_nodes, "np n c", "", ""},
    {"srun", "srun", "", all_nodes, "n ntasks", "N nodes", ""},
}};

/// Programs that start the command behind them.
struct Front {
  std::string_view program;
  std::string_view subcommands;  ///< one of which they need for that; empty: none
  std::string_view with_value;   ///< options whose value is the next word
  bool has_operand = false;      ///< one word before the command, such as an image
};

constexpr std::array<Front, 58> fronts = {{
    {"env", "", "-u --unset -C --chdir"},
    {"nsys", "profile launch", "-o -t -s -w -f -c -y -d -b -e -x -p -q"},
    {"ncu", "", "-o -k -c -s --set --target-processes"},
    {"compute-sanitizer", "", "--tool --log-file --target-processes"},
    {"rocprof", "", "-o -i"},
    {"rocprofv3", "", "-o -d -i"},
    {"likwid-pin", "", "-c"},
    {"valgrind", "", ""},
    {"numactl", "", "-N -m -C -i -p"},
    {"uv", "run", "--with --python -p --extra --group --project --directory --env-file --with-requirements"},
    {"conda", "run", "-n -p --name --prefix --cwd"},
    {"mamba", "run", "-n -p --name --prefix --cwd"},
    {"micromamba", "run", "-n -p --name --prefix --cwd"},
    {"uvx", "", "--from --with --python -p"},
    {"poetry", "run", "-C -P"},
    {"pdm", "run", "-p --project"},
    {"hatch", "run", "-e --env"},
    {"rye", "run", ""},
    {"pipenv", "run", ""},
    {"pixi", "run", "-e --environment --manifest-path"},
    {"apptainer", "exec", "-B --bind --env --pwd -H --home", true},
    {"singularity", "exec", "-B --bind --env --pwd -H --home", true},
    {"podman", "run exec", "-v --volume -e --env -w --workdir --name --device", true},
    {"podman-hpc", "run exec", "-v --volume -e --env -w --workdir --name --device", true},
    {"docker", "run exec", "-v --volume -e --env -w --workdir --name --device --gpus --ipc --shm-size", true},
    {"shifter", "", "--image --module -i -m"},
    {"aml-dist", "exec", ""},
    {"ddtrace-run", "", ""},
    {"taskset", "", "-c --cpu-list"},
    {"timeout", "", "-k -s --signal --kill-after"},
    {"nice", "", "-n"},
    {"ionice", "", "-c -n"},
    {"chrt", "", ""},
    {"stdbuf", "", "-i -o -e"},
    {"sudo", "", "-u -g"},
    {"strace", "", "-o -e -s -E"},
    {"perf", "record stat", "-o -e -F"},
    {"py-spy", "record", "-o -r -f -d"},
    {"gdb", "", "-ex"},
    {"ltrace", "", "-o -e -s"},
    {"catchsegv", "", ""},
    {"xvfb-run", "", "-n -s"},
    {"setsid", "", ""},
    {"unbuffer", "", ""},
    {"exec", "", "-a"},
    {"time", "", "-f -o"},
    {"nohup", "", ""},
    {"command", "", ""},
    {"if", "", ""},
    {"then", "", ""},
    {"else", "", ""},
    {"elif", "", ""},
    {"do", "", ""},
    {"while", "", ""},
    {"until", "", ""},
    {"!", "", ""},
    {"{", "", ""},
    {"eval", "", ""},
}};

bool has_word(std::string_view list, std::string_view word) {
  const auto words = text::split(list, ' ');
  return !word.empty() && std::ranges::find(words, word) != words.end();
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string_view base_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

bool is_assignment(std::string_view word) {
  const auto equals = word.find('=');
  if (equals == std::string_view::npos || equals == 0 || is_digit(word.front())) return false;
  return std::ranges::all_of(word.substr(0, equals), [](char c) {
    return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  });
}

/// Behind the options, of which some take the next word as their value.
Words behind_options(Words words, std::string_view with_value) {
  while (!words.empty() && words.front().starts_with('-')) {
    const bool is_end = words.front() == "--";
    const std::size_t length = has_word(with_value, words.front()) ? 2 : 1;
    words = words.subspan(std::min(length, words.size()));
    if (is_end) break;
  }
  return words;
}

/// The command that a front starts; empty: none.
Words behind(const Front& front, Words words) {
  words = words.subspan(1);
  if (!front.subcommands.empty()) {
    words = behind_options(words, front.with_value);
    if (words.empty() || !has_word(front.subcommands, words.front())) return {};
    words = words.subspan(1);
  }
  words = behind_options(words, front.with_value);
  if (front.has_operand && !words.empty()) words = words.subspan(1);
  while (!words.empty() && !words.front().empty() && is_digit(words.front().front())) words = words.subspan(1);
  return words;
}

/// A flag's name as in the table; empty for another word. "-n8" is the flag n.
std::string flag_name(std::string_view word) {
  if (!word.starts_with('-')) return {};
  const bool has_digits = word.size() > 2 && word[1] != '-' && is_digit(word[2]);
  word.remove_prefix(word.starts_with("--") ? 2 : 1);
  std::string name(has_digits ? word.substr(0, 1) : word.substr(0, word.find('=')));
  std::ranges::replace(name, '_', '-');
  return name;
}

/// The value of the flag that is the first of these words: "--np=8", "-np 8", "-n8".
std::string flag_value(Words words) {
  const std::string_view word = words.front();
  const auto equals = word.find('=');
  if (equals != std::string_view::npos) return std::string(word.substr(equals + 1));
  if (word.size() > 2 && word[1] != '-' && is_digit(word[2])) return std::string(word.substr(2));
  return words.size() > 1 ? words[1] : std::string();
}

/// Reads a launcher's own flags, which end where the user's program begins. A program that is no script is not
/// recognized: its flags come later, so the first of a name counts.
LauncherCommand read_flags(const Launcher& launcher, Words words) {
  LauncherCommand out{.name = launcher.name, .reach = launcher.reach};
  out.nodes_flag = text::split(launcher.nodes, ' ').front();
  out.nodes_variable = launcher.nodes_variable;
  for (; !words.empty(); words = words.subspan(1)) {
    const std::string& word = words.front();
    if (word.ends_with(".py") || word == "-m" || word == "--module" || word == "--") break;
    const std::string name = flag_name(word);
    const std::string value = flag_value(words);
    if (has_word(launcher.processes, name) && out.processes.empty()) out.processes = value;
    else if (has_word(launcher.nodes, name) && out.nodes.empty()) out.nodes = value;
    else if (has_word(launcher.node_rank, name) && out.node_rank.empty()) out.node_rank = value;
    else if (name == "rdzv-endpoint" || (name == "rdzv-backend" && value != "static")) out.has_meeting_point = true;
    else if (name == "standalone") out.is_alone = true;
    else if (name == "config-file") out.has_config = true;
  }
  return out;
}

/// The launcher of this name that these words are about, which follow it.
std::optional<LauncherCommand> launcher_of(std::string_view name, Words behind) {
  for (const Launcher& each : launcher_table) {
    if (each.program != name) continue;
    if (each.subcommands.empty()) return read_flags(each, behind);
    if (!behind.empty() && has_word(each.subcommands, behind.front())) return read_flags(each, behind.subspan(1));
  }
  return std::nullopt;
}

/// "python -u -m torch.distributed.run ..." or "python /opt/bin/torchrun ...".
std::optional<LauncherCommand> launcher_of_python(Words words) {
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "-m") return i + 1 < words.size() ? launcher_of(words[i + 1], words.subspan(i + 2)) : std::nullopt;
    if (word.starts_with("-m")) return launcher_of(std::string_view(word).substr(2), words.subspan(i + 1));
    if (word == "-c") return std::nullopt;
    if (word == "-X" || word == "-W") ++i;
    else if (!word.starts_with('-')) return launcher_of(base_name(word), words.subspan(i + 1));
  }
  return std::nullopt;
}

/// The line of "bash -lc LINE"; nullopt: it runs a script.
std::optional<std::string_view> line_of_shell(Words words) {
  for (std::size_t i = 1; i + 1 < words.size() && words[i].starts_with('-'); ++i) {
    if (!words[i].starts_with("--") && words[i].ends_with('c')) return words[i + 1];
  }
  return std::nullopt;
}

/// The command behind assignments and what else stands before it; empty: none.
Words without_fronts(Words words) {
  while (!words.empty()) {
    const auto* const front = std::ranges::find(fronts, base_name(words.front()), &Front::program);
    if (is_assignment(words.front())) words = words.subspan(1);
    else if (front != fronts.end()) words = behind(*front, words);
    else break;
  }
  return words;
}

bool is_shell(std::string_view name) { return has_word("bash sh dash zsh ksh", name); }

bool is_number(std::string_view text) { return text::to_number(text, UINT32_MAX).has_value(); }

/// Whether a command of a line asks for the number of its task: `[ $SLURM_PROCID = 0 ]`, `if ((RANK)); then`.
bool asks_for_rank(const std::vector<std::string>& words) {
  const auto is_test = [](const std::string& word) { return has_word("[ [[ test case", word); };
  const auto is_number_of_task = [](const std::string& word) {
    return std::ranges::any_of(std::array{"RANK", "PROCID", "LOCALID", "NODEID"},
                               [&](const char* const name) { return word.find(name) != std::string::npos; });
  };
  // The parentheses of ((RANK == 0)) part commands.
  const bool is_arithmetic = is_number_of_task(words.front()) && !is_assignment(words.front());
  return is_arithmetic || (std::ranges::any_of(words, is_test) && std::ranges::any_of(words, is_number_of_task));
}

std::string tasks_of(const StepShape& step) {
  return step.most_on_a_node > 1 ? concat({text::count(step.most_on_a_node, "task"), " on the node"})
                                 : concat({text::count(step.tasks, "task"), " on ", text::count(step.nodes, "node")});
}

/// "would start 8 processes".
std::string starts(const LauncherCommand& command) {
  const auto number = text::to_number(command.processes, UINT32_MAX);
  return number ? concat({"would start ", text::count(*number, "process")})
                : std::string("would start a node's processes");
}

std::string remedy(const Spec& spec, const LauncherCommand& command) {
  if (command.reach == LauncherReach::world) {
    return concat({"leave ", command.name, " out (srun starts every process), or start it outside srun"});
  }
  const bool has_per_node = spec.kind == Kind::pytorch || spec.kind == Kind::mpi;
  return has_per_node ? "use launch=per-node with --ntasks-per-node=1"
                      : concat({"leave ", command.name, " out (srun starts every process)"});
}

/// One launcher on each of several nodes, not told of the others.
Error several_worlds(const StepShape& step, const LauncherCommand& command) {
  const std::string what =
      concat({command.name, " on each of ", text::count(step.nodes, "node"),
              " is not told of the others and would make ", std::to_string(step.nodes), " worlds: "});
  if (command.reach == LauncherReach::world) {
    return {Errc::mismatch, concat({what, "leave it out (srun starts every process), or start it outside srun"})};
  }
  const std::string nodes = std::to_string(step.nodes);
  return {Errc::mismatch, command.nodes_flag.empty() ? concat({what, "export ", command.nodes_variable, "=", nodes})
                                                     : concat({what, "write bash -c '", command.name, " --",
                                                               command.nodes_flag, "=N --node-rank=$NODE_RANK ...'"})};
}

}  // namespace

std::optional<LauncherCommand> find_launcher(std::span<const std::string> words) {
  words = without_fronts(words);
  if (words.empty()) return std::nullopt;
  const std::string_view name = base_name(words.front());
  if (name.starts_with("python")) return launcher_of_python(words);
  if (is_shell(name)) {
    const auto line = line_of_shell(words);
    return line ? find_launcher(*line) : std::nullopt;
  }
  return launcher_of(name, words.subspan(1));
}

std::optional<LauncherCommand> find_launcher(std::string_view shell_line) {
  bool is_guarded = false;
  for (const auto& words : text::shell_commands(shell_line)) {
    if (auto found = find_launcher(Words(words))) {
      found->is_guarded = found->is_guarded || is_guarded;
      return found;
    }
    is_guarded = is_guarded || asks_for_rank(words);
  }
  return std::nullopt;
}

std::string script_of(std::span<const std::string> words) {
  words = without_fronts(words);
  if (words.empty()) return {};
  if (!is_shell(base_name(words.front()))) return words.front().find('/') != std::string::npos ? words.front() : "";
  if (line_of_shell(words)) return {};
  words = behind_options(words.subspan(1), "-o -O --rcfile --init-file");
  return words.empty() ? std::string() : words.front();
}

std::optional<LauncherCommand> find_launcher_in_script(std::string_view script, bool is_for_shell) {
  const std::string_view first = script.substr(0, script.find('\n'));
  const auto interpreter = text::shell_commands(first.starts_with("#!") ? first.substr(2) : "");
  const auto words = interpreter.empty() ? Words() : without_fronts(Words(interpreter.front()));  // behind env
  const bool names_shell = !words.empty() && is_shell(base_name(words.front()));
  return is_for_shell || names_shell ? find_launcher(script) : std::nullopt;
}

namespace {

/// mpirun and its like, whose processes inherit the numbers of the one task that started them.
std::string warn_of_copies(const Spec& spec, const LauncherCommand& command) {
  constexpr std::string_view leaves_rank = "mpirun mpiexec orterun prterun oshrun mpirun_rsh";
  const auto processes = text::to_number(command.processes, UINT32_MAX);
  if (!has_word(leaves_rank, command.name) || !processes || *processes < 2 || spec.launch == Launch::per_node)
    return {};
  const std::string number = std::to_string(*processes);
  return concat({"1 task, which would start ", number, " processes (", command.name,
                 "), each of them with RANK=0 and WORLD_SIZE=1: leave ", command.name, " out and use -n", number,
                 spec.kind == Kind::mpi ? ", or use launch=per-node" : ""});
}

}  // namespace

Result<std::string> check_launcher(const Spec& spec, const StepShape& step, const LauncherCommand& command,
                                   const EnvironmentReader& environment) {
  if (command.is_guarded || spec.kind == Kind::ray) return std::string();
  if (step.tasks == 1) return warn_of_copies(spec, command);
  const bool per_node = spec.launch == Launch::per_node;
  const bool is_torch = command.nodes_variable == of_torchrun;
  const bool meets = command.has_meeting_point || (is_torch && environment("PET_RDZV_ENDPOINT"));
  const bool told_by_us = per_node && is_torch && spec.kind == Kind::pytorch;  // PET_NNODES and its like
  const bool reads = command.nodes.empty() && !command.nodes_variable.empty() && !told_by_us;
  const std::string nodes = reads ? environment(command.nodes_variable).value_or("") : command.nodes;
  if (!command.node_rank.empty() && is_number(command.node_rank) && !meets) {
    return Error{Errc::mismatch, concat({command.name, " is told that it is on node ", command.node_rank, " in all ",
                                         tasks_of(step), " (a batch script has put the number there): ",
                                         per_node ? "leave that flag out" : "write bash -c '... $NODE_RANK ...'"})};
  }
  const bool few = is_number(nodes) && *text::to_number(nodes, UINT32_MAX) < step.nodes;
  if (command.reach == LauncherReach::node && step.nodes > 1 && (few || command.is_alone)) {
    return Error{Errc::mismatch,
                 concat({command.name,
                         command.is_alone ? " --standalone"
                                          : concat({" of ", text::count(*text::to_number(nodes, UINT32_MAX), "node")}),
                         " on each of ", text::count(step.nodes, "node"), " would make ", std::to_string(step.nodes),
                         " worlds: leave that flag out and use launch=per-node"})};
  }
  const bool knows_others = meets || !nodes.empty() || !command.node_rank.empty();
  if (per_node && step.nodes > 1 && !told_by_us && !knows_others) return several_worlds(step, command);
  if (per_node || (knows_others && step.most_on_a_node == 1)) return std::string();
  std::string sentence =
      concat({tasks_of(step), ", each of which ", starts(command), " (", command.name, "): ", remedy(spec, command)});
  const bool may_be_meant = knows_others || command.has_config || command.name == "srun" || command.name == "axolotl";
  return may_be_meant ? Result<std::string>(std::move(sentence)) : Error{Errc::mismatch, std::move(sentence)};
}

}  // namespace amldist::launch
