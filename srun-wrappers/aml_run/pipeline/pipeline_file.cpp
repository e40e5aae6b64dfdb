#include "aml_run/pipeline/pipeline_file.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <utility>

#include "aml_run/expressions.hpp"
#include "aml_run/job_file.hpp"
#include "aml_run/job_inputs.hpp"
#include "aml_run/pipeline/job_order.hpp"
#include "base/text/text.hpp"
#include "shared/shell.hpp"

namespace amldist::run {
namespace {

using text::concat;
using text::quote;
using YamlKind = YamlValue::Kind;

constexpr std::size_t deepest_pipeline = 8;
constexpr std::size_t most_jobs = 1000;

/// A value of the pipeline, and the jobs that must have ended before it is there.
struct Bound {
  YamlValue value;
  std::set<std::string> needs;
};

/// What the expressions in a pipeline's jobs can refer to.
struct Scope {
  std::string prefix;  ///< of job names: "" or "outer."
  std::string folder;  ///< of the file
  std::map<std::string, Bound, std::less<>> inputs;
  std::map<std::string, std::string, std::less<>> outputs;  ///< name: path
  std::string compute;                                      ///< the default, or empty
  std::size_t depth = 0;
};

/// A job of a pipeline with its component, before its inputs are bound.
struct Node {
  std::string name;
  const YamlValue* job;
  SourceLocation location;
  std::string type;
  std::optional<Component> component;
  std::map<std::string, std::string, std::less<>> outputs;  ///< name: path
};

struct RowOfKeys {
  std::string_view key;
  std::string_view why;  ///< why it has no effect; empty if it has one
};

constexpr std::array<RowOfKeys, 22> pipeline_keys = {{{"$schema", "only editors read it"},
                                                      {"type", ""},
                                                      {"name", ""},
                                                      {"display_name", ""},
                                                      {"experiment_name", ""},
                                                      {"description", ""},
                                                      {"tags", "the run's folder keeps its jobs together"},
                                                      {"settings", ""},
                                                      {"inputs", ""},
                                                      {"outputs", ""},
                                                      {"jobs", ""},
                                                      {"component", ""},
                                                      {"compute", ""},
                                                      {"version", "nothing is registered as an asset"},
                                                      {"is_deterministic", "every job is run"},
                                                      {"identity", "the jobs run as you"},
                                                      {"properties", "Azure ML's own notes about the job"},
                                                      {"services", "no service is started beside the jobs"},
                                                      {"id", "Azure ML writes it into its answers"},
                                                      {"status", "Azure ML writes it into its answers"},
                                                      {"creation_context", "Azure ML writes it into its answers"},
                                                      {"queue_settings", ""}}};

/// The expression, if a text consists of nothing else; else empty.
std::string_view only_expression(std::string_view text) {
  const auto pieces = read_template(text::trim(text));
  return pieces && pieces->size() == 1 && pieces->front().is_expression ? pieces->front().text : std::string_view();
}

class PipelineReader {
 public:
  PipelineReader(const std::string& file, std::string run_folder) : file_(file), run_folder_(std::move(run_folder)) {}

  Result<Pipeline> read(const YamlValue& root) {
    pipeline_.display_name = root.text_of("display_name");
    if (pipeline_.display_name.empty()) pipeline_.display_name = root.text_of("name");
    if (pipeline_.display_name.empty()) pipeline_.display_name = std::filesystem::path(file_).stem().string();
    pipeline_.description = root.text_of("description");
    Scope scope;
    scope.folder = folder_of(file_);
    if (auto status = read_settings(root, scope); !status) return status.error();
    const YamlValue* const reference = root.find("component");
    const auto read_all = reference != nullptr ? read_component(root, *reference, scope) : read_whole(root, scope);
    if (!read_all) return read_all.error();
    hand_on(root, "experiment_name");  // MLflow is told so in each job
    hand_on(root, "queue_settings");
    if (auto status = sort_jobs(file_, root.location, pipeline_.jobs); !status) return status.error();
    return std::move(pipeline_);
  }

