// Components of Azure ML: a command with declared inputs and outputs. With the values that a job gives, one becomes a
// command job, which is then translated as any other.
#pragma once

#include <string>
#include <string_view>

#include "aml_run/yaml/yaml_tree.hpp"
#include "base/text/result.hpp"

namespace amldist::run {

/// What a file of Azure ML describes.
enum class FileKind { command_job, command_component, pipeline, sweep, other };

/// What a file describes that is neither a job nor a component: "conda", "environment", "data"; "": it is one, or
/// cannot be told.
[[nodiscard]] std::string what_is(const YamlValue& root);

/// By its type, its $schema and its keys.
[[nodiscard]] FileKind kind_of(const YamlValue& root);

/// Why a file or a pipeline's job of another type ("parallel", "automl", ...) is refused, and what to do; empty: the
/// type is not one of Azure ML's.
[[nodiscard]] std::string why_refused(std::string_view type);

/// A component and where it is from.
struct Component {
  YamlValue root;
  std::string folder;  ///< relative paths in it are meant from here
};

/// The component that `reference` is, or whose file it names ("./train.yml", "file:train.yml"), seen from `folder`.
/// `key` names it in messages ("jobs.train.component"). Errors: not_found, invalid_argument (a registered one).
[[nodiscard]] Result<Component> load_component(std::string_view file, const std::string& folder, std::string_view key,
                                               const YamlValue& reference);

/// The command job that `component` becomes with what `job` gives: inputs, outputs, and keys that win over the
/// component's (resources, distribution, environment_variables, ...). Paths of `job` are absolute already. Inputs that
/// come later (search_space of a sweep) are named in `later` and stay expressions. Errors: an input without a value or
/// of another type, one that the component does not have.
[[nodiscard]] Result<YamlValue> bind_component(std::string_view file, const Component& component, const YamlValue& job,
                                               const YamlValue* later = nullptr);

/// Makes local paths (code, inputs.*.path, outputs.*.path) absolute.
void make_paths_absolute(YamlValue& job, const std::string& folder);

}  // namespace amldist::run
