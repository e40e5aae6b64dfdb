#include "aml_run/script/container_words.hpp"

#include "base/text/text.hpp"
#include "launch/frameworks/task_environment.hpp"
#include "shared/shell.hpp"

namespace amldist::run {
namespace {

using text::concat;

bool names_file(std::string_view image) {
  return image.starts_with('/') || image.starts_with("./") || image.starts_with("../");
}

/// `"$PWD"` and the other folders that the job needs, each at the same place. Pyxis needs both names of a folder.
std::string mounts(const Container& container, bool twice) {
  std::string out = twice ? R"("$PWD:$PWD)" : R"("$PWD)";
  std::string rest;
  for (const std::string& folder : container.policy.mounts)
    rest += concat({",", folder, twice ? concat({":", folder}) : ""});
  for (const std::string& folder : container.mounts) rest += concat({",", folder, twice ? concat({":", folder}) : ""});
  return concat({out, "\"", rest.empty() ? "" : shell::quote(rest)});
}

/// Pyxis lets the image's value of a variable win, unless the variable is named.
std::string winning_variables(const std::vector<Variable>& variables) {
  std::string names;
  for (const Variable& each : variables) names += concat({names.empty() ? "" : ",", each.name});
  return names.empty() ? names : concat({"--container-env=", names, " "});
}

/// What a program in a container needs of the job's environment, where a runtime passes nothing on by itself; a name
/// with * is a prefix.
std::vector<std::string> needed_variables(const std::vector<Variable>& variables) {
  std::vector<std::string> out = {"SLURM_*",
                                  "AMLDIST_*",
                                  "PMI*",
                                  "OMPI_*",
                                  "NCCL_*",
                                  "GLOO_*",
                                  "UCX_*",
                                  "FI_*",
                                  "OMP_*",
                                  "MLFLOW_*",
                                  "AML_*",
                                  "CUDA_VISIBLE_DEVICES",
                                  "ROCR_VISIBLE_DEVICES",
                                  "HIP_VISIBLE_DEVICES",
                                  "ZE_AFFINITY_MASK"};
  for (const std::string_view name : launch::task_variables()) out.emplace_back(name);
  for (const Variable& each : variables) out.push_back(each.name);
  return out;
}

std::string podman_words(const Container& container, const std::vector<Variable>& variables) {
  std::string out = concat({container.policy.program,
                            " run --rm --network=host --ipc=host --pid=host --userns=keep-id --workdir=\"$PWD\" ",
                            "--volume=\"$PWD:$PWD\" "});
  for (const auto* const folders : {&container.policy.mounts, &container.mounts}) {
    for (const std::string& folder : *folders) out += shell::quote(concat({"--volume=", folder, ":", folder})) + " ";
  }
  for (const std::string& name : needed_variables(variables)) out += shell::quote(concat({"--env=", name})) + " ";
  for (const std::string& option : container.policy.options) out += shell::quote(option) + " ";
  return concat({out, shell::quote(apptainer_name(container.image)), " "});
}

}  // namespace

std::string pyxis_name(std::string_view image) {
  if (names_file(image)) return std::string(image);
  if (image.starts_with("docker://")) image.remove_prefix(9);
  const auto slash = image.find('/');
  const std::string_view first = image.substr(0, slash);
  const bool is_registry =
      slash != std::string_view::npos && (first.find_first_of(".:") != std::string_view::npos || first == "localhost");
  return is_registry ? concat({first, "#", image.substr(slash + 1)}) : std::string(image);
}

std::string apptainer_name(std::string_view image) {
  const bool whole = names_file(image) || image.find("://") != std::string_view::npos;
  return whole ? std::string(image) : concat({"docker://", image});
}

std::string container_words(const Container& container, const std::vector<Variable>& variables) {
  if (container.policy.by == ImagePolicy::By::podman) return podman_words(container, variables);
  const bool pyxis = container.policy.by == ImagePolicy::By::pyxis;
  std::string out;
  if (pyxis) {
    out = concat({shell::quote(concat({"--container-image=", pyxis_name(container.image)})), " --container-mounts=",
                  mounts(container, true), " --container-workdir=\"$PWD\" ", winning_variables(variables)});
    for (const std::string& option : container.policy.options) out += shell::quote(option) + " ";
    return out;
  }
  out = concat({"apptainer exec --pwd \"$PWD\" --bind ", mounts(container, false), " "});
  for (const std::string& option : container.policy.options) out += shell::quote(option) + " ";
  return concat({out, shell::quote(apptainer_name(container.image)), " "});
}

}  // namespace amldist::run