 private:
  /// A value of the pipeline's that each job has which says nothing else.
  void hand_on(const YamlValue& root, std::string_view key) {
    const YamlValue* const value = root.find(key);
    if (value == nullptr) return;
    for (PipelineJob& each : pipeline_.jobs) {
      if (each.job.find(key) == nullptr) each.job.put(key, *value);
    }
  }

  Result<void> read_whole(const YamlValue& root, Scope& scope) {
    if (auto status = read_inputs(root, scope); !status) return status;
    return read_jobs(root, scope);
  }

  /// A pipeline job that only names a pipeline component: its own values override the component's defaults.
  Result<void> read_component(const YamlValue& root, const YamlValue& reference, Scope& scope) {
    if (root.find("jobs") != nullptr)
      return wrong(reference.location, "a pipeline has jobs or a component, not both: leave one out");
    const auto loaded = load_component(file_, scope.folder, "component", reference);
    if (!loaded) return loaded.error();
    const std::string folder = std::exchange(scope.folder, loaded->folder);
    if (auto status = read_inputs(loaded->root, scope); !status) return status;
    scope.folder = folder;
    if (auto status = read_inputs(root, scope); !status) return status;
    scope.folder = loaded->folder;
    return read_jobs(loaded->root, scope);
  }

  [[nodiscard]] Error wrong(const SourceLocation& location, std::string_view sentence,
                            Errc code = Errc::invalid_argument) const {
    return error_at(file_, location, sentence, code);
  }

  Result<void> read_settings(const YamlValue& root, Scope& scope) {
    for (const YamlEntry& entry : root.entries) {
      const auto* const row = std::ranges::find(pipeline_keys, entry.key, &RowOfKeys::key);
      if (row == pipeline_keys.end()) {
        std::vector<std::string_view> names;
        names.reserve(pipeline_keys.size());
        for (const RowOfKeys& each : pipeline_keys) names.push_back(each.key);
        const auto near = text::nearest(entry.key, names);
        return wrong(entry.location, concat({"unknown key ", quote(entry.key), " in a pipeline",
                                             near ? concat({": did you mean '", *near, "'?"}) : std::string()}));
      }
      if (!row->why.empty()) pipeline_.ignored.push_back({entry.key, entry.location, std::string(row->why)});
    }
    scope.compute = root.text_of("compute");
    const YamlValue* const settings = root.find("settings");
    if (settings == nullptr) return {};
    if (settings->kind != YamlKind::map)
      return wrong(settings->location, "settings is not a map: write 'key: value' lines below it");
    for (const YamlEntry& entry : settings->entries) {
      const std::string value = text::to_lower(entry.value.text);
      if (entry.key == "default_compute") {
        if (scope.compute.empty() && entry.value.kind == YamlKind::scalar) scope.compute = entry.value.text;
      } else if (entry.key == "continue_on_step_failure" || entry.key == "continue_run_on_step_failure") {
        if (value != "true" && value != "false")
          return wrong(entry.value.location, concat({"invalid value ", quote(entry.value.text), " for settings.",
                                                     entry.key, ": use true or false"}));
        pipeline_.continue_on_failure = value == "true";
      } else {
        pipeline_.ignored.push_back({concat({"settings.", entry.key}), entry.location,
                                     entry.key == "force_rerun" ? "every job is run; --resume runs what is left"
                                                                : "it is about Azure ML's own services"});
      }
    }
    return {};
  }

  /// The pipeline's own inputs and outputs.
  Result<void> read_inputs(const YamlValue& root, Scope& scope) {
    if (const YamlValue* const inputs = root.find("inputs")) {
      for (const YamlEntry& entry : inputs->entries) {
        YamlValue value = entry.value;
        if (const YamlValue* const standard = value.find("default");
            standard != nullptr && value.find("path") == nullptr) {
          value = YamlValue(*standard);
        }
        if (YamlValue* const path = value.find("path")) {
          if (!is_remote(path->text)) path->text = local_path(scope.folder, path->text);
        }
        scope.inputs.insert_or_assign(entry.key, Bound{std::move(value), {}});
      }
    }
    const YamlValue* const outputs = root.find("outputs");
    if (outputs == nullptr) return {};
    for (const YamlEntry& entry : outputs->entries) {
      if (!shell::is_name(entry.key))
        return wrong(entry.location, concat({quote(entry.key), " is not a valid name: use letters, digits and _"}));
      scope.outputs.insert_or_assign(
          entry.key, output_path(entry, scope.folder, concat({run_folder_, "/outputs/", entry.key}), "outputs."));
    }
    return {};
  }

