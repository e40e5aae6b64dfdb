#include "aml_run/components/component.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "aml_run/components/declared_input.hpp"
#include "aml_run/components/optional_text.hpp"
#include "aml_run/job_inputs.hpp"
#include "aml_run/yaml/yaml_reading.hpp"
#include "base/text/text.hpp"
#include "shared/programs.hpp"
#include "shared/shell.hpp"

namespace amldist::run {
namespace {

using text::concat;
using text::quote;
using YamlKind = YamlValue::Kind;

bool declares_inputs(const YamlValue& root) {
  const YamlValue* const inputs = root.find("inputs");
  return inputs != nullptr && std::ranges::any_of(inputs->entries, [](const YamlEntry& entry) {
           const YamlValue& value = entry.value;
           return value.find("default") != nullptr || value.find("optional") != nullptr ||
                  value.find("enum") != nullptr;
         });
}

std::string absolute(const std::string& folder, const std::string& path) {
  return is_remote(path) || path.starts_with("${{") ? path : local_path(folder, path);
}

/// Keys of a component that describe it, and not how it runs.
bool is_about_component(std::string_view key) {
  constexpr std::array<std::string_view, 6> names = {"$schema", "name", "version", "type", "is_deterministic", "tags"};
  return std::ranges::find(names, key) != names.end();
}

/// Adds a key that has no value there yet: it may stand there without one ("environment_variables:").
void add(YamlValue& map, const YamlEntry& entry) {
  map.erase(entry.key);
  map.entries.push_back(entry);
}

/// Joins the keys of maps; those of `over` win.
YamlValue overlay(const YamlValue& under, const YamlValue& over) {
  if (under.kind != YamlKind::map || over.kind != YamlKind::map) return over;
  YamlValue out = under;
  for (const YamlEntry& entry : over.entries) {
    if (const YamlValue* const below = under.find(entry.key)) out.put(entry.key, overlay(*below, entry.value));
    else add(out, entry);
  }
  return out;
}

class Binder {
 public:
  Binder(std::string_view file, const Component& component, const YamlValue& job, const YamlValue* later)
      : file_(file), component_(component), job_(job), later_(later) {}

  Result<YamlValue> bind() {
    YamlValue out = YamlValue::map(job_.location);
    YamlValue under = component_.root;
    make_paths_absolute(under, component_.folder);
    for (const YamlEntry& entry : under.entries) {
      if (!is_about_component(entry.key) && entry.key != "inputs" && entry.key != "outputs")
        out.entries.push_back(entry);
    }
    for (const YamlEntry& entry : job_.entries) {
      if (entry.key == "type" || entry.key == "component" || entry.key == "inputs" || entry.key == "outputs") continue;
      const YamlValue* const below = out.find(entry.key);
      if (below != nullptr && entry.key == "command") continue;
      if (below != nullptr) out.put(entry.key, overlay(*below, entry.value));
      else add(out, entry);
    }
    auto inputs = bind_inputs();
    if (!inputs) return inputs.error();
    auto outputs = bind_outputs();
    if (!outputs) return outputs.error();
    if (auto status = finish_command(out, *inputs); !status) return status.error();
    if (!inputs->entries.empty()) out.put("inputs", std::move(*inputs));
    if (!outputs->entries.empty()) out.put("outputs", std::move(*outputs));
    return out;
  }

 private:
  Result<YamlValue> bind_inputs() {
    YamlValue out = YamlValue::map(job_.location);
    const YamlValue* const declared = component_.root.find("inputs");
    const YamlValue* const given = job_.find("inputs");
    if (given != nullptr) {
      for (const YamlEntry& entry : given->entries) {
        if (auto status = check_known("inputs", declared, entry); !status) return status.error();
      }
    }
    if (declared == nullptr) return out;
    for (const YamlEntry& entry : declared->entries) {
      if (later_ != nullptr && later_->find(entry.key) != nullptr) continue;
      const YamlValue* const value = given != nullptr ? given->find(entry.key) : nullptr;
      auto bound = bind_input(file_, component_.folder, entry, value);
      if (!bound) return bound.error();
      if (!bound->is_null()) out.put(entry.key, std::move(*bound));
      else without_value_.emplace_back(entry.key);
    }
    return out;
  }

