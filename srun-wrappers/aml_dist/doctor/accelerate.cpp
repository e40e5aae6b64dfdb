// Hugging Face: accelerate's PartialState (accelerate/state.py, 1.15), which Trainer uses too (transformers 5.23). On
// GPUs LOCAL_RANK makes it distributed; on CPUs a flag of the script's, and then any launcher's variables.
// What it does on GPUs is read, not proven.
#include <array>

#include "aml_dist/doctor/rules.hpp"
#include "core/text.hpp"

namespace amldist::doctor {
namespace {

using text::concat;

template <std::size_t n>
std::optional<std::uint64_t> first_of(const Surroundings& here, const std::array<std::string_view, n>& names) {
  for (const std::string_view name : names) {
    if (const auto number = here.number(name)) return number;
  }
  return std::nullopt;
}

/// The numbers of the first launcher whose variables are there, as get_cpu_distributed_information() takes them.
Surroundings as_torch(const Surroundings& here) {
  constexpr std::array<std::string_view, 4> ranks = {"RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK"};
  constexpr std::array<std::string_view, 4> sizes = {"WORLD_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE",
                                                     "MV2_COMM_WORLD_SIZE"};
  return here.changed({{"RANK", std::to_string(first_of(here, ranks).value_or(0))},
                       {"WORLD_SIZE", std::to_string(first_of(here, sizes).value_or(1))},
                       {"MASTER_PORT", here.text("MASTER_PORT").empty() ? "29500" : here.text("MASTER_PORT")}});
}

Finding on_cpus(const Surroundings& here, std::string_view flag) {
  constexpr std::array<std::string_view, 4> sizes = {"PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE",
                                                     "WORLD_SIZE"};
  const bool distributed = here.number("LOCAL_RANK") || first_of(here, sizes).value_or(1) > 1;
  if (!distributed) {
    Finding single{.environment = "NO", .rank = 0, .size = 1};
    if (here.tasks() == 1) return single;
    return with(single,
                {Verdict::alone, concat({"nothing tells ", text::count(here.tasks(), "task"), " about each other"}),
                 "srun --aml-dist=pytorch"});
  }
  const Surroundings seen = as_torch(here);
  Finding finding{.environment = "MULTI_CPU",
                  .rank = seen.number("RANK"),
                  .size = seen.number("WORLD_SIZE"),
                  .master = seen.master()};
  if (here.text("MASTER_ADDR").empty()) {
    return with(
        finding,
        {Verdict::fails, "ValueError: Tried to launch on distributed with multinode, but `MASTER_ADDR` env was not set",
         "srun --aml-dist=pytorch"});
  }
  if (auto trouble = meeting_trouble(seen)) return with(finding, std::move(*trouble));
  if (here.is_true("ACCELERATE_USE_CPU")) return finding;
  return with(
      finding,
      {Verdict::warns,
       concat({"no GPU is visible, and on CPUs each process trains alone, silently, unless the script gives ", flag}),
       concat({flag, ", or export ACCELERATE_USE_CPU=true"})});
}

Finding examine(const Surroundings& here, std::string_view flag) {
  if (here.gpus() == 0) return on_cpus(here, flag);
  if (!here.number("LOCAL_RANK")) {
    Finding single{.environment = "NO", .rank = 0, .size = 1};
    if (here.tasks() == 1) return single;
    return with(single, {Verdict::alone, "on GPUs it is LOCAL_RANK that makes it distributed, and it is not set",
                         "srun --aml-dist=pytorch"});
  }
  Finding finding = examine_torch(here);
  finding.environment = "MULTI_GPU";
  return finding;
}

}  // namespace

Finding examine_accelerate(const Surroundings& here) { return examine(here, "Accelerator(cpu=True)"); }

Finding examine_transformers(const Surroundings& here) { return examine(here, "TrainingArguments(use_cpu=True)"); }

}  // namespace amldist::doctor