  /// The path that an output asks for, or one in the run's folder.
  std::string output_path(const YamlEntry& entry, const std::string& folder, std::string standard,
                          std::string_view where) {
    const YamlValue* const path = entry.value.find("path");
    if (path == nullptr || path->kind != YamlKind::scalar) return standard;
    const bool is_pattern = path->text.find("${{") != std::string::npos;
    if (!is_remote(path->text) && !is_pattern) return local_path(folder, path->text);
    pipeline_.ignored.push_back({concat({where, entry.key, ".path"}), path->location,
                                 "it is in a cloud, and a folder of the run is used instead"});
    return standard;
  }

  Result<void> read_jobs(const YamlValue& root, Scope& scope) {
    const YamlValue* const jobs = root.find("jobs");
    if (jobs == nullptr || jobs->kind != YamlKind::map || jobs->entries.empty()) {
      return wrong(jobs != nullptr ? jobs->location : root.location,
                   "a pipeline has jobs: add a line 'jobs:' and the jobs below it");
    }
    if (scope.depth == deepest_pipeline)
      return wrong(jobs->location, "pipelines are nested more than 8 levels deep", Errc::limit);
    std::vector<Node> nodes;
    for (const YamlEntry& entry : jobs->entries) {
      auto node = read_node(entry, scope);
      if (!node) return node.error();
      nodes.push_back(std::move(*node));
    }
    for (Node& node : nodes) {
      if (auto status = bind_node(node, nodes, scope); !status) return status.error();
      if (pipeline_.jobs.size() > most_jobs)
        return wrong(node.location, concat({"a pipeline has at most ", std::to_string(most_jobs), " jobs"}),
                     Errc::limit);
    }
    return {};
  }

  Result<Node> read_node(const YamlEntry& entry, const Scope& scope) {
    if (!shell::is_name(entry.key)) {
      return wrong(entry.location, concat({"jobs.", entry.key, ": a job's name has letters, digits and _"}));
    }
    if (entry.value.kind != YamlKind::map)
      return wrong(entry.location,
                   concat({"jobs.", entry.key, " is empty: write its type, component or command below it"}));
    Node node{concat({scope.prefix, entry.key}),           &entry.value, entry.location,
              text::to_lower(entry.value.text_of("type")), std::nullopt, {}};
    const YamlValue* component = entry.value.find("component");
    if (const auto why = why_refused(node.type); !why.empty()) {
      return wrong(entry.value.find("type")->location, concat({"jobs.", node.name, ": ", why}));
    }
    if (node.type == "sweep") component = entry.value.find("trial");
    if (component != nullptr) {
      auto loaded =
          load_component(file_, scope.folder,
                         concat({"jobs.", node.name, node.type == "sweep" ? ".trial" : ".component"}), *component);
      if (!loaded) return loaded.error();
      if (auto status = check_component(node, *component, loaded->root); !status) return status.error();
      node.component = std::move(*loaded);
    }
    if (node.type.empty()) node.type = "command";
    if (node.type != "command" && node.type != "sweep" && node.type != "pipeline") {
      return wrong(entry.value.find("type")->location,
                   concat({"invalid value ", quote(node.type), " for jobs.", node.name, ".type",
                           ": use command, sweep or pipeline"}));
    }
    name_outputs(node, scope);
    return node;
  }

  /// A component's own type is the job's, and may be a type that is not supported.
  Result<void> check_component(Node& node, const YamlValue& reference, const YamlValue& root) const {
    std::string type = text::to_lower(root.text_of("type"));
    if (type.empty() && root.find("jobs") != nullptr) type = "pipeline";
    if (type.empty() && root.find("command") == nullptr && root.find("flow") == nullptr &&
        root.find("nodes") == nullptr)
      type = "command";
    if (root.find("flow") != nullptr || (root.find("nodes") != nullptr && root.find("command") == nullptr)) {
      return wrong(reference.location,
                   concat({"jobs.", node.name, ": a prompt flow is not supported: start pf run in a command job"}));
    }
    if (const auto why = why_refused(type); !why.empty())
      return wrong(reference.location, concat({"jobs.", node.name, ": ", why}));
    if (type != "command" && type != "pipeline" && !type.empty()) {
      return wrong(reference.location, concat({"jobs.", node.name, ": a component of type ", quote(type),
                                               " is not supported: use command or pipeline"}));
    }
    if (node.type != "sweep" && !type.empty()) node.type = type;
    return {};
  }

