#include "aml_run/conda.hpp"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "aml_run/job_inputs.hpp"
#include "base/text/text.hpp"
#include "shared/json.hpp"
#include "shared/programs.hpp"

namespace amldist::run {
namespace {

using text::concat;
using YamlKind = YamlValue::Kind;

/// JSON is YAML, so an inline file is written as JSON.
nlohmann::ordered_json json_of(const YamlValue& value) {
  if (value.is_null()) return nullptr;
  if (value.kind == YamlKind::scalar) return value.text;
  auto out = value.kind == YamlKind::list ? nlohmann::ordered_json::array() : nlohmann::ordered_json::object();
  for (const YamlValue& item : value.items) out.push_back(json_of(item));
  for (const YamlEntry& entry : value.entries) out[entry.key] = json_of(entry.value);
  return out;
}

/// "python=3.11.*", "conda-forge::pip": all that conda installs if pip does the rest.
Result<void> read_package(std::string_view entry, PythonPackages& out) {
  const auto channel = entry.find("::");
  const std::string_view package = channel == std::string_view::npos ? entry : entry.substr(channel + 2);
  const auto end = std::min(package.find_first_of("=<>!~ "), package.size());
  const std::string_view name = package.substr(0, end);
  if (name == "pip") return {};
  if (name != "python") {
    return Error{Errc::invalid_argument,
                 concat({"environment.conda_file has ", text::quote(entry),
                         ", a package of conda, and this site makes environments with uv: put it below 'pip:'"})};
  }
  std::string_view version = text::trim(package.substr(end));
  while (version.starts_with('=')) version.remove_prefix(1);
  if (!version.empty() && version.front() >= '0' && version.front() <= '9') {
    version = version.substr(0, version.find('='));  // "3.11=build"
  }
  if (version.ends_with(".*")) version.remove_suffix(2);
  out.python = version;
  return {};
}

Result<PythonPackages> read_packages(std::string_view text) {
  const auto root = parse_yaml("environment.conda_file", text);
  if (!root) return root.error();
  PythonPackages out;
  const YamlValue* const list = root->find("dependencies");
  if (list == nullptr) return out;
  for (const YamlValue& item : list->items) {
    const YamlValue* const pip = item.find("pip");
    if (pip == nullptr) {
      if (auto status = read_package(text::trim(item.text), out); !status) return status.error();
      continue;
    }
    for (const YamlValue& line : pip->items) out.requirements += concat({line.text, "\n"});
  }
  return out;
}

}  // namespace

Result<std::string> conda_text(const std::string& file, const std::string& folder, const YamlValue& value) {
  if (value.kind != YamlKind::scalar) return commands::json_text(json_of(value));
  auto content = commands::read_file(local_path(folder, value.text), longest_yaml);
  if (content) return content;
  return error_at(file, value.location, concat({"environment.conda_file is ", content.error().message}),
                  content.error().code);
}

Result<CondaEnvironment> conda_environment(const CondaPolicy& policy, std::string text) {
  CondaEnvironment out{policy, std::move(text), std::nullopt};
  if (std::filesystem::path(policy.program).filename() != "uv") return out;
  auto packages = read_packages(out.text);
  if (!packages) return packages.error();
  out.packages = std::move(*packages);
  return out;
}

}  // namespace amldist::run
