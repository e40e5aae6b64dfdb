// aml-run: an Azure ML job file or a command line becomes a Slurm job, or a step of the allocation that we are in.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <filesystem>

#include "aml_run/batch_script.hpp"
#include "aml_run/command_line.hpp"
#include "aml_run/fill_in_verb.hpp"
#include "aml_run/follow.hpp"
#include "aml_run/job_file.hpp"
#include "aml_run/job_shape.hpp"
#include "aml_run/launch_style.hpp"
#include "aml_run/report.hpp"
#include "aml_run/site_table.hpp"
#include "aml_run/slurm_job.hpp"
#include "core/spec.hpp"
#include "core/text.hpp"
#include "os/child_process.hpp"
#include "os/environment.hpp"
#include "os/file_descriptor.hpp"
#include "shared/allocation.hpp"
#include "shared/exit_status.hpp"
#include "shared/programs.hpp"
#include "shared/signals.hpp"
#include "shared/terminal.hpp"

namespace {

using namespace amldist;
using namespace amldist::run;
using commands::fail;
using commands::say;
using text::concat;

int print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  return std::fflush(stdout) == 0 ? commands::exit_done : commands::exit_failed;
}

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

Plan plan_command(const CommandLine& line) {
  Plan plan;
  plan.job.set("job-name", job_name(line.words));
  plan.job.merge(line.slurm);
  plan.option = line.kind.empty() ? "pytorch" : line.kind;
  plan.words = line.words;
  // As in a job file: a launcher is started once on each node, unless it asks for a rank or the user has said how.
  const bool reads_rank = std::ranges::any_of(plan.words, reads_rank_variables);
  if (plan.option == "pytorch" && launcher_in(plan.words) && !reads_rank) plan.option += ",launch=per-node";
  return plan;
}

Result<Plan> plan_job(const CommandLine& line) {
  const bool named = !line.instance_types.empty();
  const auto table = read_site_table(named ? line.instance_types : default_site_table(), named);
  if (!table) return table.error();
  const JobFileOptions options{line.set, line.kind, line.slurm, line.literal};
  auto plan = plan_job_file(line.job_file, options, *table);
  if (!plan) return plan;
  // A total on the command line is meant instead of the file's count per node.
  if (line.slurm.has("ntasks") && !line.slurm.has("ntasks-per-node")) plan->job.erase("ntasks-per-node");
  if (line.slurm.has("ntasks-per-node") && !line.slurm.has("ntasks")) plan->job.erase("ntasks");
  return plan;
}

/// Directives in the order in which one reads them.
void sort_options(commands::SlurmOptions& job) {
  constexpr std::array order = {
      "job-name", "comment",       "account",    "partition", "qos",           "nodes", "ntasks-per-node",
      "ntasks",   "cpus-per-task", "constraint", "mem",       "gpus-per-node", "gres",  "time",
      "chdir",    "output",        "error"};
  commands::SlurmOptions sorted;
  for (const char* const name : order) {
    if (const auto* const option = job.find(name)) sorted.set(option->name, option->value);
  }
  for (const auto& option : job.all()) {
    if (!sorted.has(option.name)) sorted.set(option.name, option.value);
  }
  job = std::move(sorted);
}

/// A folder in a file name of sbatch, where % begins a pattern.
std::string escape_pattern(std::string_view folder) {
  std::string out;
  for (const char c : folder) out += c == '%' ? std::string("%%") : std::string(1, c);
  return out == "/" ? "" : out;
}

/// Where a job's record lies, less its number: beside the log, if the folder's name is plain, else where aml-run is.
std::string record_of(const commands::SlurmOptions& job) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path here = fs::current_path(ignored);
  const fs::path folder = fs::path(job.value_of("output")).parent_path();
  const bool is_plain = folder.string().find('%') == std::string::npos && !folder.string().starts_with("/dev");
  return (is_plain ? here / job.value_of("chdir") / folder : here) / ".aml-run-";
}

/// What job files and commands have in common.
Result<Plan> make_plan(const CommandLine& line, bool as_step) {
  auto plan = line.job_file.empty() ? Result<Plan>(plan_command(line)) : plan_job(line);
  if (!plan) return plan;
  if (plan->option == "none") plan->option.clear();
  if (!line.mpi.empty()) plan->step.set("mpi", line.mpi);
  else if (plan->option.starts_with("mpi") && !plan->step.has("mpi")) plan->step.set("mpi", "pmix");
  plan->step.set("kill-on-bad-exit", "1");
  // srun does not take this over from the job (since 22.05).
  if (const auto* const cpus = plan->job.find("cpus-per-task"); cpus != nullptr && !as_step) {
    plan->step.set(cpus->name, cpus->value);
  }
  plan->setup = line.setup;
  plan->expand = line.expand;
  const auto spec = plan->option.empty() ? Result<Spec>(Spec{}) : parse_spec(plan->option);
  if (!spec) return spec.error();
  // In an allocation srun takes over what is not said.
  if (line.job_file.empty() && !as_step) complete_shape(*spec, plan->job);
  if (auto fits = check_shape(*spec, plan->job); !fits) return fits.error();
  if (as_step) commands::count_tasks(plan->job);
  // With a code folder the log would go there; a person looks where the job was submitted.
  if (!as_step && plan->job.has("chdir") && !plan->job.has("output")) {
    std::error_code ignored;
    plan->job.set("output", concat({escape_pattern(std::filesystem::current_path(ignored).string()), "/slurm-%j.out"}));
  }
  sort_options(plan->job);
  if (line.wait && !as_step) plan->record = record_of(plan->job);
  return plan;
}

