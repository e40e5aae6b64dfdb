#include "aml_run/command/run_file.hpp"

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "aml_run/command/make_plan.hpp"
#include "aml_run/command/run_answers.hpp"
#include "aml_run/pipeline/pipeline_file.hpp"
#include "aml_run/runs/run_view.hpp"
#include "aml_run/runs/submit_run.hpp"
#include "aml_run/script/batch_script.hpp"
#include "aml_run/script/run_lines.hpp"
#include "aml_run/snapshot/snapshot.hpp"
#include "aml_run/sweep/sweep_file.hpp"
#include "aml_run/sweep/sweep_store.hpp"
#include "aml_run/sweep/sweep_values.hpp"
#include "base/text/text.hpp"
#include "shared/exit_status.hpp"
#include "shared/json.hpp"
#include "shared/programs.hpp"
#include "shared/shell.hpp"
#include "shared/signals.hpp"
#include "shared/terminal.hpp"

namespace amldist::run {
namespace {

using commands::fail;
using commands::say;
using nlohmann::ordered_json;
using text::concat;
using text::quote;

bool is_for_component(std::string_view path) { return path.starts_with("inputs.") || path.starts_with("outputs."); }

/// A run while it is being made: its jobs, and the remarks about the file.
struct Draft {
  Run run;
  const YamlValue* tree = nullptr;  ///< the file
  std::vector<Ignored> ignored;
  std::vector<std::string> warnings;
  std::vector<std::pair<std::string, std::string>> snapshots;  ///< from, to
  std::vector<std::pair<std::string, SweepRecord>> sweeps;     ///< folder, and its record
};

/// The job's code folder is copied when the run is submitted.
void take_along(Plan& plan, const std::string& to, Draft& draft) {
  if (plan.work.path.empty()) return;
  use_snapshot(to, plan);
  draft.snapshots.emplace_back(plan.work.copied_from, to);
}

/// Keeps the remarks about a job. `job`: the beginning of its keys, "jobs.train.".
void note(const std::string& job, const Plan& plan, Draft& draft) {
  for (Ignored each : plan.ignored) {
    each.path.insert(0, job);
    draft.ignored.push_back(std::move(each));
  }
  draft.warnings.insert(draft.warnings.end(), plan.warnings.begin(), plan.warnings.end());
}

Result<Plan> plan_run_job(const CommandLine& line, const SiteTable& table, const PlannedTree& tree) {
  auto plan = plan_tree(line, table, tree);
  return plan ? finish_plan(line, std::move(*plan), false) : plan;
}

Result<void> add_command(const CommandLine& line, const SiteTable& table, const PipelineJob& job,
                         const Pipeline& pipeline, Draft& draft) {
  const std::string& folder = draft.run.folder;
  auto plan = plan_run_job(line, table, {line.job_file, job.folder, job.job, pipeline.made_later, {}, draft.tree});
  if (!plan) return plan.error();
  plan->job.set("job-name", concat({draft.run.name, ".", job.name}));
  if (!line.slurm.has("output"))
    plan->job.set("output", concat({shell::without_patterns(folder), "/logs/", job.name, ".out"}));
  plan->place = PipelineJobPlace{folder, job.name, !draft.run.continue_on_failure};
  if (plan->container) plan->container->mounts.push_back(folder);
  if (line.snapshot) take_along(*plan, concat({folder, "/", job.name, "/code"}), draft);
  // A job without a code folder has a folder of its own, as on Azure ML.
  if (plan->work.path.empty()) {
    plan->work.path = concat({folder, "/", job.name});
    plan->work.is_new = true;
  }
  note(concat({"jobs.", job.name, "."}), *plan, draft);
  auto script = write_batch_script(*plan);
  if (!script) return script.error();
  RunJob made;
  made.name = job.name;
  made.needs.assign(job.needs.begin(), job.needs.end());
  made.script = std::move(*script);
  draft.run.jobs.push_back(std::move(made));
  return {};
}

/// The array of a sweep's trials. They run at the same time, so each works in a copy of the code folder, as on Azure
/// ML, and has outputs/ of its own.
Result<Plan> plan_trials(const CommandLine& line, const SiteTable& table, const PlannedTree& tree, const Sweep& sweep,
                         const std::string& folder, Draft& draft) {
  auto plan = plan_run_job(line, table, tree);
  if (!plan) return plan;
  SweepPlace place{draft.run.folder,
                   folder,
                   parameters_of(sweep),
                   {},
                   sweep.policy.kind != TerminationPolicy::Kind::none || sweep.timeout_seconds != 0};
  plan->work.is_azures = true;
  if (!plan->work.path.empty()) {
    place.code = folder + "/code";
    take_along(*plan, place.code, draft);
    plan->work.path.clear();
    plan->job.erase("chdir");
  }
  plan->job.set("output", concat({shell::without_patterns(folder), "/trials/%a/output.txt"}));
  plan->place = std::move(place);
  if (plan->container) plan->container->mounts.push_back(draft.run.folder);
  return plan;
}

/// A sweep as an array of trials; in a pipeline a further job puts the best outputs in their places.
Result<void> add_sweep(const CommandLine& line, const SiteTable& table, const PipelineJob& job,
                       const std::vector<std::string>& made_later, Draft& draft) {
  auto sweep = read_sweep(line.job_file, job.folder, job.job);
  if (!sweep) return sweep.error();
  const bool alone = draft.run.kind == "sweep";
  RunJob array;
  array.name = alone ? std::string("trials") : job.name + ".trials";
  array.needs.assign(job.needs.begin(), job.needs.end());
  array.trials = static_cast<std::uint32_t>(sweep->trials.size());
  array.concurrent = sweep->concurrent;
  const std::string folder = sweep_folder_of(draft.run, array);
  auto plan = plan_trials(
      line, table, {line.job_file, job.folder, sweep->job, made_later, parameter_expressions(*sweep), draft.tree},
      *sweep, folder, draft);
  if (!plan) return plan.error();
  plan->job.set("job-name", alone ? draft.run.name : concat({draft.run.name, ".", job.name}));
  auto script = write_batch_script(*plan);
  if (!script) return script.error();
  array.script = std::move(*script);
  note(alone ? "" : concat({"jobs.", job.name, "."}), *plan, draft);
  SweepRecord record{{},          sweep->trials, sweep->metric,          sweep->maximize,
                     line.metric, sweep->policy, sweep->timeout_seconds, sweep->outputs};
  for (const Parameter& parameter : sweep->space) record.names.push_back(parameter.name);
  draft.sweeps.emplace_back(folder, std::move(record));
  draft.run.jobs.push_back(array);
  if (alone) return {};
  RunJob finish;
  finish.name = job.name;
  finish.needs = {array.name};
  finish.after_any_end = true;
  finish.script = finishing_script({draft.run.folder, job.name, !draft.run.continue_on_failure}, folder, plan->job);
  draft.run.jobs.push_back(std::move(finish));
  return {};
}

Draft begin_draft(const CommandLine& line, const YamlValue& tree, std::string_view kind) {
  Draft draft;
  draft.tree = &tree;
  std::string wanted = tree.text_of("display_name");
  if (wanted.empty()) wanted = tree.text_of("name");
  if (wanted.empty()) wanted = line.job_file == "-" ? "job" : std::filesystem::path(line.job_file).stem().string();
  draft.run.name = next_run_name(wanted);
  draft.run.folder = concat({runs_folder(), "/", draft.run.name});
  draft.run.kind = kind;
  draft.run.source = line.job_file;
  return draft;
}

Result<Draft> draft_sweep(const CommandLine& line, const YamlValue& tree, const SiteTable& table) {
  Draft draft = begin_draft(line, tree, "sweep");
  draft.run.continue_on_failure = true;
  PipelineJob job;
  job.folder = folder_of(line.job_file);
  job.job = tree;
  if (auto status = add_sweep(line, table, job, {}, draft); !status) return status.error();
  return draft;
}

Result<Draft> draft_pipeline(const CommandLine& line, const YamlValue& tree, const SiteTable& table) {
  Draft draft = begin_draft(line, tree, "pipeline");
  auto pipeline = read_pipeline(line.job_file, tree, draft.run.folder);
  if (!pipeline) return pipeline.error();
  draft.run.continue_on_failure = pipeline->continue_on_failure;
  draft.ignored = pipeline->ignored;
  for (const PipelineJob& job : pipeline->jobs) {
    auto added = job.is_sweep ? add_sweep(line, table, job, pipeline->made_later, draft)
                              : add_command(line, table, job, *pipeline, draft);
    if (!added) return added.error();
  }
  return draft;
}

void say_about(const CommandLine& line, const Draft& draft) {
  for (const std::string& warning : draft.warnings) say(warning);
  if (line.dry_run || line.json || draft.ignored.empty()) return;
  std::vector<std::string_view> names;
  for (const Ignored& each : draft.ignored) names.emplace_back(each.path);
  say(concat({line.job_file, ": without effect here: ", text::join(names)}), commands::Tone::faint);
}

int print_draft(const CommandLine& line, const Draft& draft) {
  std::string out;
  if (line.json) {
    ordered_json json = {{"run", draft.run.name}, {"kind", draft.run.kind}, {"folder", draft.run.folder}};
    json["continue_on_failure"] = draft.run.continue_on_failure;
    json["ignored"] = ordered_json::array();
    for (const Ignored& each : draft.ignored)
      json["ignored"].push_back(
          {{"key", each.path}, {"line", each.location.line}, {"column", each.location.column}, {"why", each.why}});
    json["jobs"] = ordered_json::array();
    for (const RunJob& job : draft.run.jobs)
      json["jobs"].push_back({{"name", job.name},
                              {"needs", job.needs},
                              {"trials", job.trials},
                              {"concurrent", job.concurrent},
                              {"script", job.script}});
    out = commands::json_text(json);
  } else {
    for (const RunJob& job : draft.run.jobs) {
      std::vector<std::string_view> needs(job.needs.begin(), job.needs.end());
      out += concat({out.empty() ? "" : "\n", "# ---- ", job.name,
                     needs.empty() ? "" : concat({", after ", text::join(needs)}),
                     job.trials > 0 ? concat({", an array of ", std::to_string(job.trials)}) : "", "\n", job.script});
    }
  }
  return commands::print(out);
}

int submit_draft(const CommandLine& line, Draft draft) {
  const commands::HeldInterrupts held;
  if (!commands::find_program("sbatch")) {
    return commands::fail_without_slurm(
        "sbatch is not installed here (not in PATH): run this on a node that has Slurm, or print the scripts with "
        "--dry-run");
  }
  if (auto status = create_run(draft.run); !status) return fail(status.error());
  for (const auto& [from, to] : draft.snapshots) {
    if (auto status = take_snapshot(from, to); !status) return fail(status.error());
  }
  for (const auto& [folder, record] : draft.sweeps) {
    if (auto status = write_sweep(folder, record); !status) return fail(status.error());
  }
  std::map<std::string, Share> wanted;
  for (const RunJob& job : draft.run.jobs) wanted.emplace(job.name, Share{});
  if (const auto refusal = submit_run(draft.run, wanted)) {
    say(refusal->message, commands::Tone::bad);
    return refusal->status;
  }
  const std::string& first = draft.run.jobs.front().ids.back();
  const std::string& last = draft.run.jobs.back().ids.back();
  say(concat({"submitted ", draft.run.name, ": ", text::count(draft.run.jobs.size(), "job"), ", ", first,
              first == last ? "" : concat({" to ", last}), "; results: ", draft.run.folder}));
  if (line.wait) return wait_for_run(line, draft.run);
  return line.json ? show_run(line, draft.run) : static_cast<int>(commands::exit_done);
}

}  // namespace

Result<YamlValue> read_file_with_sets(const CommandLine& line) {
  auto tree = read_job_file(line.job_file);
  if (!tree) return tree;
  const FileKind kind = kind_of(*tree);
  const bool is_component =
      kind == FileKind::command_component || (kind == FileKind::command_job && tree->find("component") != nullptr);
  for (const auto& [path, value] : line.set) {
    if (is_component && is_for_component(path)) continue;
    if (auto status = set_yaml(*tree, path, value); !status) return status.error();
  }
  return tree;
}

Result<YamlValue> command_job_of(const CommandLine& line, const YamlValue& tree, const std::string& folder) {
  const YamlValue* const reference = tree.find("component");
  if (reference == nullptr && kind_of(tree) != FileKind::command_component) return tree;
  YamlValue job = reference != nullptr ? tree : YamlValue::map(tree.location);
  Component component{tree, folder};
  if (reference != nullptr) {
    auto loaded = load_component(line.job_file, folder, "component", *reference);
    if (!loaded) return loaded.error();
    component = std::move(*loaded);
  }
  for (const auto& [path, value] : line.set) {
    if (!is_for_component(path)) continue;
    if (auto status = set_yaml(job, path, value); !status) return status.error();
  }
  make_paths_absolute(job, folder);
  if (job.find("display_name") == nullptr) {
    std::string name = component.root.text_of("display_name");
    if (name.empty()) name = component.root.text_of("name");
    if (!name.empty()) job.put("display_name", YamlValue::scalar(name, tree.location));
  }
  return bind_component(line.job_file, component, job);
}

Error refused_type(const CommandLine& line, const YamlValue& tree) {
  const YamlValue* const type = tree.find("type");
  const std::string name = text::to_lower(tree.text_of("type"));
  const std::string why = why_refused(name);
  if (!why.empty()) return error_at(line.job_file, type->location, why);
  const std::string what = what_is(tree);
  if (what == "conda") {
    return error_at(line.job_file, tree.location,
                    "this is a conda file, not a job: name it in environment.conda_file of a job");
  }
  if (!what.empty()) {
    return error_at(
        line.job_file, tree.location,
        concat({"this file is not a job, because its $schema says ", quote(what), ": give the job's file"}));
  }
  return error_at(line.job_file, type->location,
                  concat({"invalid value ", quote(type->text), " for type: use command, sweep or pipeline"}));
}

int answer_run_file(const CommandLine& line, const YamlValue& tree, FileKind kind, const SiteTable& table) {
  if (line.test_only)
    return fail({Errc::invalid_argument, "--test-only is for one job: a run has jobs that wait for others"});
  auto draft = kind == FileKind::sweep ? draft_sweep(line, tree, table) : draft_pipeline(line, tree, table);
  if (!draft) return fail(draft.error());
  say_about(line, *draft);
  return line.dry_run ? print_draft(line, *draft) : submit_draft(line, std::move(*draft));
}

}  // namespace amldist::run
