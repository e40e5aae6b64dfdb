#include "aml_run/site_table.hpp"

#include <algorithm>
#include <array>
#include <filesystem>

#include "aml_run/settings.hpp"
#include "aml_run/yaml/yaml_tree.hpp"
#include "base/os/environment.hpp"
#include "base/text/text.hpp"
#include "shared/option_parser.hpp"
#include "shared/programs.hpp"

namespace amldist::run {
namespace {

using text::concat;
using text::quote;
using YamlKind = YamlValue::Kind;

constexpr std::array<std::string_view, 8> sections = {"instance_types", "computes", "images",       "conda",
                                                      "downloads",      "code",     "environments", "data"};
constexpr std::array<std::string_view, 6> line_keys = {"partition", "constraint", "gpus_per_node",
                                                       "gpu_type",  "infiniband", "options"};
constexpr std::array<std::string_view, 3> policies = {"require", "prefer", "off"};

Error unknown(std::string_view file, const YamlEntry& entry, std::span<const std::string_view> known) {
  const auto near = text::nearest(entry.key, known);
  return error_at(
      file, entry.location,
      concat({"unknown key ", quote(entry.key),
              near ? concat({": did you mean '", *near, "'?"}) : concat({": there are ", text::join(known)})}));
}

/// "--exclusive", "--mem=0": further options of sbatch.
Result<void> read_options(std::string_view file, const YamlValue& value, Hardware& out) {
  const bool list = value.kind == YamlKind::list && std::ranges::all_of(value.items, [](const YamlValue& item) {
                      return item.kind == YamlKind::scalar;
                    });
  if (!list) return error_at(file, value.location, "options is a list, such as [--exclusive, --mem=0]");
  for (const YamlValue& item : value.items) {
    const auto taken = commands::read_slurm_option(item.text);
    if (!taken) {
      return error_at(file, item.location,
                      concat({quote(item.text), " is not an option of sbatch: write --name=value"}));
    }
    out.options.merge(*taken);
  }
  return {};
}

Result<void> read_key(std::string_view file, const YamlEntry& entry, Hardware& out) {
  if (entry.key == "options") return read_options(file, entry.value, out);
  if (std::ranges::find(line_keys, entry.key) == line_keys.end()) return unknown(file, entry, line_keys);
  const std::string& value = entry.value.text;
  if (entry.value.kind != YamlKind::scalar)
    return error_at(file, entry.location, concat({entry.key, " needs one value"}));
  if (entry.key == "gpus_per_node") {
    const auto number = text::to_number(value, 1024);
    if (!number) return error_at(file, entry.value.location, "gpus_per_node is a whole number, 0 to 1024");
    out.gpus_per_node = static_cast<unsigned>(*number);
  } else if (entry.key == "infiniband") {
    if (std::ranges::find(policies, value) == policies.end()) {
      return error_at(file, entry.value.location, "infiniband is require, prefer or off");
    }
    out.infiniband = value;
  } else if (entry.key != "gpu_type") {
    out.options.set(entry.key, value);
  }
  return {};
}

Result<Hardware> read_line(std::string_view file, const YamlEntry& entry) {
  Hardware out;
  out.name = entry.key;
  if (entry.value.is_null()) return out;
  if (entry.value.kind != YamlKind::map)
    return error_at(file, entry.value.location, "write 'key: value' lines below a name");
  for (const YamlEntry& key : entry.value.entries) {
    if (auto status = read_key(file, key, out); !status) return status.error();
  }
  const YamlValue* const type = entry.value.find("gpu_type");
  if (out.gpus_per_node && *out.gpus_per_node > 0) {
    out.options.set("gpus-per-node",
                    concat({type != nullptr ? concat({type->text, ":"}) : "", std::to_string(*out.gpus_per_node)}));
  } else if (type != nullptr) {
    return error_at(file, type->location, "gpu_type needs gpus_per_node beside it");
  }
  return out;
}

Result<std::vector<Hardware>> read_section(std::string_view file, const YamlValue* section) {
  std::vector<Hardware> out;
  if (section == nullptr) return out;
  if (section->kind != YamlKind::map) return error_at(file, section->location, "write 'NAME:' lines below it");
  for (const YamlEntry& entry : section->entries) {
    auto line = read_line(file, entry);
    if (!line) return line.error();
    out.push_back(std::move(*line));
  }
  return out;
}

/// A section of this file with a few keys of its own.
class PolicySection {
 public:
  PolicySection(std::string_view file, std::string_view name, const YamlValue& section)
      : file_(file), name_(name), section_(section) {}

