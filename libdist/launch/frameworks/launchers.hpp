// Programs that start a node's processes, or those of all nodes, by themselves: the one table of them. doctor, aml-run
// and srun's side of the plugin read it.
//
//   torchrun, python -m torch.distributed.run     a node's processes; told the node by --node_rank and --nnodes
//   accelerate launch, fabric run, composer, ...  the same with flags of their own
//   mpirun, horovodrun, deepspeed, srun           the processes of all nodes, from one of them
//
// As the program of each of several tasks they would make as many worlds, and no process would know of it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/text/environment.hpp"
#include "base/text/result.hpp"
#include "launch/option/spec.hpp"

namespace amldist::launch {

/// How far a launcher's processes go.
enum class LauncherReach {
  node,   ///< one launcher on each node starts that node's processes
  world,  ///< one launcher starts the processes of all nodes
};

/// What a command line says to a launcher.
struct LauncherCommand {
  std::string_view name = {};  ///< as users write it: "torchrun", "accelerate launch"
  LauncherReach reach = LauncherReach::node;
  std::string processes = {};            ///< how many it starts, as written; empty: it decides
  std::string nodes = {};                ///< of how many nodes it is told, as written; empty: of none
  std::string node_rank = {};            ///< likewise which node it is on
  bool has_meeting_point = false;        ///< its processes find each other by a store of their own (--rdzv_endpoint)
  bool is_alone = false;                 ///< told to take its node for the only one (--standalone)
  bool has_config = false;               ///< a file may say the rest
  bool is_guarded = false;               ///< the line has asked for the task's number: `[ $RANK != 0 ] || mpirun ...`
  std::string_view nodes_flag = {};      ///< by which it is told of other nodes: "num-nodes"
  std::string_view nodes_variable = {};  ///< or the variable: "PET_NNODES"
};

/// As far as it matters for launchers.
struct StepShape {
  std::uint32_t tasks = 1;
  std::uint32_t nodes = 1;
  std::uint32_t most_on_a_node = 1;
};

/// The launcher that a command starts, also behind env, numactl, nsys, uv run, conda run and their like, in `bash -c`
/// and as `python -m`; nullopt: no known one. By names alone. Pure.
[[nodiscard]] std::optional<LauncherCommand> find_launcher(std::span<const std::string> words);

/// The same for a line that a shell reads.
[[nodiscard]] std::optional<LauncherCommand> find_launcher(std::string_view shell_line);

/// The file that such a command runs, which may be a script for a shell: "job.sh" of `bash job.sh` and of `env A=b
/// ./job.sh`. Empty if it runs no file.
[[nodiscard]] std::string script_of(std::span<const std::string> words);

/// The launcher in the text of a file, if it is a script for a shell.
[[nodiscard]] std::optional<LauncherCommand> find_launcher_in_script(std::string_view script, bool is_for_shell);

/// What becomes of a step whose tasks are launchers. An error: the step must not start, since several worlds would run
/// or wait for each other. A text: a warning, for what may be meant. An empty text: nothing to say. `environment` is
/// the user's: variables (PET_NNODES) stand for flags.
[[nodiscard]] Result<std::string> check_launcher(const Spec& spec, const StepShape& step,
                                                 const LauncherCommand& command, const EnvironmentReader& environment);

}  // namespace amldist::launch
