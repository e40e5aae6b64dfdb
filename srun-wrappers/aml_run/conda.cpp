#include "aml_run/conda.hpp"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "aml_run/job_inputs.hpp"
#include "core/text.hpp"
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

}  // namespace

Result<std::string> conda_text(const std::string& file, const std::string& folder, const YamlValue& value) {
  if (value.kind != YamlKind::scalar)
    return json_of(value).dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  auto content = commands::read_file(local_path(folder, value.text), longest_yaml);
  if (content) return content;
  return error_at(file, value.location, concat({"environment.conda_file is ", content.error().message}),
                  content.error().code);
}

std::vector<std::string> conda_lines(const CondaPolicy& policy, std::string_view text) {
  const std::string program = shell::quote(policy.program);
  const bool asks = std::filesystem::path(policy.program).filename() != "conda";
  return {concat(
      {"# environment.conda_file: made once, and kept under the name of its content.\nconda_text=", shell::quote(text),
       "\nconda_root=", shell::quote(policy.folder), "/$UID\n",
       "mkdir -p -- \"$conda_root\" && [[ -O $conda_root ]] || {\n",
       "    echo \"aml-dist: $conda_root must be a folder of yours, for environments\" >&2\n    exit 4\n}\n",
       "conda_folder=$conda_root/$(printf %s \"$conda_text\" | sha256sum | cut -c1-32)\n(\n",
       "    flock 9 || exit\n    [[ ! -e $conda_folder/.complete ]] || exit 0\n",
       "    echo \"aml-dist: making the environment $conda_folder\" >&2\n",
       "    rm -rf -- \"$conda_folder\" && printf %s \"$conda_text\" >\"$conda_folder.yml\" &&\n        ", program,
       " env create ", asks ? "-y " : "", "-q -p \"$conda_folder\" -f \"$conda_folder.yml\" >&2 &&\n",
       "        touch \"$conda_folder/.complete\"\n) 9>\"$conda_folder.lock\" || {\n",
       "    echo \"aml-dist: the environment of environment.conda_file cannot be made\" >&2\n    exit 4\n}\n",
       "export CONDA_PREFIX=$conda_folder PATH=$conda_folder/bin:$PATH"})};
}

}  // namespace amldist::run
