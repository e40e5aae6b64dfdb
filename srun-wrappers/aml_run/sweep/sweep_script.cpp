#include "aml_run/sweep/sweep_script.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "aml_run/job_file.hpp"
#include "base/text/text.hpp"
#include "shared/programs.hpp"
#include "shared/shell.hpp"

namespace amldist::run {
namespace {

using text::concat;

std::string variable_of(const Parameter& parameter) { return concat({"AML_PARAMETER_", parameter.name}); }

/// A value with many characters that bash acts on, if there is one: what a warning is about.
std::string example_of(const Sweep& sweep, std::size_t column) {
  for (const Trial& trial : sweep.trials) {
    const std::string& value = trial[column];
    if (!what_bash_does({Replacement::Form::text, value}, '\0', '\0').empty()) return value;
  }
  return sweep.trials.empty() ? std::string() : sweep.trials.front()[column];
}

std::string values_line(const Sweep& sweep, std::size_t column) {
  const std::string name = variable_of(sweep.space[column]);
  std::string out = concat({name, "_of=(''"});
  for (const Trial& trial : sweep.trials) out += concat({" ", shell::quote(trial[column])});
  return concat({out, ")\n", name, "=${", name, "_of[SLURM_ARRAY_TASK_ID]}"});
}

/// Where a job may run and who pays for it.
std::string admission_lines(const commands::SlurmOptions& options) {
  constexpr std::array<std::string_view, 6> names = {"account", "partition", "qos", "reservation", "wckey", "clusters"};
  std::string out;
  for (const commands::GivenOption& option : options.all()) {
    if (option.value && std::ranges::find(names, option.name) != names.end())
      out += concat({"#SBATCH --", option.name, "=", shell::quote_directive(*option.value), "\n"});
  }
  return out;
}

}  // namespace

std::vector<std::pair<std::string, Replacement>> parameter_expressions(const Sweep& sweep) {
  std::vector<std::pair<std::string, Replacement>> out;
  for (std::size_t i = 0; i < sweep.space.size(); ++i) {
    const Replacement value{Replacement::Form::late_text, example_of(sweep, i), variable_of(sweep.space[i])};
    out.emplace_back(concat({"search_space.", sweep.space[i].name}), value);
    const YamlValue* const inputs = sweep.job.find("inputs");
    if (inputs == nullptr || inputs->find(sweep.space[i].name) == nullptr)
      out.emplace_back(concat({"inputs.", sweep.space[i].name}), value);
  }
  return out;
}

void place_in_sweep(const std::string& run_folder, const std::string& sweep_folder, const Sweep& sweep, Plan& plan) {
  const std::string tool = shell::quote(commands::sibling_program("aml-run"));
  plan.job.set("output", concat({shell::without_patterns(sweep_folder), "/trials/%a/output.txt"}));
  // What the plan has already comes behind.
  const std::vector<std::string> copying = std::exchange(plan.first_lines, {});
  plan.first_lines.push_back(concat(
      {"AML_TRIAL_FOLDER=", shell::quote(sweep_folder), "/trials/$SLURM_ARRAY_TASK_ID\nexport AML_TRIAL_FOLDER"}));
  plan.first_lines.push_back(concat({tool, " --may-start ", shell::quote(run_folder), " || exit"}));
  plan.first_lines.push_back(
      concat({tool, " --begin-trial ", shell::quote(sweep_folder), " \"$SLURM_ARRAY_TASK_ID\" || exit"}));
  if (plan.work_folder.empty()) plan.first_lines.emplace_back("cd -- \"$AML_TRIAL_FOLDER\" || exit");
  plan.first_lines.insert(plan.first_lines.end(), copying.begin(), copying.end());
  plan.record = concat({sweep_folder, "/trials/"});
  plan.record_variable = "SLURM_ARRAY_TASK_ID";
  plan.record_suffix = "/record";
  plan.output_folder = "$AML_TRIAL_FOLDER";
  for (std::size_t i = 0; i < sweep.space.size(); ++i) {
    // A value may have a $ that is meant as it is.
    plan.value_lines.emplace_back("# shellcheck disable=SC2016,SC2034");
    plan.value_lines.push_back(values_line(sweep, i));
  }
  plan.value_lines.emplace_back(
      "# Where the trial says its metric: lines such as {\"loss\": 0.5} in the file, or MLflow.\nexport "
      "AML_METRICS_FILE=\"$AML_TRIAL_FOLDER/metrics.jsonl\"");
  std::erase(plan.value_lines, default_tracking_line);  // a trial has its own, in which its metric is looked for
  const bool own_store =
      std::ranges::any_of(plan.environment, [](const Variable& each) { return each.name == "MLFLOW_TRACKING_URI"; });
  if (!own_store) plan.value_lines.emplace_back("export MLFLOW_TRACKING_URI=\"$AML_TRIAL_FOLDER/mlruns\"");
  if (sweep.policy.kind != TerminationPolicy::Kind::none || sweep.timeout_seconds != 0) {
    plan.task_lines.emplace_back("# Ends this trial if the policy says so, or the sweep's time is over.");
    plan.task_lines.push_back(concat({tool, " --watch-trial ", shell::quote(sweep_folder),
                                      " \"$SLURM_ARRAY_TASK_ID\" \"${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID\" &"}));
  }
}

std::string finishing_script(const std::string& run_folder, const std::string& sweep_folder,
                             const std::string& job_name, const commands::SlurmOptions& trials,
                             bool continue_on_failure) {
  const std::string tool = shell::quote(commands::sibling_program("aml-run"));
  const std::string folder = shell::quote(run_folder);
  std::string out = concat(
      {"#!/bin/bash\n#SBATCH --job-name=",
       shell::quote_directive(concat({std::string_view(run_folder).substr(run_folder.rfind('/') + 1), ".", job_name})),
       "\n", admission_lines(trials), "#SBATCH --nodes=1\n#SBATCH --ntasks=1\n#SBATCH --time=10\n#SBATCH --output=",
       shell::quote_directive(concat({shell::without_patterns(run_folder), "/logs/", job_name, ".out"})),
       "\n\n# Puts the outputs of the sweep's best trial where other jobs look for them.\nrun_folder=", folder, "\n"});
  if (!continue_on_failure)
    out += concat({"trap 'job_end=$?; ((job_end == 0)) || ", tool, " --stop-run \"$run_folder\" ",
                   shell::quote(job_name), "' EXIT\n"});
  out += concat({tool, " --may-start \"$run_folder\" || exit\n",
                 "job_status=0\necho \"job $SLURM_JOB_ID ${SLURM_RESTART_COUNT:-0}\" >\"$run_folder\"/state/",
                 shell::quote(job_name), "\n", tool, " --finish-sweep ", shell::quote(sweep_folder),
                 " || job_status=$?\n", "echo \"ended $job_status\" >>\"$run_folder\"/state/", shell::quote(job_name),
                 "\nexit \"$job_status\"\n"});
  return out;
}

}  // namespace amldist::run