  void name_outputs(Node& node, const Scope& scope) {
    const auto standard = [&](const std::string& name) { return concat({run_folder_, "/", node.name, "/", name}); };
    if (node.component) {
      if (const YamlValue* const declared = node.component->root.find("outputs")) {
        for (const YamlEntry& entry : declared->entries) node.outputs.insert_or_assign(entry.key, standard(entry.key));
      }
    }
    const YamlValue* const given = node.job->find("outputs");
    if (given == nullptr) return;
    for (const YamlEntry& entry : given->entries) {
      // ${{parent.outputs.x}}, by itself or as the path of a map
      std::string text = entry.value.kind == YamlKind::scalar ? entry.value.text : std::string();
      if (text.empty()) text = entry.value.text_of("path");
      const auto expression = only_expression(text);
      if (expression.starts_with("parent.outputs.")) {
        const auto found = scope.outputs.find(expression.substr(15));
        if (found != scope.outputs.end()) {
          node.outputs.insert_or_assign(entry.key, found->second);
          continue;
        }
      }
      node.outputs.insert_or_assign(
          entry.key, output_path(entry, scope.folder, standard(entry.key), concat({"jobs.", node.name, ".outputs."})));
    }
  }

  /// An input of the pipeline, if it has a value: a component's may only declare its type.
  [[nodiscard]] Result<Bound> given(const std::string& name, const Bound& bound) const {
    const YamlValue& value = bound.value;
    const bool has_value =
        value.kind == YamlKind::scalar || value.find("path") != nullptr || value.find("value") != nullptr;
    const YamlValue* const optional = value.find("optional");
    if (has_value || value.kind == YamlKind::list) return bound;
    if (optional != nullptr && text::to_lower(optional->text) == "true") return Bound{YamlValue(), {}};
    const YamlValue* const type = value.find("type");
    const bool is_path = type != nullptr && (type->text.starts_with("uri_") || type->text == "mltable");
    return wrong(value.location, concat({"the pipeline's input ", name, " has no value: add --set inputs.", name,
                                         is_path ? ".path=FOLDER" : "=VALUE"}));
  }

  /// The value of one expression of a job.
  Result<Bound> look_up(std::string_view expression, const SourceLocation& location, const std::vector<Node>& nodes,
                        const Scope& scope) const {
    const auto no = [&](std::string_view what) { return wrong(location, concat({"${{", expression, "}} ", what})); };
    const auto near_to = [](std::string_view name, const std::vector<std::string_view>& names) {
      const auto near = text::nearest(name, names);
      return near ? concat({": did you mean ", *near, "?"}) : std::string();
    };
    if (expression.starts_with("parent.inputs.")) {
      std::string_view name = expression.substr(14);
      if (name.ends_with(".path")) name.remove_suffix(5);
      const auto found = scope.inputs.find(name);
      if (found != scope.inputs.end()) return given(found->first, found->second);
      std::vector<std::string_view> names;
      for (const auto& [known, value] : scope.inputs) names.emplace_back(known);
      return no(concat({"is not among the pipeline's inputs", near_to(name, names)}));
    }
    if (!expression.starts_with("parent.jobs.")) {
      return no(
          "is not possible here: a pipeline's job is given ${{parent.inputs.NAME}} or "
          "${{parent.jobs.JOB.outputs.NAME}}");
    }
    const std::string_view rest = expression.substr(12);
    const auto dot = rest.find(".outputs.");
    const std::string_view job = rest.substr(0, dot);
    const auto node = std::ranges::find_if(nodes, [&](const Node& each) {
      return each.name == concat({scope.prefix, job});
    });
    if (node == nodes.end()) {
      std::vector<std::string_view> names;
      names.reserve(nodes.size());
      for (const Node& each : nodes) names.emplace_back(std::string_view(each.name).substr(scope.prefix.size()));
      return no(concat({"names no job of the pipeline", near_to(job, names)}));
    }
    if (dot == std::string_view::npos) return no("names no output: write ${{parent.jobs.JOB.outputs.NAME}}");
    std::string_view name = rest.substr(dot + 9);
    if (name.ends_with(".path")) name.remove_suffix(5);
    const auto output = node->outputs.find(name);
    if (output == node->outputs.end()) {
      std::vector<std::string_view> names;
      for (const auto& [known, path] : node->outputs) names.emplace_back(known);
      return no(concat({"is not among the job's outputs", near_to(name, names)}));
    }
    YamlValue value = YamlValue::map(location);
    value.put("path", YamlValue::scalar(output->second, location));
    return Bound{std::move(value), {node->name}};
  }