  [[nodiscard]] Result<void> check(std::span<const std::string_view> keys) const {
    if (section_.kind != YamlKind::map) return wrong(section_.location, "needs 'key: value' lines below it");
    for (const YamlEntry& entry : section_.entries) {
      if (std::ranges::find(keys, entry.key) == keys.end()) return unknown(file_, entry, keys);
    }
    return {};
  }

  /// A text that is required.
  Result<std::string> text(std::string_view key) const {
    const YamlValue* const value = section_.find(key);
    if (value == nullptr || value->kind != YamlKind::scalar) return wrong(section_.location, concat({"needs ", key}));
    return value->text;
  }

  /// A folder: absolute, without the characters that end a name for pyxis and Apptainer.
  Result<std::string> folder(std::string_view key) const {
    auto path = text(key);
    if (path && !is_folder(*path))
      return wrong(section_.find(key)->location, concat({key, " is an absolute path without : and ,"}));
    return path;
  }

  Result<std::vector<std::string>> list(std::string_view key, bool folders) const {
    std::vector<std::string> out;
    const YamlValue* const value = section_.find(key);
    if (value == nullptr) return out;
    for (const YamlValue& item : value->items) {
      if (item.kind != YamlKind::scalar || (folders && !is_folder(item.text)))
        return wrong(item.location,
                     concat({key, folders ? " are absolute paths without : and ," : " is a list of texts"}));
      out.push_back(item.text);
    }
    if (value->kind != YamlKind::list) return wrong(value->location, concat({key, " is a list"}));
    return out;
  }

 private:
  static bool is_folder(std::string_view path) {
    return path.starts_with('/') && path.find_first_of(":,") == std::string_view::npos;
  }
  [[nodiscard]] Error wrong(const SourceLocation& location, std::string_view what) const {
    return error_at(file_, location, concat({name_, ": ", what}));
  }