/// Becomes bash with the script, so that standard input stays the program's.
int start_step(const std::string& script) {
  if (!commands::find_program("srun")) {
    return commands::fail_without_slurm("srun is not installed here (not in PATH): run this on a node that has Slurm");
  }
  FileDescriptor file(::memfd_create("aml-run", 0));
  if (!file || ::write(file.get(), script.data(), script.size()) != static_cast<ssize_t>(script.size())) {
    return fail({Errc::internal, "the step's script cannot be kept in memory"});
  }
  return fail(become({"bash", concat({"/dev/fd/", std::to_string(file.get())})}));
}

int run_step(const CommandLine& line, Plan plan, commands::JobContext context) {
  if (context == commands::JobContext::task) plan.step.set("overlap");
  std::vector<std::string> dropped;
  const auto script = write_step_script(plan, dropped);
  if (!script) return fail(script.error());
  if (!dropped.empty()) {
    const std::vector<std::string_view> names(dropped.begin(), dropped.end());
    say(concat({"inside the allocation of job ", own_variable("SLURM_JOB_ID").value_or(""),
                " a step is started, for which ", text::join(names),
                " cannot be chosen any more (--new-job submits a job)"}));
  }
  if (line.dry_run) return print(line.json ? to_json(plan, *script, "", nullptr, nullptr) : *script);
  if (line.json) {
    return fail({Errc::invalid_argument,
                 "--json describes a job, and inside an allocation a step is started: use "
                 "--new-job, or leave --json out"});
  }
  return start_step(*script);
}

int follow_job(const CommandLine& line, const Plan& plan, const std::string& script, const std::string& id) {
  const auto followed = follow(id, concat({plan.record, id}), line.json);
  if (!followed) return fail(followed.error());
  if (!followed->detached) say_end(id, *followed);
  if (line.json) print(to_json(plan, script, id, &followed->state, &*followed));
  return followed->detached ? static_cast<int>(commands::exit_done) : exit_status_of(*followed);
}

int submit_job(const CommandLine& line, const Plan& plan, const std::string& script) {
  // A job that was submitted is told, even if Ctrl-C comes in between; with --wait it then asks.
  const commands::HeldInterrupts held;
  const auto answer = submit(script);
  if (const auto* const refusal = std::get_if<Refusal>(&answer)) {
    say(refusal->message, commands::Tone::bad);
    return refusal->status;
  }
  const auto& submitted = std::get<Submitted>(answer);
  std::fwrite(submitted.messages.data(), 1, submitted.messages.size(), stderr);
  const auto state = ask(submitted.id);
  const std::string where = state && !state->output.empty() ? concat({"; output: ", state->output}) : "";
  say(concat({"submitted job ", submitted.id, " (", plan.job.value_of("job-name"), ")", where}));
  if (line.wait) return follow_job(line, plan, script, submitted.id);
  if (line.json) return print(to_json(plan, script, submitted.id, state ? &*state : nullptr, nullptr));
  return commands::exit_done;
}

int answer(std::vector<std::string> words) {
  if (const auto status = fill_in_verb(words)) return *status;
  const auto line = read_command_line(std::move(words));
  if (!line) return fail(line.error());
  if (line->help) return print(help_text());
  if (line->version) return print("aml-run " AMLDIST_VERSION "\n");
  if (line->kind_help) return print(option_help());
  if (line->list_keys) return print(line->json ? keys_as_json() : keys_as_table());
  const auto context = line->new_job ? Result(commands::JobContext::outside) : commands::find_job_context();
  if (!context) return fail(context.error());
  const bool as_step = *context != commands::JobContext::outside;
  const auto plan = make_plan(*line, as_step);
  if (!plan) return fail(plan.error());
  for (const std::string& warning : plan->warnings) say(warning);
  if (!(line->dry_run || line->json)) say_ignored(*plan);
  if (as_step) return run_step(*line, *plan, *context);
  const auto script = write_batch_script(*plan);
  if (!script) return fail(script.error());
  if (line->dry_run) return print(line->json ? to_json(*plan, *script, "", nullptr, nullptr) : *script);
  return submit_job(*line, *plan, *script);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return answer({argv + 1, argv + argc});
  } catch (const std::exception& problem) {
    say(concat({"internal error: ", problem.what()}));
    return commands::exit_failed;
  }
}
