#include "aml_run/command/make_plan.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include "aml_run/job_shape.hpp"
#include "aml_run/launch_style.hpp"
#include "base/os/environment.hpp"
#include "base/text/text.hpp"
#include "launch/frameworks/launchers.hpp"
#include "launch/option/spec.hpp"
#include "shared/allocation.hpp"
#include "shared/shell.hpp"

namespace amldist::run {
namespace {

using text::concat;

/// The name of a job that is a command: that of the program, or of the script it interprets. Never bash or interactive,
/// which would switch Lightning's recognition of Slurm off.
std::string job_name(const std::vector<std::string>& words) {
  std::string name = std::filesystem::path(words.front()).filename().string();
  const bool is_python = name.starts_with("python");
  for (std::size_t i = 1; is_python && i < words.size(); ++i) {
    if (words[i].ends_with(".py")) return std::filesystem::path(words[i]).stem().string();
  }
  return name == "bash" || name == "interactive" || name.empty() ? "aml-run" : name;
}

}  // namespace

Plan plan_command(const CommandLine& line) {
  Plan plan;
  plan.job.set("job-name", job_name(line.words));
  plan.job.merge(line.slurm);
  plan.option = line.kind.empty() ? "pytorch" : line.kind;
  plan.command = Program{line.words, line.expand};
  std::error_code ignored;
  if (line.slurm.has("chdir"))
    plan.work.path = (std::filesystem::current_path(ignored) / line.slurm.value_of("chdir")).string();
  // As in a job file: a launcher is started once on each node, unless it asks for a rank or the user has chosen.
  const bool reads_rank = std::ranges::any_of(line.words, reads_rank_variables);
  const auto launcher = launch::find_launcher(std::span<const std::string>(line.words));
  const bool is_per_node = launcher && launcher->reach == launch::LauncherReach::node;
  if (plan.option == "pytorch" && is_per_node && !reads_rank) plan.option += ",launch=per-node";
  if (!line.stop_before.empty()) plan.option += concat({",stop=", line.stop_before});
  return plan;
}

Result<SiteTable> read_table(const CommandLine& line) {
  const bool named = !line.instance_types.empty();
  return read_site_table(named ? line.instance_types : default_site_table(), named);
}

Result<Plan> plan_tree(const CommandLine& line, const SiteTable& table, const PlannedTree& tree) {
  const JobFileOptions options{line.kind, line.slurm, line.literal, tree.made_later, tree.further, tree.root};
  auto plan = run::plan_job(tree.file, tree.folder, tree.job, options, table);
  if (!plan) return plan;
  if (!line.stop_before.empty()) {
    if (plan->option.empty() || plan->option == "none") {
      return Error{Errc::invalid_argument,
                   "--stop-before needs a distributed job, and this file has no distribution: add one, or --kind"};
    }
    plan->option += concat({",stop=", line.stop_before});
  }
  // A total on the command line replaces the file's count per node.
  if (line.slurm.has("ntasks") && !line.slurm.has("ntasks-per-node")) plan->job.erase("ntasks-per-node");
  if (line.slurm.has("ntasks-per-node") && !line.slurm.has("ntasks")) plan->job.erase("ntasks");
  return plan;
}

namespace {

/// Directives in a readable order.
commands::SlurmOptions sorted(const commands::SlurmOptions& job) {
  constexpr std::array order = {
      "job-name", "comment",       "account",    "partition", "qos",           "nodes", "ntasks-per-node",
      "ntasks",   "cpus-per-task", "constraint", "mem",       "gpus-per-node", "gres",  "time",
      "chdir",    "output",        "error"};
  commands::SlurmOptions out;
  for (const char* const name : order) {
    if (const auto* const option = job.find(name)) out.set(option->name, option->value);
  }
  for (const auto& option : job.all()) {
    if (!out.has(option.name)) out.set(option.name, option.value);
  }
  return out;
}

bool has_control(std::string_view text) {
  return std::ranges::any_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

/// Slurm takes a backslash in a log's path to mean that it has no pattern, and no line of sbatch can contain a newline:
/// the job would end without a log and without a message.
Result<void> check_log_folder(const std::string& folder) {
  const bool is_plain = folder.find('\\') == std::string::npos && !has_control(folder);
  if (is_plain) return {};
  return Error{Errc::invalid_argument,
               concat({"Slurm can write no log to a folder with a backslash or a control character in its name, and ",
                       shell::quote(folder), " is one: start aml-run in another folder, or give --output"})};
}

Result<void> place_log(const CommandLine& line, commands::SlurmOptions& job) {
  std::error_code unknown;
  const std::string here = std::filesystem::current_path(unknown).string();
  if (!job.has("output")) {
    if (auto status = check_log_folder(here); !status) return status;
    // With a code folder the log would be written there; a person looks where the job was submitted.
    if (job.has("chdir"))
      job.set("output", concat({here == "/" ? std::string() : shell::without_patterns(here), "/slurm-%j.out"}));
  }
  // The script changes to such a folder itself; a line of sbatch would name another one.
  if (has_control(job.value_of("chdir")) && !line.slurm.has("chdir")) job.erase("chdir");
  return {};
}

/// Path of a job's record, without its number: beside the log, if the folder's name is plain, else in the working
/// folder of aml-run.
std::string record_of(const commands::SlurmOptions& job) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path here = fs::current_path(ignored);
  const fs::path folder = fs::path(job.value_of("output")).parent_path();
  const bool is_plain = folder.string().find('%') == std::string::npos && !folder.string().starts_with("/dev");
  return (is_plain ? here / job.value_of("chdir") / folder : here) / ".aml-run-";
}

/// A command that starts Ray itself: `aml-dist ray`, `ray symmetric-run`.
bool starts_ray(const Plan& plan) {
  const auto* const program = std::get_if<Program>(&plan.command);
  if (program == nullptr || program->words.size() < 2) return false;
  const std::string name = std::filesystem::path(program->words[0]).filename().string();
  return (name == "aml-dist" && program->words[1] == "ray") || (name == "ray" && program->words[1] == "symmetric-run");
}

/// Kind ray: `aml-dist ray` starts the cluster around the command.
Result<void> complete_ray(const CommandLine& line, Plan& plan) {
  const bool is_ray = text::split(plan.option, ',').front() == "ray";
  if (!is_ray) plan.ray.reset();
  else if (!plan.ray && !starts_ray(plan)) plan.ray.emplace();
  if (plan.ray && plan.job.value_of("cpus-per-task").empty() && plan.job.value_of("exclusive").empty()) {
    plan.warnings.emplace_back("without --cpus-per-task=N Ray has one CPU on each node");
  }
  if (!line.dashboard) return {};
  if (!plan.ray) {
    return Error{Errc::invalid_argument,
                 "--dashboard is Ray's: give --kind ray, or a job file with distribution.type ray"};
  }
  if (!plan.ray->dashboard) plan.ray->dashboard.emplace();
  return {};
}

std::optional<launch::LauncherCommand> launcher_of(const Plan& plan) {
  const auto* const program = std::get_if<Program>(&plan.command);
  return program != nullptr ? launch::find_launcher(std::span<const std::string>(program->words))
                            : launch::find_launcher(std::string_view(std::get<ShellLine>(plan.command).line.text));
}

/// What srun would refuse too, but only after the job has waited; and srun itself, whose step would wait for ever for
/// what the step around it holds.
Result<void> check_launcher(const launch::Spec& spec, Plan& plan) {
  const auto launcher = launcher_of(plan);
  if (!launcher || launcher->is_guarded || spec.kind == launch::Kind::none) return {};
  if (launcher->name == "srun") {
    return Error{Errc::mismatch,
                 "the command starts srun, which aml-run does itself: leave srun out, and give its options to aml-run"};
  }
  const auto shape = shape_of(plan.job);
  if (!shape) return {};
  auto warning = check_launcher(spec, *shape, *launcher, [&plan](std::string_view name) {
    const auto own = std::ranges::find(plan.environment, name, &Variable::name);
    return own != plan.environment.end() ? std::optional(own->value.text) : own_variable(name);
  });
  if (!warning) return warning.error();
  if (!warning->empty()) plan.warnings.push_back(std::move(*warning));
  return {};
}

/// With one of keep's options the step is started by `aml-dist keep`, and the job has nodes to spare.
Result<void> keep_step(const CommandLine& line, Plan& plan, bool as_step) {
  constexpr std::uint64_t most_nodes = 1U << 16U;
  plan.keep.merge(line.keep);
  if (plan.keep.all().empty()) return {};
  const auto wrong = [](std::string sentence) { return Error{Errc::invalid_argument, std::move(sentence)}; };
  if (as_step)
    return wrong(
        "inside an allocation a step is started once: write aml-dist keep [OPTION]... -- srun, or give --new-job");
  if (plan.job.has("requeue")) plan.keep.set("requeue");
  if (!plan.keep.has("spares")) return {};
  const auto spares = text::to_number(plan.keep.value_of("spares"), most_nodes);
  const std::string_view given = plan.job.has("nodes") ? plan.job.value_of("nodes") : std::string_view("1");
  const auto nodes = text::to_number(given, most_nodes);
  if (!spares || !nodes || *nodes == 0)
    return wrong(
        concat({"--spares=", plan.keep.value_of("spares"), " and --nodes=", given, ": give two whole numbers"}));
  if (const auto tasks = text::to_number(plan.job.value_of("ntasks"), UINT32_MAX);
      tasks && !plan.job.has("ntasks-per-node")) {
    if (*tasks % *nodes != 0)
      return wrong(concat({"--spares, and ", text::count(*tasks, "task"), " cannot be shared out among ",
                           text::count(*nodes, "node")}));
    plan.job.set("ntasks-per-node", std::to_string(*tasks / *nodes));
  }
  plan.job.erase("ntasks");
  plan.job.set("nodes", std::to_string(*nodes + *spares));
  return {};
}

}  // namespace

void use_snapshot(const std::string& to, Plan& plan) {
  if (plan.work.path.empty()) return;
  plan.work.copied_from = std::exchange(plan.work.path, to);
  plan.job.set("chdir", to);
}

Result<Plan> finish_plan(const CommandLine& line, Plan plan, bool as_step) {
  if (plan.option == "none") plan.option.clear();
  if (!line.mpi.empty()) plan.step.set("mpi", line.mpi);
  else if (plan.option.starts_with("mpi") && !plan.step.has("mpi")) plan.step.set("mpi", "pmix");
  plan.step.set("kill-on-bad-exit", "1");
  // srun does not inherit this from the job (since 22.05).
  if (const auto* const cpus = plan.job.find("cpus-per-task"); cpus != nullptr && !as_step) {
    plan.step.set(cpus->name, cpus->value);
  }
  plan.setup = line.setup;
  if (auto status = complete_ray(line, plan); !status) return status.error();
  const auto spec = plan.option.empty() ? Result<launch::Spec>(launch::Spec{}) : launch::parse_spec(plan.option);
  if (!spec) return spec.error();
  // In an allocation srun inherits the options that are not given.
  if (line.job_file.empty() && !as_step) complete_shape(*spec, plan.job);
  if (auto status = check_shape(*spec, plan.job); !status) return status.error();
  if (auto status = check_launcher(*spec, plan); !status) return status.error();
  if (auto status = keep_step(line, plan, as_step); !status) return status.error();
  if (as_step) commands::count_tasks(plan.job);
  else if (auto status = place_log(line, plan.job); !status) return status.error();
  plan.job = sorted(plan.job);
  if (line.wait && !as_step) plan.place = SingleJob{record_of(plan.job)};
  return plan;
}

}  // namespace amldist::run