  Result<YamlValue> bind_outputs() {
    YamlValue out = YamlValue::map(job_.location);
    const YamlValue* const declared = component_.root.find("outputs");
    const YamlValue* const given = job_.find("outputs");
    if (declared != nullptr) {
      for (const YamlEntry& entry : declared->entries) out.entries.push_back(entry);
    }
    if (given == nullptr) return out;
    for (const YamlEntry& entry : given->entries) {
      if (auto status = check_known("outputs", declared, entry); !status) return status.error();
      if (entry.value.is_null()) continue;
      const YamlValue* const below = out.find(entry.key);
      out.put(entry.key, below != nullptr ? overlay(*below, entry.value) : entry.value);
    }
    return out;
  }

  Result<void> check_known(std::string_view section, const YamlValue* declared, const YamlEntry& entry) const {
    if (declared != nullptr &&
        std::ranges::find(declared->entries, entry.key, &YamlEntry::key) != declared->entries.end()) {
      return {};
    }
    std::vector<std::string_view> names;
    if (declared != nullptr) {
      for (const YamlEntry& each : declared->entries) names.emplace_back(each.key);
    }
    const auto near = text::nearest(entry.key, names);
    return error_at(file_, entry.location,
                    concat({quote(entry.key), " is not among the component's ", section,
                            near            ? concat({": did you mean '", *near, "'?"})
                            : names.empty() ? concat({": it has no ", section})
                                            : concat({": it has ", text::join(names)})}));
  }

  Result<void> finish_command(YamlValue& out, YamlValue& inputs) const {
    YamlValue* const command = out.find("command");
    if (command == nullptr || command->kind != YamlKind::scalar) {
      return error_at(file_, component_.root.location, "there is no command: add a line 'command: python train.py'");
    }
    if (auto status = check_optional(*command); !status) return status;
    auto text = keep_given_options(command->text, [&](std::string_view name) {
      return std::ranges::find(without_value_, name) == without_value_.end();
    });
    if (!text) return error_at(file_, command->location, text.error().message);
    command->text = std::move(*text);
    // Values that the shortened command does not mention are empty, not missing.
    for (const std::string& name : without_value_) inputs.put(name, YamlValue::scalar("", job_.location));
    return {};
  }

  /// As Azure ML: an optional input stands within $[[...]] only, whether it has a value or not.
  Result<void> check_optional(const YamlValue& command) const {
    const auto outside = keep_given_options(command.text, [](std::string_view) { return false; });
    const auto pieces = outside ? read_template(*outside) : outside.error();
    const YamlValue* const declared = component_.root.find("inputs");
    if (!pieces || declared == nullptr) return {};  // what is wrong is said later
    for (const TemplatePiece& piece : *pieces) {
      if (!piece.is_expression || !piece.text.starts_with("inputs.")) continue;
      std::string_view name = piece.text.substr(7);
      if (name.ends_with(".path")) name.remove_suffix(5);
      const YamlValue* const input = declared->find(name);
      if (input == nullptr || text::to_lower(input->text_of("optional")) != "true") continue;
      return error_at(file_, command.location,
                      concat({piece.text, " is optional, and stands outside of $[[...]]: write $[[--", name, " ${{",
                              piece.text, "}}]], which is left out without a value"}));
    }
    return {};
  }

