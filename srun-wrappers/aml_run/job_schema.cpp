#include "aml_run/job_schema.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include "base/text/text.hpp"

namespace amldist::run {
namespace {

using text::concat;
using text::quote;
using F = KeyHandling;
using S = ValueType;
using YamlKind = YamlValue::Kind;

constexpr std::string_view input_types =
    "uri_file uri_folder mltable mlflow_model custom_model triton_model string integer "
    "number boolean enum";
constexpr std::string_view output_types = "uri_file uri_folder mltable mlflow_model custom_model triton_model";
constexpr std::string_view by_azure = "Azure ML writes it into its answers, and does not read it either";
constexpr std::string_view no_cloud = "there is no cloud storage here: the folder is used in place";

/// From the published schema, the reference of its keys and the SDK's own classes.
constexpr std::array schema = {
    SchemaKey{"$schema", S::text, F::ignored, "only editors read it"},
    SchemaKey{"type", S::text, F::translated, "command; sweep and pipeline are files of their own kind", "command"},
    SchemaKey{"name", S::text, F::translated, "--job-name, if there is no display_name"},
    SchemaKey{"display_name", S::text, F::translated, "--job-name"},
    SchemaKey{"experiment_name", S::text, F::translated, "--comment"},
    SchemaKey{"description", S::text, F::translated, "a comment at the top of the script"},
    SchemaKey{"tags", S::map, F::translated, "--comment"},
    SchemaKey{"tags.*", S::text, F::translated, "--comment"},
    SchemaKey{"command", S::text, F::translated, "what each task gives to bash -c"},
    SchemaKey{"code", S::text, F::translated, "--chdir: the folder itself, with --snapshot a copy"},
    SchemaKey{
        "environment", S::text_or_map, F::translated,
        "its image and its conda file, if the administrator's table says how; else prepare the nodes' software with "
        "--setup"},
    SchemaKey{"environment.image", S::text, F::translated, "pyxis' --container-image, apptainer exec, or podman run"},
    SchemaKey{"environment.conda_file", S::anything, F::translated,
              "an environment that is made once and kept under the name of its content"},
    SchemaKey{"environment.*", S::anything, F::ignored, "part of environment"},
    SchemaKey{"environment_variables", S::map, F::translated, "export lines of the script"},
    SchemaKey{"environment_variables.*", S::text, F::translated, "export NAME=VALUE"},
    SchemaKey{"inputs", S::map, F::translated, "the values of ${{inputs.NAME}}"},
    SchemaKey{"inputs.*", S::text_or_map, F::translated, "the value of ${{inputs.NAME}}"},
    SchemaKey{"inputs.*.type", S::text, F::translated, "a file or a folder must be one", input_types},
    SchemaKey{"inputs.*.path", S::text, F::translated, "the value of ${{inputs.NAME}}: a path that the nodes see"},
    SchemaKey{"inputs.*.mode", S::text, F::translated,
              "direct hands a URI through; the others mean the same, as files are used in place",
              "ro_mount rw_mount download direct eval_mount eval_download upload"},
    SchemaKey{"inputs.*.value", S::text, F::translated, "the value of ${{inputs.NAME}}"},
    SchemaKey{"inputs.*.path_on_compute", S::text, F::ignored, "nothing is mounted: the path is the one that it has"},
    SchemaKey{"inputs.*.default", S::anything, F::translated, "of a component: the value if the job gives no other"},
    SchemaKey{"inputs.*.optional", S::truth, F::translated,
              "of a component: without a value, $[[...]] around it is left out"},
    SchemaKey{"inputs.*.min", S::text, F::translated, "of a component: the least number that is taken"},
    SchemaKey{"inputs.*.max", S::text, F::translated, "of a component: the greatest number that is taken"},
    SchemaKey{"inputs.*.enum", S::texts, F::translated, "of a component: the values that are taken"},
    SchemaKey{"inputs.*.description", S::text, F::ignored, "nothing shows it"},
    SchemaKey{"inputs.*.datastore", S::text, F::ignored, no_cloud},
    SchemaKey{"outputs", S::map, F::translated, "the values of ${{outputs.NAME}}"},
    SchemaKey{"outputs.*", S::text_or_map, F::translated, "a folder that the script makes"},
    SchemaKey{"outputs.*.type", S::text, F::translated, "for a file, its folder is made", output_types},
    SchemaKey{"outputs.*.path", S::text, F::translated, "the folder; without one, outputs/JOBID/NAME"},
    SchemaKey{"outputs.*.mode", S::text, F::translated, "all mean the same, as the folder is used in place",
              "mount rw_mount upload direct"},
    SchemaKey{"outputs.*.description", S::text, F::ignored, "nothing shows it"},
    SchemaKey{"outputs.*.name", S::text, F::ignored, "nothing is registered as an asset"},
    SchemaKey{"outputs.*.version", S::text, F::ignored, "nothing is registered as an asset"},
    SchemaKey{"distribution", S::map, F::translated, "--aml-dist, and how many tasks there are"},
    SchemaKey{"distribution.type", S::text, F::translated,
              "--aml-dist=TYPE; ray: the command is the driver of aml-dist ray", "pytorch mpi tensorflow jax ray"},
    SchemaKey{"distribution.process_count_per_instance", S::count, F::translated, "--ntasks-per-node"},
    SchemaKey{"distribution.worker_count", S::any_count, F::translated, "worker_count=N, and part of --ntasks"},
    SchemaKey{"distribution.parameter_server_count", S::any_count, F::translated,
              "parameter_server_count=N, and part of --ntasks"},
    SchemaKey{"distribution.address", S::text, F::translated, "master_addr=HOST, of HOST:PORT also master_port"},
    SchemaKey{"distribution.port", S::any_count, F::translated,
              "master_port=PORT; without it the step has a port of its own"},
    SchemaKey{"distribution.dashboard_port", S::any_count, F::translated,
              "--dashboard=PORT, if include_dashboard is true"},
    SchemaKey{"distribution.include_dashboard", S::truth, F::translated, "--dashboard of aml-dist ray"},
    SchemaKey{"distribution.head_node_additional_args", S::text, F::translated, "--head-args of aml-dist ray"},
    SchemaKey{"distribution.worker_node_additional_args", S::text, F::translated, "--worker-args of aml-dist ray"},
    SchemaKey{"compute", S::text, F::translated, "looked up in the administrator's table; else ignored"},
    SchemaKey{"resources", S::map, F::translated, "the job's shape"},
    SchemaKey{"resources.instance_count", S::count, F::translated, "--nodes"},
    SchemaKey{"resources.instance_type", S::text, F::translated,
              "partition, constraint, GPUs and InfiniBand, by the administrator's table; without one a size of Azure's "
              "asks for its GPUs"},
    SchemaKey{"resources.max_instance_count", S::count, F::ignored,
              "the job has instance_count nodes from start to end"},
    SchemaKey{"resources.shm_size", S::text, F::ignored, "tasks see the node's own /dev/shm"},
    SchemaKey{"resources.docker_args", S::text_or_texts, F::ignored, "no Docker is involved"},
    SchemaKey{"resources.locations", S::texts, F::ignored, "the cluster is where it is"},
    SchemaKey{"resources.properties", S::map, F::ignored, "settings of Azure's computes"},
    SchemaKey{"resources.properties.*", S::anything, F::ignored, "part of resources.properties"},
    SchemaKey{"limits", S::map, F::translated, "--time"},
    SchemaKey{"limits.timeout", S::count, F::translated, "--time, in seconds; Slurm rounds up to minutes"},
    SchemaKey{"queue_settings", S::map, F::translated, "--requeue for job_tier: spot"},
    SchemaKey{"queue_settings.job_tier", S::text, F::translated,
              "spot: --requeue; for the others say what you mean with --qos or --partition",
              "null spot basic standard premium"},
    SchemaKey{"queue_settings.priority", S::text, F::ignored, "say what you mean with --qos, --partition or --nice",
              "low medium high"},
    SchemaKey{"retry_settings", S::map, F::translated, "aml-dist keep"},
    SchemaKey{"retry_settings.max_retries", S::any_count, F::translated, "--retries of aml-dist keep"},
    SchemaKey{"retry_settings.timeout", S::count, F::ignored, "a mini-batch's; that of the job is limits.timeout"},
    SchemaKey{"services", S::map, F::ignored,
              "no service is started beside the job: srun --jobid=ID --overlap --pty bash "
              "opens a shell in it"},
    SchemaKey{"services.*", S::map, F::ignored, "part of services"},
    SchemaKey{"services.*.type", S::text, F::ignored, "part of services"},
    SchemaKey{"services.*.port", S::any_count, F::ignored, "part of services"},
    SchemaKey{"services.*.nodes", S::text, F::ignored, "part of services"},
    SchemaKey{"services.*.endpoint", S::text, F::ignored, by_azure},
    SchemaKey{"services.*.status", S::text, F::ignored, by_azure},
    SchemaKey{"services.*.error_message", S::text, F::ignored, by_azure},
    SchemaKey{"services.*.log_dir", S::text, F::ignored, "part of services"},
    SchemaKey{"services.*.ssh_public_keys", S::text, F::ignored, "part of services"},
    SchemaKey{"services.*.properties", S::map, F::ignored, "part of services"},
    SchemaKey{"services.*.properties.*", S::anything, F::ignored, "part of services"},
    SchemaKey{"identity", S::map, F::ignored, "the job runs as you"},
    SchemaKey{"identity.type", S::text, F::ignored, "part of identity",
              "user_identity managed managed_identity aml_token"},
    SchemaKey{"identity.client_id", S::text, F::ignored, "part of identity"},
    SchemaKey{"identity.object_id", S::text, F::ignored, "part of identity"},
    SchemaKey{"identity.msi_resource_id", S::text, F::ignored, "part of identity"},
    SchemaKey{"properties", S::map, F::ignored, "Azure ML's own notes about the job"},
    SchemaKey{"properties.*", S::anything, F::ignored, "part of properties"},
    SchemaKey{"parent_job_name", S::text, F::ignored, "jobs have no parents here; --dependency orders them"},
    SchemaKey{"component", S::text_or_map, F::translated, "a component's file, or the component itself"},
    SchemaKey{"version", S::text, F::ignored, "nothing is registered as an asset"},
    SchemaKey{"additional_includes", S::anything, F::refused, "put those files into the code folder"},
    SchemaKey{"is_deterministic", S::truth, F::ignored, "every job is run"},
    SchemaKey{"id", S::text, F::ignored, by_azure},
    SchemaKey{"status", S::text, F::ignored, by_azure},
    SchemaKey{"creation_context", S::anything, F::ignored, by_azure},
    SchemaKey{"log_files", S::anything, F::ignored, by_azure},
    SchemaKey{"parameters", S::anything, F::ignored, by_azure},
};

/// Whether the path of a table row is `path`, given as separate names because names may contain dots.
bool matches(std::string_view row, const std::vector<std::string_view>& path) {
  const auto names = text::split(row, '.');
  return std::ranges::equal(
      names, path, [](std::string_view pattern, std::string_view name) { return pattern == "*" || pattern == name; });
}

const SchemaKey* find_key(const std::vector<std::string_view>& path) {
  const auto* const found = std::ranges::find_if(schema, [&](const SchemaKey& key) { return matches(key.path, path); });
  return found == schema.end() ? nullptr : found;
}

/// The keys that are valid beside this one.
std::vector<std::string_view> siblings_of(std::vector<std::string_view> path) {
  std::vector<std::string_view> out;
  path.back() = "*";
  for (const SchemaKey& key : schema) {
    const auto names = text::split(key.path, '.');
    if (names.size() != path.size() || names.back() == "*") continue;
    const bool same = std::equal(names.begin(), names.end() - 1, path.begin(),
                                 [](std::string_view row, std::string_view name) { return row == "*" || row == name; });
    if (same) out.push_back(names.back());
  }
  return out;
}

std::string join_path(const std::vector<std::string_view>& path) { return text::join(path, "."); }

bool fits(ValueType type, const YamlValue& value) {
  const bool scalar = value.kind == YamlKind::scalar;
  const bool list = value.kind == YamlKind::list && std::ranges::all_of(value.items, [](const YamlValue& item) {
                      return item.kind == YamlKind::scalar;
                    });
  switch (type) {
    case S::text:
      return scalar;
    case S::count:
    case S::any_count: {
      const auto number = text::to_number(value.text, std::numeric_limits<std::int32_t>::max());
      return scalar && number && (type == S::any_count || *number > 0);
    }
    case S::truth:
      return scalar && (text::to_lower(value.text) == "true" || text::to_lower(value.text) == "false");
    case S::map:
      return value.kind == YamlKind::map;
    case S::texts:
      return list;
    case S::text_or_texts:
      return scalar || list;
    case S::text_or_map:
      return scalar || value.kind == YamlKind::map;
    case S::anything:
      break;
  }
  return true;
}

std::string_view describe(ValueType type) {
  switch (type) {
    case S::text:
      return "one value";
    case S::count:
      return "a whole number, 1 or more";
    case S::any_count:
      return "a whole number, 0 or more";
    case S::truth:
      return "true or false";
    case S::map:
      return "lines of the form 'key: value', indented below it";
    case S::texts:
      return "a list";
    case S::text_or_texts:
      return "one value or a list";
    case S::text_or_map:
      return "one value, or lines of the form 'key: value' below it";
    case S::anything:
      break;
  }
  return "a value";
}

std::string describe(const YamlValue& value) {
  if (value.kind == YamlKind::list) return "a list";
  if (value.kind == YamlKind::map) return "a map";
  return quote(value.text);
}

/// Walks the tree together with the table.
struct Checker {
  std::string_view file;
  std::vector<Ignored> ignored;

