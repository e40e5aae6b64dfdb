#include "aml_run/script/provision_lines.hpp"

#include <filesystem>

#include "base/text/text.hpp"
#include "shared/programs.hpp"
#include "shared/shell.hpp"

namespace amldist::run {
namespace {

using text::concat;

/// The command that makes $conda_folder from $conda_folder.yml.
std::string making(const CondaEnvironment& environment) {
  const std::string program = shell::quote(environment.policy.program);
  const auto name = std::filesystem::path(environment.policy.program).filename();
  if (!environment.packages) {
    return concat({program, " env create ", name == "conda" ? "" : "-y ",
                   "-q -p \"$conda_folder\" -f \"$conda_folder.yml\" >&2"});
  }
  const PythonPackages& packages = *environment.packages;
  const std::string python = packages.python.empty() ? "" : concat({"--python ", shell::quote(packages.python), " "});
  std::string line = concat({program, " venv -q ", python, "\"$conda_folder\" >&2"});
  if (packages.requirements.empty()) return line;
  return concat({line, " &&\n        printf %s ", shell::quote(packages.requirements),
                 " >\"$conda_folder.txt\" &&\n        ", program,
                 " pip install -q --python \"$conda_folder/bin/python\" -r \"$conda_folder.txt\" >&2"});
}

}  // namespace

std::vector<std::string> download_lines(const std::vector<Download>& downloads) {
  if (downloads.empty()) return {};
  std::vector<std::string> out = {concat(
      {"# Inputs behind https: are fetched once.\naml_fetch() { # aml_fetch URL SHARED_FOLDER PATH\n    local folder\n "
       "   "
       "folder=$(",
       shell::quote(commands::sibling_program("aml-run")),
       " --own-folder \"$2\" \"${3%/*}\") || exit\n    local file=$folder/${3##*/}\n    [[ ! -e $file ]] || return 0\n"
       "    curl --fail --silent --show-error --location --proto =https --output \"$file.$SLURM_JOB_ID.$$\" -- \"$1\" "
       "&&\n        mv -- \"$file.$SLURM_JOB_ID.$$\" \"$file\" && return\n    rm -f -- \"$file.$SLURM_JOB_ID.$$\"\n"
       "    echo \"aml-dist: $1 cannot be fetched to $file\" >&2\n    exit 4\n}"})};
  out.reserve(downloads.size() + 1);
  for (const Download& each : downloads)
    out.push_back(concat(
        {"aml_fetch ", shell::quote(each.url), " ", shell::quote(each.shared_folder), " ", shell::quote(each.path)}));
  return out;
}

std::string conda_lines(const CondaEnvironment& environment) {
  return concat({"# environment.conda_file: made once, and kept under the name of its content.\nconda_text=",
                 shell::quote(environment.text), "\nconda_root=$(", shell::quote(commands::sibling_program("aml-run")),
                 " --own-folder ", shell::quote(environment.policy.folder), " \"$UID\") || exit\n",
                 "conda_folder=$conda_root/$(printf %s \"$conda_text\" | sha256sum | cut -c1-32)\n(\n",
                 "    flock 9 || exit\n    [[ ! -e $conda_folder/.complete ]] || exit 0\n",
                 "    echo \"aml-dist: making the environment $conda_folder\" >&2\n",
                 "    rm -rf -- \"$conda_folder\" && printf %s \"$conda_text\" >\"$conda_folder.yml\" &&\n        ",
                 making(environment), " &&\n",
                 "        touch \"$conda_folder/.complete\"\n) 9>\"$conda_folder.lock\" || {\n",
                 "    echo \"aml-dist: the environment of environment.conda_file cannot be made\" >&2\n    exit 4\n}\n",
                 "export CONDA_PREFIX=$conda_folder PATH=$conda_folder/bin:$PATH"});
}

}  // namespace amldist::run
