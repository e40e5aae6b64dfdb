#include "aml_dist/doctor/examination.hpp"

#include <algorithm>
#include <array>

#include "aml_dist/doctor/rules.hpp"
#include "base/text/text.hpp"

namespace amldist::doctor {
namespace {

using text::concat;
using Launcher = Launch (*)(const TaskContext& here);

/// Kinds of step in which a framework is started, as bits.
enum Kinds : unsigned {
  for_pytorch = 1,
  for_mpi = 2,
  for_tensorflow = 4,
  for_jax = 8,
  for_ray = 16,
  for_torch = for_pytorch | for_mpi,
  for_any = 31,
};

struct Row {
  std::string_view framework;
  std::string_view launcher;
  unsigned kinds;
  Rule rule;
  Launcher start;  ///< nullptr: srun starts the process itself
};

/// Checks of the machine, which belong to no launcher.
constexpr std::string_view no_launcher = "-";

constexpr std::array<Row, 26> rows = {{
    {"torch", "srun", for_torch, examine_torch, nullptr},
    {"torch", "torchrun", for_pytorch, examine_torch, start_torchrun},
    {"torch", "torch.distributed.launch", for_pytorch, examine_torch, start_torch_launch},
    {"lightning", "srun", for_torch, examine_lightning, nullptr},
    {"lightning", "torchrun", for_pytorch, examine_lightning, start_torchrun},
    {"transformers", "srun", for_torch, examine_transformers, nullptr},
    {"transformers", "torchrun", for_pytorch, examine_transformers, start_torchrun},
    {"accelerate", "srun", for_torch, examine_accelerate, nullptr},
    {"accelerate", "torchrun", for_pytorch, examine_accelerate, start_torchrun},
    {"accelerate", "accelerate launch", for_pytorch, examine_accelerate, start_accelerate_launch},
    {"deepspeed", "srun", for_torch, examine_deepspeed, nullptr},
    {"deepspeed", "torchrun", for_pytorch, examine_deepspeed, start_torchrun},
    {"ignite", "srun", for_torch, examine_ignite, nullptr},
    {"ignite", "torchrun", for_pytorch, examine_ignite, start_torchrun},
    {"horovod", "srun", for_mpi, examine_horovod, nullptr},
    {"mpi", "srun", for_mpi, examine_mpi, nullptr},
    {"mpi4py", "srun", for_mpi, examine_mpi4py, nullptr},
    {"tensorflow", "srun", for_tensorflow, examine_tensorflow, nullptr},
    {"keras", "srun", for_tensorflow, examine_keras, nullptr},
    {"jax", "srun", for_jax, examine_jax, nullptr},
    {"ray", "aml-dist ray", for_ray, examine_ray, nullptr},
    {"gloo", no_launcher, for_torch, examine_gloo, nullptr},
    {"nccl", no_launcher, for_torch, examine_nccl, nullptr},
    {"amldist", no_launcher, for_any, examine_amldist, nullptr},
    {"torch-amldist", no_launcher, for_torch, examine_torch_amldist, nullptr},
    {"gpus", no_launcher, for_any, examine_gpus, nullptr},
}};
constexpr Row locked_memory = {"locked memory", no_launcher, for_any, examine_locked_memory, nullptr};

unsigned bit_of(launch::Kind kind) {
  switch (kind) {
    case launch::Kind::pytorch:
      return for_pytorch;
    case launch::Kind::mpi:
      return for_mpi;
    case launch::Kind::tensorflow:
      return for_tensorflow;
    case launch::Kind::jax:
      return for_jax;
    case launch::Kind::ray:
      return for_ray;
    case launch::Kind::none:
      break;
  }
  return for_any;
}

std::string kinds_in_words(unsigned kinds) {
  if (kinds == for_torch) return "pytorch or mpi";
  for (const launch::Kind kind :
       {launch::Kind::pytorch, launch::Kind::mpi, launch::Kind::tensorflow, launch::Kind::jax, launch::Kind::ray}) {
    if (kinds == bit_of(kind)) return std::string(to_string(kind));
  }
  return "any kind";
}

/// Why a row does not belong to this step; empty if it does. A framework or a launcher that was asked for always
/// belongs.
std::string why_not(const Row& row, const TaskContext& here, const Selection& selection) {
  if (selection.framework.empty() && here.kind() && (row.kinds & bit_of(*here.kind())) == 0) {
    return concat({"the step has --aml-dist=", to_string(*here.kind()), ", it needs ", kinds_in_words(row.kinds)});
  }
  if (row.launcher == no_launcher || !selection.launcher.empty()) return {};
  if (here.start() == Start::per_process && row.start != nullptr) {
    return "srun starts every process, and each launcher would start all processes again: use launch=per-node for it";
  }
  // Lightning and aml-dist ray start the processes of their node themselves; anything else started without a launcher
  // lacks its ranks.
  if (here.start() == Start::per_node && row.start == nullptr && row.framework != "lightning" &&
      row.framework != "ray") {
    return "with launch=per-node the processes get their ranks from a launcher";
  }
  return {};
}

/// A launcher's own problem comes first; otherwise the outcome is that of the processes that it starts, whose ranks
/// differ.
FrameworkResult run_rule(const Row& row, const TaskContext& here) {
  if (row.start == nullptr) return row.rule(here);
  Launch launch = row.start(here);
  if (launch.itself.outcome != Outcome::fine) return std::move(launch.itself);
  FrameworkResult result = row.rule(launch.child);
  result.rank.reset();
  if (!launch.itself.size) result.size.reset();
  return result;
}

FrameworkResult examine_row(const Row& row, const TaskContext& here, const Selection& selection) {
  const std::string reason = why_not(row, here, selection);
  FrameworkResult result = reason.empty() ? run_rule(row, here) : with({}, {Outcome::skip, reason, {}});
  result.framework = row.framework;
  result.launcher = here.start() == Start::torchrun && row.launcher == "srun" ? "torchrun" : row.launcher;
  return result;
}

bool is_wanted(const Row& row, const TaskContext& here, const Selection& selection) {
  // In a process that torchrun has started, only the launchers that can have started it matter.
  if (here.start() == Start::torchrun && (row.start != nullptr || (row.kinds & for_pytorch) == 0)) return false;
  const bool launcher_fits = selection.launcher.empty() || selection.launcher == row.launcher;
  return launcher_fits && (selection.framework.empty() || selection.framework == row.framework);
}

}  // namespace

Result<std::vector<FrameworkResult>> examine(const TaskContext& here, const Selection& selection) {
  std::vector<FrameworkResult> results;
  if (!selection.command.empty()) results.push_back(examine_command(here, selection.command));
  for (const Row& row : rows) {
    if (is_wanted(row, here, selection)) results.push_back(examine_row(row, here, selection));
  }
  if (is_wanted(locked_memory, here, selection)) results.push_back(examine_row(locked_memory, here, selection));
  if (!results.empty()) return results;
  std::string names;
  for (const Row& row : rows) {
    if (names.find(row.framework) == std::string::npos) names += concat({names.empty() ? "" : ", ", row.framework});
  }
  const std::string asked = concat({selection.framework, " ", selection.launcher});
  return Error{Errc::invalid_argument,
               concat({"the doctor does not know ", text::quote(text::trim(asked)), ": frameworks are ", names,
                       ", launchers srun, torchrun, torch.distributed.launch, accelerate launch, aml-dist ray"})};
}

}  // namespace amldist::doctor
