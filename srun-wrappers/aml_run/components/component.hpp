// Components of Azure ML: a command with declared inputs and outputs. With the values that a job gives, a component
// becomes a command job, which is then translated like any other.
#pragma once

#include <string>
#include <string_view>

#include "aml_run/yaml/yaml_tree.hpp"
#include "base/text/result.hpp"

namespace amldist::run {

/// The type of an Azure ML file.
enum class FileKind { command_job, command_component, pipeline, sweep, other };

/// The type of a file that is neither a job nor a component: "conda", "environment", "data"; "" if it is one, or if it
/// is unclear.
[[nodiscard]] std::string what_is(const YamlValue& root);

/// By its type, its $schema and its keys.
[[nodiscard]] FileKind kind_of(const YamlValue& root);

/// Why a file or a pipeline's job of another type ("parallel", "automl", ...) is refused, and what to do; empty if the
/// type is not one of Azure ML's.
[[nodiscard]] std::string why_refused(std::string_view type);

/// A component and its origin.
struct Component {
  YamlValue root;
  std::string folder;  ///< to which its paths are relative
};

/// The component that `reference` is, or whose file it names ("./train.yml", "file:train.yml"), relative to `folder`.
/// `key` names it in messages ("jobs.train.component"). Errors: not_found, invalid_argument (a registered one).
[[nodiscard]] Result<Component> load_component(std::string_view file, const std::string& folder, std::string_view key,
                                               const YamlValue& reference);

/// The command job made from `component` and the values of `job`: inputs, outputs, and keys that override the
/// component's (resources, distribution, environment_variables, ...). Paths of `job` are absolute already. Inputs that
/// are set later (search_space of a sweep) are named in `later` and stay expressions. Errors: an input without a value
/// or of another type, one that the component does not have.
[[nodiscard]] Result<YamlValue> bind_component(std::string_view file, const Component& component, const YamlValue& job,
                                               const YamlValue* later = nullptr);

/// Makes local paths (code, inputs.*.path, outputs.*.path) absolute.
void make_paths_absolute(YamlValue& job, const std::string& folder);

}  // namespace amldist::run