  Result<void> check_map(const YamlValue& map, std::vector<std::string_view>& path, bool told) {
    for (const YamlEntry& entry : map.entries) {
      path.emplace_back(entry.key);
      auto checked = check_entry(entry, path, told);
      path.pop_back();
      if (!checked) return checked.error();
    }
    return {};
  }

  Result<void> check_entry(const YamlEntry& entry, std::vector<std::string_view>& path, bool told) {
    const SchemaKey* const key = find_key(path);
    if (key == nullptr) return unknown(entry, path);
    if (auto status = check_expression(*key, entry, path); !status) return status.error();
    if (entry.value.is_null()) return {};  // "key:" without a value, as samples have it for outputs
    if (!fits(key->type, entry.value)) {
      return error_at(file, entry.value.location,
                      concat({join_path(path), " is ", describe(entry.value), ": use ", describe(key->type)}));
    }
    if (auto status = check_allowed(*key, entry, path); !status) return status.error();
    if (key->handling == F::refused) {
      return error_at(file, entry.location, concat({join_path(path), " is not supported: ", key->becomes}));
    }
    if (key->handling == F::ignored && !told) {
      ignored.push_back({join_path(path), entry.location, std::string(key->becomes)});
      told = true;
    }
    if (entry.value.kind != YamlKind::map || key->type == S::anything) return {};
    return check_map(entry.value, path, told);
  }