  /// A value of a job with its expressions bound; needed jobs are added to `needs`.
  Result<YamlValue> bind_value(const YamlValue& value, const std::vector<Node>& nodes, const Scope& scope,
                               std::set<std::string>& needs) const {
    if (value.kind == YamlKind::scalar) return bind_text(value, nodes, scope, needs);
    YamlValue out = value;
    for (YamlValue& item : out.items) {
      auto bound = bind_value(item, nodes, scope, needs);
      if (!bound) return bound.error();
      item = std::move(*bound);
    }
    for (YamlEntry& entry : out.entries) {
      auto bound = bind_value(entry.value, nodes, scope, needs);
      if (!bound) return bound.error();
      // path: ${{parent.inputs.data}}, and the input has a path of its own
      if (const YamlValue* const path = entry.key == "path" ? bound->find("path") : nullptr)
        entry.value = YamlValue(*path);
      else entry.value = std::move(*bound);
    }
    return out;
  }

  Result<YamlValue> bind_text(const YamlValue& value, const std::vector<Node>& nodes, const Scope& scope,
                              std::set<std::string>& needs) const {
    if (value.text.find("${{") == std::string::npos) return value;
    if (const auto only = only_expression(value.text); only.starts_with("parent.")) {
      auto bound = look_up(only, value.location, nodes, scope);
      if (!bound) return bound.error();
      needs.insert(bound->needs.begin(), bound->needs.end());
      return std::move(bound->value);
    }
    const auto pieces = read_template(value.text);
    if (!pieces) return wrong(value.location, pieces.error().message);
    YamlValue out = value;
    out.text.clear();
    for (const TemplatePiece& piece : *pieces) {
      if (!piece.is_expression || !piece.text.starts_with("parent.")) {
        out.text += piece.is_expression ? concat({"${{", piece.text, "}}"}) : std::string(piece.text);
        continue;
      }
      auto bound = look_up(piece.text, value.location, nodes, scope);
      if (!bound) return bound.error();
      needs.insert(bound->needs.begin(), bound->needs.end());
      const YamlValue* const path = bound->value.find("path");
      out.text += path != nullptr ? path->text : bound->value.text;
    }
    return out;
  }

  Result<void> bind_node(const Node& node, const std::vector<Node>& nodes, const Scope& scope) {
    PipelineJob job;
    job.name = node.name;
    job.is_sweep = node.type == "sweep";
    job.folder = scope.folder;
    YamlValue bound = YamlValue::map(node.location);
    for (const YamlEntry& entry : node.job->entries) {
      const bool as_it_is =
          entry.key == "component" || entry.key == "trial" || entry.key == "command" || entry.key == "outputs";
      auto value = as_it_is ? Result<YamlValue>(entry.value) : bind_value(entry.value, nodes, scope, job.needs);
      if (!value) return value.error();
      bound.entries.push_back(YamlEntry{entry.key, entry.location, std::move(*value)});
    }
    bind_outputs(node, bound);
    for (const auto& [name, path] : node.outputs) pipeline_.made_later.push_back(path);
    make_paths_absolute(bound, scope.folder);
    if (node.type == "pipeline") return read_inner(node, bound, job.needs, scope);
    if (!scope.compute.empty() && bound.find("compute") == nullptr)
      bound.put("compute", YamlValue::scalar(scope.compute, node.location));
    if (node.component && !job.is_sweep) {
      auto whole = bind_component(file_, *node.component, bound);
      if (!whole) return whole.error();
      bound = std::move(*whole);
    } else if (node.component) {
      YamlValue trial = node.component->root;
      make_paths_absolute(trial, node.component->folder);
      bound.put("trial", std::move(trial));
    }
    job.job = std::move(bound);
    pipeline_.jobs.push_back(std::move(job));
    return {};
  }

