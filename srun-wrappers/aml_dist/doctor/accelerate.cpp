// Hugging Face: accelerate's PartialState (accelerate/state.py, 1.15), which Trainer uses too (transformers 5.23). On
// GPUs LOCAL_RANK makes it distributed; on CPUs a flag of the script, and then any launcher's variables. The behaviour
// on GPUs follows from its source and was not tried.
#include <array>

#include "aml_dist/doctor/rules.hpp"
#include "base/text/text.hpp"

namespace amldist::doctor {
namespace {

using text::concat;

template <std::size_t n>
std::optional<std::uint64_t> first_of(const TaskContext& here, const std::array<std::string_view, n>& names) {
  for (const std::string_view name : names) {
    if (const auto number = here.number(name)) return number;
  }
  return std::nullopt;
}

/// The numbers of the first launcher whose variables are set, as get_cpu_distributed_information() takes them.
TaskContext as_torch(const TaskContext& here) {
  constexpr std::array<std::string_view, 4> ranks = {"RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK"};
  constexpr std::array<std::string_view, 4> sizes = {"WORLD_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE",
                                                     "MV2_COMM_WORLD_SIZE"};
  return here.changed({{"RANK", std::to_string(first_of(here, ranks).value_or(0))},
                       {"WORLD_SIZE", std::to_string(first_of(here, sizes).value_or(1))},
                       {"MASTER_PORT", here.text("MASTER_PORT").empty() ? "29500" : here.text("MASTER_PORT")}});
}

FrameworkResult on_cpus(const TaskContext& here, std::string_view flag) {
  constexpr std::array<std::string_view, 4> sizes = {"PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE",
                                                     "WORLD_SIZE"};
  const bool distributed = here.number("LOCAL_RANK") || first_of(here, sizes).value_or(1) > 1;
  if (!distributed) {
    FrameworkResult single{.environment = "NO", .rank = 0, .size = 1};
    if (here.tasks() == 1) return single;
    return with(single,
                {Outcome::alone, concat({"nothing tells ", text::count(here.tasks(), "task"), " about each other"}),
                 "srun --aml-dist=pytorch"});
  }
  const TaskContext seen = as_torch(here);
  FrameworkResult result{.environment = "MULTI_CPU",
                         .rank = seen.number("RANK"),
                         .size = seen.number("WORLD_SIZE"),
                         .master = seen.master()};
  if (here.text("MASTER_ADDR").empty()) {
    return with(result, {Outcome::fails,
                         "ValueError: Tried to launch on distributed with multinode, but `MASTER_ADDR` env was not set",
                         "srun --aml-dist=pytorch"});
  }
  if (auto problem = meeting_problem(seen)) return with(result, std::move(*problem));
  if (here.is_true("ACCELERATE_USE_CPU")) return result;
  return with(
      result,
      {Outcome::warns,
       concat({"no GPU is visible, and on CPUs each process trains alone, silently, unless the script gives ", flag}),
       concat({flag, ", or export ACCELERATE_USE_CPU=true"})});
}

FrameworkResult examine(const TaskContext& here, std::string_view flag) {
  if (here.gpus() == 0) return on_cpus(here, flag);
  if (!here.number("LOCAL_RANK")) {
    FrameworkResult single{.environment = "NO", .rank = 0, .size = 1};
    if (here.tasks() == 1) return single;
    return with(single, {Outcome::alone, "on GPUs it is LOCAL_RANK that makes it distributed, and it is not set",
                         "srun --aml-dist=pytorch"});
  }
  FrameworkResult result = examine_torch(here);
  result.environment = "MULTI_GPU";
  return result;
}

}  // namespace

FrameworkResult examine_accelerate(const TaskContext& here) { return examine(here, "Accelerator(cpu=True)"); }

FrameworkResult examine_transformers(const TaskContext& here) {
  return examine(here, "TrainingArguments(use_cpu=True)");
}

}  // namespace amldist::doctor