  /// Azure ML puts values into a command and its variables; inputs and outputs are read elsewhere.
  [[nodiscard]] Result<void> check_expression(const SchemaKey& key, const YamlEntry& entry,
                                              const std::vector<std::string_view>& path) const {
    constexpr std::array<std::string_view, 9> places = {
        "command",     "environment_variables", "inputs",          "outputs", "name",
        "description", "display_name",          "experiment_name", "tags"};
    const bool is_place = std::ranges::find(places, path.front()) != places.end();
    if (is_place || key.handling != F::translated) return {};
    for (const YamlValue* const value : texts_of(entry.value)) {
      if (value->text.find("${{") == std::string::npos) continue;
      return error_at(
          file, value->location,
          concat({join_path(path), " is ", quote(value->text),
                  ": ${{...}} has a value in command and environment_variables, so write the value itself"}));
    }
    return {};
  }

  static std::vector<const YamlValue*> texts_of(const YamlValue& value) {
    std::vector<const YamlValue*> out = {&value};
    for (const YamlValue& item : value.items) out.push_back(&item);
    return out;
  }

  [[nodiscard]] Result<void> check_allowed(const SchemaKey& key, const YamlEntry& entry,
                                           const std::vector<std::string_view>& path) const {
    if (key.allowed.empty() || entry.value.kind != YamlKind::scalar) return {};
    const auto allowed = text::split(key.allowed, ' ');
    const std::string value = text::to_lower(entry.value.text);
    if (std::ranges::find(allowed, value) != allowed.end()) return {};
    const auto near = text::nearest(value, allowed);
    return error_at(file, entry.value.location,
                    concat({"invalid value ", quote(entry.value.text), " for ", join_path(path),
                            near ? concat({": did you mean '", *near, "'?"})
                                 : concat({": use ", allowed.size() > 1 ? "one of " : "", text::join(allowed)})}));
  }