  /// Gives each output the path that other jobs were told.
  static void bind_outputs(const Node& node, YamlValue& bound) {
    if (node.outputs.empty()) return;
    YamlValue outputs = YamlValue::map(node.location);
    const YamlValue* const given = node.job->find("outputs");
    for (const auto& [name, path] : node.outputs) {
      const YamlValue* const old = given != nullptr ? given->find(name) : nullptr;
      YamlValue value = old != nullptr && old->kind == YamlKind::map ? *old : YamlValue::map(node.location);
      value.put("path", YamlValue::scalar(path, node.location));
      outputs.put(name, std::move(value));
    }
    bound.put("outputs", std::move(outputs));
  }

  /// A pipeline in the pipeline: its jobs become jobs of this one.
  Result<void> read_inner(const Node& node, const YamlValue& bound, const std::set<std::string>& needs,
                          const Scope& scope) {
    if (!node.component)
      return wrong(node.location,
                   concat({"jobs.", node.name, " has no component: name the file of the inner pipeline"}));
    const YamlValue& root = node.component->root;
    Scope inner;
    inner.prefix = concat({node.name, "."});
    inner.folder = node.component->folder;
    inner.compute = scope.compute;
    inner.depth = scope.depth + 1;
    if (auto status = read_inputs(root, inner); !status) return status.error();
    if (const YamlValue* const given = bound.find("inputs")) {
      for (const YamlEntry& entry : given->entries) inner.inputs.insert_or_assign(entry.key, Bound{entry.value, needs});
    }
    for (const auto& [name, path] : node.outputs) inner.outputs.insert_or_assign(name, path);
    const std::size_t first = pipeline_.jobs.size();
    if (auto status = read_jobs(root, inner); !status) return status.error();
    for (std::size_t i = first; i < pipeline_.jobs.size(); ++i) {
      groups_.emplace(node.name, pipeline_.jobs[i].name);
      pipeline_.jobs[i].needs.insert(needs.begin(), needs.end());
    }
    return {};
  }

  /// Jobs that need an inner pipeline need all of its jobs.
  void resolve_groups(std::vector<PipelineJob>& jobs) const {
    for (std::size_t round = 0; round <= deepest_pipeline; ++round) {
      for (PipelineJob& job : jobs) {
        std::set<std::string> needs;
        for (const std::string& need : job.needs) {
          const auto [begin, end] = groups_.equal_range(need);
          if (begin == end) needs.insert(need);
          for (auto each = begin; each != end; ++each) needs.insert(each->second);
        }
        job.needs = std::move(needs);
      }
    }
  }

  Result<void> sort_jobs(const std::string& file, const SourceLocation& location,
                         std::vector<PipelineJob>& jobs) const {
    resolve_groups(jobs);
    std::vector<NamedJob> names;
    names.reserve(jobs.size());
    for (const PipelineJob& job : jobs) names.push_back({job.name, job.needs});
    const auto order = order_jobs(names);
    if (!order) return error_at(file, location, order.error().message);
    std::vector<PipelineJob> sorted;
    for (const std::size_t i : *order) sorted.push_back(std::move(jobs[i]));
    jobs = std::move(sorted);
    return {};
  }

  const std::string& file_;
  std::string run_folder_;
  Pipeline pipeline_;
  std::multimap<std::string, std::string> groups_;  ///< inner pipeline: its jobs
};

}  // namespace

Result<Pipeline> read_pipeline(const std::string& file, const YamlValue& root, const std::string& run_folder) {
  return PipelineReader(file, run_folder).read(root);
}

}  // namespace amldist::run
