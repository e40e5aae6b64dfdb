#include "aml_run/conda.hpp"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "aml_run/job_inputs.hpp"
#include "base/text/text.hpp"
#include "shared/programs.hpp"
#include "shared/shell.hpp"

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

/// What uv makes an environment of.
struct PythonPackages {
  std::string python;        ///< "3.11"; empty: whichever there is
  std::string requirements;  ///< lines of pip's
};

/// "python=3.11.*", "conda-forge::pip": all that conda installs where pip does the rest.
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
      if (auto read = read_package(text::trim(item.text), out); !read) return read.error();
      continue;
    }
    for (const YamlValue& line : pip->items) out.requirements += concat({line.text, "\n"});
  }
  return out;
}

/// The command that makes $conda_folder of $conda_folder.yml.
Result<std::string> making(const CondaPolicy& policy, std::string_view text) {
  const std::string program = shell::quote(policy.program);
  const auto name = std::filesystem::path(policy.program).filename();
  if (name != "uv") {
    return concat({program, " env create ", name == "conda" ? "" : "-y ",
                   "-q -p \"$conda_folder\" -f \"$conda_folder.yml\" >&2"});
  }
  const auto packages = read_packages(text);
  if (!packages) return packages.error();
  const std::string python = packages->python.empty() ? "" : concat({"--python ", shell::quote(packages->python), " "});
  std::string line = concat({program, " venv -q ", python, "\"$conda_folder\" >&2"});
  if (packages->requirements.empty()) return line;
  return concat({line, " &&\n        printf %s ", shell::quote(packages->requirements),
                 " >\"$conda_folder.txt\" &&\n        ", program,
                 " pip install -q --python \"$conda_folder/bin/python\" -r \"$conda_folder.txt\" >&2"});
}

}  // namespace

Result<std::string> conda_text(const std::string& file, const std::string& folder, const YamlValue& value) {
  if (value.kind != YamlKind::scalar)
    return json_of(value).dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  auto content = commands::read_file(local_path(folder, value.text), longest_yaml);
  if (content) return content;
  return error_at(file, value.location, concat({"environment.conda_file is ", content.error().message}),
                  content.error().code);
}

Result<std::vector<std::string>> conda_lines(const CondaPolicy& policy, std::string_view text) {
  const auto make = making(policy, text);
  if (!make) return make.error();
  return std::vector<std::string>{concat(
      {"# environment.conda_file: made once, and kept under the name of its content.\nconda_text=", shell::quote(text),
       "\nconda_root=", shell::quote(policy.folder), "/$UID\n",
       "mkdir -p -- \"$conda_root\" && [[ -O $conda_root ]] || {\n",
       "    echo \"aml-dist: $conda_root must be a folder of yours, for environments\" >&2\n    exit 4\n}\n",
       "conda_folder=$conda_root/$(printf %s \"$conda_text\" | sha256sum | cut -c1-32)\n(\n",
       "    flock 9 || exit\n    [[ ! -e $conda_folder/.complete ]] || exit 0\n",
       "    echo \"aml-dist: making the environment $conda_folder\" >&2\n",
       "    rm -rf -- \"$conda_folder\" && printf %s \"$conda_text\" >\"$conda_folder.yml\" &&\n        ", *make,
       " &&\n", "        touch \"$conda_folder/.complete\"\n) 9>\"$conda_folder.lock\" || {\n",
       "    echo \"aml-dist: the environment of environment.conda_file cannot be made\" >&2\n    exit 4\n}\n",
       "export CONDA_PREFIX=$conda_folder PATH=$conda_folder/bin:$PATH"})};
}

}  // namespace amldist::run
