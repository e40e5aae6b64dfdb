// aml-run: turns an Azure ML job file or a command line into a Slurm job, or into a step of the present allocation.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <filesystem>

#include "aml_run/command/az_line.hpp"
#include "aml_run/command/command_line.hpp"
#include "aml_run/command/make_plan.hpp"
#include "aml_run/command/run_answers.hpp"
#include "aml_run/command/run_file.hpp"
#include "aml_run/command/script_calls.hpp"
#include "aml_run/components/component.hpp"
#include "aml_run/follow.hpp"
#include "aml_run/report.hpp"
#include "aml_run/script/batch_script.hpp"
#include "aml_run/slurm_job.hpp"
#include "aml_run/snapshot/snapshot.hpp"
#include "base/os/child_process.hpp"
#include "base/os/environment.hpp"
#include "base/os/file_descriptor.hpp"
#include "base/text/text.hpp"
#include "launch/option/spec.hpp"
#include "shared/allocation.hpp"
#include "shared/exit_status.hpp"
#include "shared/programs.hpp"
#include "shared/signals.hpp"
#include "shared/terminal.hpp"

namespace {

using namespace amldist;
using namespace amldist::run;
using commands::fail;
using commands::print;
using commands::say;
using text::concat;

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
                " cannot be changed any more (--new-job submits a job)"}));
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
  const auto followed = follow(id, concat({std::get<SingleJob>(plan.place).record, id}), line.json);
  if (!followed) return fail(followed.error());
  if (!followed->detached) say_end(id, *followed);
  if (line.json) print(to_json(plan, script, id, &followed->state, &*followed));
  return followed->detached ? static_cast<int>(commands::exit_done) : exit_status_of(*followed);
}

int submit_job(const CommandLine& line, const Plan& plan, const std::string& script) {
  // The user is told about a job that was submitted, even if Ctrl-C comes in between; with --wait it then asks.
  const commands::HeldInterrupts held;
  if (!plan.work.copied_from.empty()) {
    if (auto status = make_run_folder(std::filesystem::path(plan.work.path).parent_path().filename().string()); !status)
      return fail(status.error());
    if (auto status = take_snapshot(plan.work.copied_from, plan.work.path); !status) return fail(status.error());
  }
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
  if (state && !line.wait) {
    if (const auto never = why_never(submitted.id, *state); !never.empty()) say(never, commands::Tone::bad);
  }
  if (line.wait) return follow_job(line, plan, script, submitted.id);
  if (line.json) return print(to_json(plan, script, submitted.id, state ? &*state : nullptr, nullptr));
  return commands::exit_done;
}

/// sbatch's answer about a job that it does not submit.
int test_job(const std::string& script) {
  const auto done = commands::run_program({"sbatch", "--test-only"}, script);
  if (!done) return commands::fail_without_slurm(concat({done.error().message, ": run this on a node that has Slurm"}));
  std::fwrite(done->err.data(), 1, done->err.size(), stderr);
  return done->status == 0 ? commands::exit_done : commands::exit_refused;
}

Result<Plan> plan_file(const CommandLine& line, const SiteTable& table, const YamlValue& tree) {
  const std::string folder = folder_of(line.job_file);
  auto job = command_job_of(line, tree, folder);
  if (!job) return job.error();
  return plan_tree(line, table, {line.job_file, folder, std::move(*job)});
}

int run_plan(const CommandLine& line, Plan draft, commands::JobContext context) {
  const bool as_step = context != commands::JobContext::outside;
  auto plan = finish_plan(line, std::move(draft), as_step);
  if (!plan) return fail(plan.error());
  if (line.snapshot && !as_step) {
    use_snapshot(concat({runs_folder(), "/", next_run_name(plan->job.value_of("job-name")), "/code"}), *plan);
  }
  for (const std::string& warning : plan->warnings) say(warning);
  if (!(line.dry_run || line.json)) say_ignored(*plan);
  if (as_step && line.snapshot)
    return fail(
        {Errc::invalid_argument,
         "--snapshot is for jobs, and inside an allocation a step is started: use --new-job, or leave --snapshot out"});
  if (as_step) return run_step(line, std::move(*plan), context);
  const auto script = write_batch_script(*plan);
  if (!script) return fail(script.error());
  if (line.dry_run) return print(line.json ? to_json(*plan, *script, "", nullptr, nullptr) : *script);
  return line.test_only ? test_job(*script) : submit_job(line, *plan, *script);
}

int run_job_file(CommandLine& line, commands::JobContext context) {
  const auto tree = read_file_with_sets(line);
  if (!tree) return fail(tree.error());
  const auto table = read_table(line);
  if (!table) return fail(table.error());
  line.snapshot = line.snapshot || (table->snapshots && context == commands::JobContext::outside);
  const FileKind kind = kind_of(*tree);
  if (kind == FileKind::pipeline || kind == FileKind::sweep) return answer_run_file(line, *tree, kind, *table);
  if (kind == FileKind::other) return fail(refused_type(line, *tree));
  auto plan = plan_file(line, *table, *tree);
  return plan ? run_plan(line, std::move(*plan), context) : fail(plan.error());
}

constexpr std::array<Command, 9> all_commands = {{
    {"help", false, false, [](const CommandLine&) { return print(help_text()); }},
    {"version", false, false, [](const CommandLine&) { return print("aml-run " AMLDIST_VERSION "\n"); }},
    {"list-keys", false, false,
     [](const CommandLine& line) { return print(line.json ? keys_as_json() : keys_as_table()); }},
    {"list", false, true, list_runs},
    {"show", true, true, answer_show},
    {"cancel", true, true, answer_cancel},
    {"resume", true, true, answer_resume},
    {"stream", true, true, answer_stream},
    {"download", true, true, answer_download},
}};

int answer(const std::vector<std::string>& words) {
  if (const auto status = answer_script(words)) return *status;
  const auto az = read_az_line(words);
  if (!az) return fail(az.error());
  if (*az) std::ranges::for_each((*az)->notes, [](const std::string& note) { say(note); });
  auto line = read_command_line(all_commands, *az ? (*az)->words : words);
  if (!line) return fail(line.error());
  if (line->command != nullptr) return line->command->answer(*line);
  if (launch::is_help(line->kind)) return print(launch::option_help());
  const auto context = line->new_job ? Result(commands::JobContext::outside) : commands::find_job_context();
  if (!context) return fail(context.error());
  return line->job_file.empty() ? run_plan(*line, plan_command(*line), *context) : run_job_file(*line, *context);
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
