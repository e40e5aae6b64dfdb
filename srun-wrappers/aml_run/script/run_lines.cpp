#include "aml_run/script/run_lines.hpp"

#include <algorithm>
#include <array>

#include "base/text/text.hpp"
#include "shared/programs.hpp"
#include "shared/shell.hpp"

namespace amldist::run {
namespace {

using Lines = std::vector<std::string>;
using text::concat;

std::string tool() { return shell::quote(commands::sibling_program("aml-run")); }

/// A job that fails ends the run, unless the run continues on failure. `also`: what is done at the end of any job.
std::string trap_line(const PipelineJobPlace& place, std::string_view also = {}) {
  const std::string action = concat({"job_end=$?; ", also, also.empty() ? "" : "; ", "((job_end == 0)) || ", tool(),
                                     " --stop-run \"$run_folder\" ", shell::quote(place.name)});
  return concat({"trap ", shell::quote(action), " EXIT"});
}

Lines beginning(const PipelineJobPlace& place, const WorkFolder& work) {
  const std::string folder = shell::quote(place.run_folder);
  Lines out;
  if (place.ends_run) out.push_back(concat({"run_folder=", folder}));
  out.push_back(concat({tool(), " --may-start ", folder, " || exit"}));
  if (place.ends_run) {
    out.emplace_back("# A job that fails ends the run.");
    out.push_back(trap_line(place));
  }
  if (work.is_new) out.push_back(concat({"mkdir -p -- ", shell::quote(work.path), " || exit"}));
  return out;
}

Lines beginning(const SweepPlace& place) {
  const std::string folder = shell::quote(place.folder);
  Lines out = {concat({"AML_TRIAL_FOLDER=", folder, "/trials/$SLURM_ARRAY_TASK_ID\nexport AML_TRIAL_FOLDER"}),
               concat({tool(), " --may-start ", shell::quote(place.run_folder), " || exit"}),
               concat({tool(), " --begin-trial ", folder, " \"$SLURM_ARRAY_TASK_ID\" || exit"}),
               "cd -- \"$AML_TRIAL_FOLDER\" || exit"};
  if (place.code.empty()) return out;
  out.push_back(concat({"rm -rf -- \"$AML_TRIAL_FOLDER/code\"\ncp -r --reflink=auto -- ", shell::quote(place.code),
                        " \"$AML_TRIAL_FOLDER/code\" || exit"}));
  out.emplace_back("cd -- \"$AML_TRIAL_FOLDER/code\" || exit");
  return out;
}

std::string parameter_line(const SweepPlace::Parameter& parameter) {
  std::string out = concat({parameter.name, "_of=(''"});
  for (const std::string& value : parameter.values) out += concat({" ", shell::quote(value)});
  return concat({out, ")\n", parameter.name, "=${", parameter.name, "_of[SLURM_ARRAY_TASK_ID]}"});
}

/// Where a job may run and which account pays for it.
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

std::string at_end(const Plan& plan, std::string_view action) {
  const auto* const job = std::get_if<PipelineJobPlace>(&plan.place);
  if (job != nullptr && job->ends_run) return trap_line(*job, action);  // bash keeps one trap
  return concat({"trap ", shell::quote(action), " EXIT"});
}

Lines beginning_lines(const Plan& plan) {
  if (const auto* const job = std::get_if<PipelineJobPlace>(&plan.place)) return beginning(*job, plan.work);
  const auto* const sweep = std::get_if<SweepPlace>(&plan.place);
  return sweep != nullptr ? beginning(*sweep) : Lines();
}

Lines value_lines(const Plan& plan) {
  const auto* const sweep = std::get_if<SweepPlace>(&plan.place);
  const bool names_store = plan.tracking && !plan.tracking->own_store;
  Lines out;
  // By default in the folder in which the job works. No run is named, because a file store does not have one yet.
  if (names_store && sweep == nullptr)
    out.emplace_back("export MLFLOW_TRACKING_URI=\"${MLFLOW_TRACKING_URI:-$PWD/mlruns}\"");
  if (plan.tracking && !plan.tracking->experiment.empty()) {
    if (shell::keeps_dollar(plan.tracking->experiment)) out.emplace_back("# shellcheck disable=SC2016");
    out.push_back(concat({"export MLFLOW_EXPERIMENT_NAME=", shell::quote(plan.tracking->experiment)}));
  }
  if (sweep == nullptr) return out;
  for (const SweepPlace::Parameter& parameter : sweep->parameters) {
    // A value may contain a $ that is meant literally.
    out.emplace_back("# shellcheck disable=SC2016,SC2034");
    out.push_back(parameter_line(parameter));
  }
  out.emplace_back(
      "# Where the trial says its metric: lines such as {\"loss\": 0.5} in the file, or MLflow.\nexport "
      "AML_METRICS_FILE=\"$AML_TRIAL_FOLDER/metrics.jsonl\"");
  // The trial's own store, in which its metric is looked for.
  if (names_store) out.emplace_back("export MLFLOW_TRACKING_URI=\"$AML_TRIAL_FOLDER/mlruns\"");
  return out;
}

Lines watch_lines(const Plan& plan) {
  const auto* const sweep = std::get_if<SweepPlace>(&plan.place);
  if (sweep == nullptr || !sweep->watched) return {};
  return {"# Ends this trial if the policy says so, or the sweep's time is over.",
          concat({tool(), " --watch-trial ", shell::quote(sweep->folder),
                  " \"$SLURM_ARRAY_TASK_ID\" \"${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID\" &"})};
}

std::string record_path(const Plan& plan) {
  if (const auto* const job = std::get_if<PipelineJobPlace>(&plan.place))
    return shell::quote(concat({job->run_folder, "/state/", job->name}));
  if (const auto* const sweep = std::get_if<SweepPlace>(&plan.place))
    return concat({shell::quote(sweep->folder + "/trials/"), "\"$SLURM_ARRAY_TASK_ID\"/record"});
  const std::string& record = std::get<SingleJob>(plan.place).record;
  return record.empty() ? std::string() : concat({shell::quote(record), "\"$SLURM_JOB_ID\""});
}

std::string_view output_parent(const Plan& plan) {
  return std::holds_alternative<SweepPlace>(plan.place) ? "$AML_TRIAL_FOLDER" : "$PWD/outputs/$SLURM_JOB_ID";
}

std::string finishing_script(const PipelineJobPlace& place, const std::string& sweep_folder,
                             const commands::SlurmOptions& trials) {
  const std::string_view run_folder = place.run_folder;
  const std::string_view run_name = run_folder.substr(run_folder.rfind('/') + 1);
  const std::string state = concat({"\"$run_folder\"/state/", shell::quote(place.name)});
  return concat({"#!/bin/bash\n#SBATCH --job-name=",
                 shell::quote_directive(concat({run_name, ".", place.name})),
                 "\n",
                 admission_lines(trials),
                 "#SBATCH --nodes=1\n#SBATCH --ntasks=1\n#SBATCH --time=10\n#SBATCH --output=",
                 shell::quote_directive(concat({shell::without_patterns(run_folder), "/logs/", place.name, ".out"})),
                 "\n\n# Puts the outputs of the sweep's best trial where other jobs look for them.\nrun_folder=",
                 shell::quote(run_folder),
                 "\n",
                 place.ends_run ? trap_line(place) + "\n" : std::string(),
                 tool(),
                 " --may-start \"$run_folder\" || exit\njob_status=0\n",
                 tool(),
                 " --begin-record ",
                 state,
                 " \"job $SLURM_JOB_ID ${SLURM_RESTART_COUNT:-0}\"\n",
                 tool(),
                 " --finish-sweep ",
                 shell::quote(sweep_folder),
                 " || job_status=$?\n",
                 "echo \"ended $job_status\" >>",
                 state,
                 "\nexit \"$job_status\"\n"});
}

}  // namespace amldist::run