  std::string_view file_;
  std::string name_;
  const YamlValue& section_;
};

Result<ImagePolicy> read_images(std::string_view file, const YamlValue& value) {
  constexpr std::array<std::string_view, 3> keys = {"by", "mounts", "options"};
  const PolicySection section(file, "images", value);
  if (auto status = section.check(keys); !status) return status.error();
  const auto by = section.text("by");
  if (!by) return by.error();
  using By = ImagePolicy::By;
  const By runs = *by == "pyxis"                           ? By::pyxis
                  : *by == "apptainer"                     ? By::apptainer
                  : *by == "podman" || *by == "podman-hpc" ? By::podman
                                                           : By::nothing;
  if (runs == By::nothing)
    return error_at(file, value.find("by")->location, "images: by is pyxis, apptainer, podman or podman-hpc");
  auto mounts = section.list("mounts", true);
  if (!mounts) return mounts.error();
  auto options = section.list("options", false);
  if (!options) return options.error();
  return ImagePolicy{runs, *by, std::move(*mounts), std::move(*options)};
}

Result<CondaPolicy> read_conda(std::string_view file, const YamlValue& value) {
  constexpr std::array<std::string_view, 2> keys = {"by", "folder"};
  const PolicySection section(file, "conda", value);
  if (auto status = section.check(keys); !status) return status.error();
  auto by = section.text("by");
  if (!by) return by.error();
  auto folder = section.folder("folder");
  if (!folder) return folder.error();
  return CondaPolicy{std::move(*by), std::move(*folder)};
}

Result<std::string> read_downloads(std::string_view file, const YamlValue& value) {
  constexpr std::array<std::string_view, 1> keys = {"folder"};
  const PolicySection section(file, "downloads", value);
  if (auto status = section.check(keys); !status) return status.error();
  return section.folder("folder");
}

Result<bool> read_code(std::string_view file, const YamlValue& value) {
  constexpr std::array<std::string_view, 1> keys = {"snapshot"};
  const PolicySection section(file, "code", value);
  if (auto status = section.check(keys); !status) return status.error();
  const auto when = section.text("snapshot");
  if (!when) return when.error();
  if (*when == "always" || *when == "on-request") return *when == "always";
  return error_at(file, value.find("snapshot")->location, "code: snapshot is always or on-request");
}

/// environments: {NAME: {image: ..., conda_file: ...}}
Result<std::vector<RegisteredEnvironment>> read_environments(std::string_view file, const YamlValue& section) {
  constexpr std::array<std::string_view, 2> keys = {"image", "conda_file"};
  std::vector<RegisteredEnvironment> out;
  if (section.kind != YamlKind::map)
    return error_at(file, section.location, "environments: write 'NAME:' lines below it");
  for (const YamlEntry& entry : section.entries) {
    const PolicySection line(file, concat({"environments: ", entry.key}), entry.value);
    if (auto status = line.check(keys); !status) return status.error();
    if (entry.value.entries.empty())
      return error_at(file, entry.location, concat({"environments: ", entry.key, " needs image or conda_file"}));
    for (const YamlEntry& key : entry.value.entries) {
      if (auto text = line.text(key.key); !text) return text.error();
    }
    out.push_back({entry.key, entry.value, std::filesystem::path(file).parent_path().string()});
  }
  return out;
}

/// data: {NAME: /path, "NAME:VERSION": /path}
Result<std::vector<DataAsset>> read_data(std::string_view file, const YamlValue& section) {
  std::vector<DataAsset> out;
  if (section.kind != YamlKind::map)
    return error_at(file, section.location, "data: write 'NAME: /PATH' lines below it");
  for (const YamlEntry& entry : section.entries) {
    if (!entry.value.text.starts_with('/'))
      return error_at(file, entry.value.location, concat({"data: ", entry.key, " needs an absolute path"}));
    out.push_back({entry.key, entry.value.text});
  }
  return out;
}

Result<void> read_policies(std::string_view file, const YamlValue& root, SiteTable& table) {
  const auto take = [&](std::string_view name, auto read, auto& to) -> Result<void> {
    const YamlValue* const section = root.find(name);
    if (section == nullptr) return {};
    auto policy = read(file, *section);
    if (!policy) return policy.error();
    to = std::move(*policy);
    return {};
  };
  if (auto status = take("images", read_images, table.images); !status) return status;
  if (auto status = take("conda", read_conda, table.conda); !status) return status;
  if (auto status = take("data", read_data, table.data); !status) return status;
  if (auto status = take("environments", read_environments, table.environments); !status) return status;
  if (auto status = take("code", read_code, table.snapshots); !status) return status;
  return take("downloads", read_downloads, table.downloads);
}

/// The line of this very version, else that of the name.
template <typename Line>
const Line* find_registered(const std::vector<Line>& lines, std::string_view reference) {
  if (!reference.starts_with("azureml:")) return nullptr;
  const std::string_view whole = reference.substr(8);
  for (const std::string_view wanted : {whole, whole.substr(0, whole.find_first_of(":@"))}) {
    const auto found = std::ranges::find(lines, wanted, &Line::name);
    if (found != lines.end()) return &*found;
  }
  return nullptr;
}

const Hardware* find_line(const std::vector<Hardware>& lines, std::string_view name) {
  const auto found = std::ranges::find_if(
      lines, [&](const Hardware& line) { return text::to_lower(line.name) == text::to_lower(name); });
  return found == lines.end() ? nullptr : &*found;
}

}  // namespace

std::string default_site_table() {
  if (auto own = own_variable(variable::instance_types); own && !own->empty()) return *own;
  return "/etc/aml-dist/instance-types.yml";
}

Result<SiteTable> read_site_table(const std::string& file, bool must_exist) {
  const auto content = commands::read_file(file, longest_yaml);
  if (!content) {
    if (content.error().code == Errc::not_found && !must_exist) return SiteTable{};
    return content.error();
  }
  const auto root = parse_yaml(file, *content);
  if (!root) return root.error();
  for (const YamlEntry& entry : root->entries) {
    if (std::ranges::find(sections, entry.key) == sections.end()) return unknown(file, entry, sections);
  }
  auto types = read_section(file, root->find(sections[0]));
  if (!types) return types.error();
  auto computes = read_section(file, root->find(sections[1]));
  if (!computes) return computes.error();
  SiteTable table{file, std::move(*types), std::move(*computes), {}, {}, {}, {}, false, {}};
  if (auto status = read_policies(file, *root, table); !status) return status.error();
  return table;
}

Result<std::optional<Hardware>> find_instance_type(const SiteTable& table, std::string_view name) {
  if (table.file.empty()) return std::optional<Hardware>();
  if (const Hardware* const line = find_line(table.instance_types, name)) return std::optional(*line);
  std::vector<std::string_view> names;
  for (const Hardware& line : table.instance_types) names.emplace_back(line.name);
  const auto near = text::nearest(name, names);
  return Error{Errc::not_found,
               concat({"instance type ", quote(name), " is not in ", table.file,
                       near ? concat({": did you mean '", *near, "'?"})
                            : std::string(": ask the administrator, or choose with --partition and --gpus-per-node")})};
}

std::optional<Hardware> find_compute(const SiteTable& table, std::string_view name) {
  if (name.starts_with("azureml:")) name.remove_prefix(8);
  const Hardware* const line = find_line(table.computes, name);
  return line != nullptr ? std::optional(*line) : std::nullopt;
}

const RegisteredEnvironment* find_environment(const SiteTable& table, std::string_view reference) {
  return find_registered(table.environments, reference);
}

const DataAsset* find_asset(const SiteTable& table, std::string_view reference) {
  return find_registered(table.data, reference);
}

}  // namespace amldist::run