  std::string_view file_;
  const Component& component_;
  const YamlValue& job_;
  const YamlValue* later_;
  std::vector<std::string> without_value_;
};

}  // namespace

std::string what_is(const YamlValue& root) {
  if (root.find("dependencies") != nullptr && root.find("jobs") == nullptr) return "conda";
  std::string_view schema = text::trim(root.find("$schema") != nullptr ? root.find("$schema")->text : "");
  schema.remove_prefix(std::min(schema.size(), schema.rfind('/') + 1));
  const std::string name = text::to_lower(schema.substr(0, schema.find('.')));
  const bool is_run = name.ends_with("job") || name.ends_with("component") || name == "schedule";
  return is_run ? std::string() : name;
}

FileKind kind_of(const YamlValue& root) {
  const std::string type = text::to_lower(root.text_of("type"));
  const std::string schema = root.text_of("$schema");
  const bool has_work =
      root.find("command") != nullptr || root.find("jobs") != nullptr || root.find("trial") != nullptr;
  if (!has_work && why_refused(type).empty() && !what_is(root).empty()) return FileKind::other;
  if (type == "pipeline" || (type.empty() && root.find("jobs") != nullptr)) return FileKind::pipeline;
  if (type == "sweep" || (type.empty() && root.find("trial") != nullptr)) return FileKind::sweep;
  if (!type.empty() && type != "command") return FileKind::other;
  const bool is_component = schema.find("omponent") != std::string::npos || root.find("version") != nullptr ||
                            root.find("is_deterministic") != nullptr || declares_inputs(root);
  return is_component ? FileKind::command_component : FileKind::command_job;
}

std::string why_refused(std::string_view type) {
  if (type == "parallel")
    return "type parallel is not supported: make a command job of it that reads its share by $RANK";
  if (type == "automl")
    return "type automl is not supported, because the models are Azure ML's: use a sweep over your own script";
  if (type == "spark") return "type spark is not supported: start spark-submit in a command job";
  if (type == "finetuning")
    return "type finetuning is not supported, because Azure ML holds the models: write a command job";
  if (type == "distillation")
    return "type distillation is not supported, because Azure ML holds the models: write a command job";
  if (type == "import") return "type import is not supported: copy the data in a command job, or before";
  if (type == "data_transfer") return "type data_transfer is not supported: copy the data in a command job (cp, rsync)";
  if (type == "schedule") return "a schedule is not supported: use scrontab, or cron and aml-run";
  return {};
}

void make_paths_absolute(YamlValue& job, const std::string& folder) {
  if (YamlValue* const code = job.find("code"); code != nullptr && code->kind == YamlKind::scalar) {
    code->text = absolute(folder, code->text);
  }
  for (const char* const section : {"inputs", "outputs"}) {
    YamlValue* const map = job.find(section);
    if (map == nullptr) continue;
    for (YamlEntry& entry : map->entries) {
      if (YamlValue* const path = entry.value.find("path")) path->text = absolute(folder, path->text);
    }
  }
}

Result<Component> load_component(std::string_view file, const std::string& folder, std::string_view key,
                                 const YamlValue& reference) {
  if (reference.kind == YamlKind::map) return Component{reference, folder};
  if (reference.kind != YamlKind::scalar) {
    return error_at(file, reference.location, concat({key, " is a list: use a component's file"}));
  }
  if (is_remote(reference.text) && !reference.text.starts_with("file:")) {
    return error_at(
        file, reference.location,
        concat({key, " is ", shell::quote_path(reference.text),
                ", which is registered with Azure ML: give its file, such as --set ", key, "=component.yml"}),
        Errc::not_found);
  }
  const std::string path = local_path(folder, reference.text);
  const auto content = commands::read_file(path, longest_yaml);
  if (!content) {
    return error_at(file, reference.location, concat({key, " is ", content.error().message}), content.error().code);
  }
  auto root = parse_yaml(path, *content);
  if (!root) return root.error();
  read_numbers(*root);
  name_source(*root, path);
  return Component{std::move(*root), std::filesystem::path(path).parent_path().string()};
}

Result<YamlValue> bind_component(std::string_view file, const Component& component, const YamlValue& job,
                                 const YamlValue* later) {
  return Binder(file, component, job, later).bind();
}

}  // namespace amldist::run