  [[nodiscard]] Error unknown(const YamlEntry& entry, const std::vector<std::string_view>& path) const {
    const auto known = siblings_of(path);
    const auto near = text::nearest(entry.key, known);
    std::string sentence = concat({"unknown key ", quote(entry.key)});
    if (path.size() > 1) {
      sentence += concat({" in ", join_path({path.begin(), path.end() - 1})});
    }
    if (near) sentence += concat({": did you mean '", *near, "'?"});
    else if (!known.empty() && known.size() <= 10) sentence += concat({": there are ", text::join(known)});
    else sentence += ": aml-run --list-keys prints them all";
    return error_at(file, entry.location, sentence);
  }
};

}  // namespace

std::span<const SchemaKey> job_schema() noexcept { return schema; }

Result<std::vector<Ignored>> check_job(std::string_view file, const YamlValue& root) {
  Checker checker{file, {}};
  std::vector<std::string_view> path;
  if (auto status = checker.check_map(root, path, false); !status) return status.error();
  return std::move(checker.ignored);
}

std::string_view to_string(KeyHandling handling) noexcept {
  switch (handling) {
    case F::translated:
      return "translated";
    case F::ignored:
      return "ignored";
    case F::refused:
      break;
  }
  return "refused";
}

}  // namespace amldist::run
