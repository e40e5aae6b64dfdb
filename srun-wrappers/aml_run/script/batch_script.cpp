#include "aml_run/script/batch_script.hpp"

#include <algorithm>
#include <cctype>
#include <iterator>

#include "aml_run/script/container_words.hpp"
#include "aml_run/script/provision_lines.hpp"
#include "aml_run/script/run_lines.hpp"
#include "base/text/environment.hpp"
#include "base/text/shell_commands.hpp"
#include "base/text/text.hpp"
#include "launch/option/spec.hpp"
#include "shared/programs.hpp"
#include "shared/shell.hpp"
#include "shared/task_variables.hpp"
#include "step/messages/job_record.hpp"

namespace amldist::run {
namespace {

using commands::GivenOption;
using text::concat;

constexpr std::size_t widest_line = 110;

/// Comment lines of at most widest_line characters; one word stays whole.
std::string comment(std::string_view sentence, std::string_view indent = "") {
  std::string out;
  std::string line;
  std::string clean(sentence);
  std::ranges::replace_if(
      clean, [](char c) { return static_cast<unsigned char>(c) < 0x20; }, ' ');
  for (const std::string_view word : text::split(clean, ' ')) {
    if (word.empty()) continue;
    if (!line.empty() && line.size() + word.size() + indent.size() + 3 > widest_line) {
      out += concat({"# ", indent, line, "\n"});
      line.clear();
    }
    line += concat({line.empty() ? "" : " ", word});
  }
  return line.empty() ? out : out + concat({"# ", indent, line, "\n"});
}

std::string directives(const commands::SlurmOptions& options) {
  std::string out;
  for (const GivenOption& option : options.all()) {
    out += concat({"#SBATCH --", option.name, option.value ? "=" : "",
                   option.value ? shell::quote_directive(*option.value) : "", "\n"});
  }
  return out;
}

std::string heading(const Plan& plan) {
  std::string out;
  for (const std::string& sentence : plan.heading) out += comment(sentence);
  out += comment(concat({"Written by aml-run ", AMLDIST_VERSION,
                         plan.source.empty() ? " from a command line." : concat({" from ", plan.source, "."})}));
  if (plan.ignored.empty()) return out;
  out += "#\n# Without effect here:\n";
  for (const Ignored& each : plan.ignored) {
    out += comment(concat({each.path, ": ", each.why, "."}), "  ");
  }
  return out;
}

/// A finished text as one word; else the call of the program that finishes it.
std::string filled(const FilledText& text) {
  if (text.values.empty()) return shell::quote(text.text);
  std::string out = concat({"$(", shell::quote(commands::sibling_program("aml-run")), " --fill-in",
                            text.literally ? "-literally " : " ", shell::quote(text.text)});
  for (const FilledText::Value& value : text.values) {
    out += concat({" \\\n    ", value.variable.empty() ? shell::quote(concat({value.expression, "=", value.text}))
                                                       : concat({"\"", value.expression, "=$", value.variable, "\""})});
  }
  return out + ") || exit";
}

bool keeps_dollar(const FilledText& text) {
  return shell::keeps_dollar(text.text) || std::ranges::any_of(text.values, [](const FilledText::Value& value) {
           return shell::keeps_dollar(value.text);
         });
}

std::string exports(const Plan& plan) {
  std::string out;
  for (const Variable& variable : plan.environment) {
    if (keeps_dollar(variable.value)) out += "# shellcheck disable=SC2016  # meant as it is\n";
    if (variable.value.values.empty()) {
      out += concat({"export ", variable.name, "=", filled(variable.value), "\n"});
    } else {
      out += concat({variable.name, "=", filled(variable.value), "\nexport ", variable.name, "\n"});
    }
  }
  return out.empty() ? out : out + "\n";
}

/// Slurm starts a job whose folder is missing in /tmp, where it would do something else.
std::string working_folder(const WorkFolder& work) {
  std::string out;
  if (!work.path.empty()) {
    const std::string folder = shell::quote(work.path);
    out += concat({"cd -- ", folder,
                   " 2>/dev/null || {\n    echo \"aml-dist: the job's folder is not there on $HOSTNAME, so the nodes "
                   "do not share it: \"",
                   folder, " >&2\n    exit 4\n}\n"});
  }
  if (work.is_azures) {
    out += "mkdir -p outputs logs 2>/dev/null || echo \"aml-dist: outputs/ and logs/ cannot be made in $PWD\" >&2\n";
  }
  return out.empty() ? out : out + "\n";
}

/// Each task checks too: the folder may be missing only on its node.
std::string enter_folder(const Plan& plan) {
  if (plan.work.path.empty() || plan.job.value_of("nodes") == "1") return {};
  return concat(
      {"command=", shell::quote(concat({"cd -- ", shell::quote(plan.work.path), " || exit 4; "})), "$command\n"});
}

/// bash stays as the parent of a command of several parts. Slurm sends the job's --signal to every process of the step:
/// bash and tee would die of it, and with them the step, while the ranks catch it.
std::string let_signals_pass(const Plan& plan, std::string_view line) {
  std::string signal(plan.job.value_of("signal"));
  if (signal.starts_with("R:")) signal.erase(0, 2);
  signal.erase(std::min(signal.find('@'), signal.size()));
  const bool is_word = !signal.empty() && std::ranges::all_of(signal, [](unsigned char c) { return std::isalnum(c); });
  if (!is_word || text::shell_commands(line).size() < 2) return {};
  return concat({"# --signal is for the ranks, not for this bash and its tee.\n# shellcheck disable=SC2016\n",
                 "command='trap : ", signal, "; tee() { trap \"\" ", signal,
                 "; command tee \"$@\"; set -- $?; trap : ", signal, "; return $1; }; '\"$command\"\n"});
}

std::string output_folders(const Plan& plan) {
  const std::string_view standard = output_parent(plan);
  std::string out;
  for (const OutputFolder& folder : plan.outputs) {
    out += concat({"# ${{outputs.", folder.name, "}}\n"});
    if (folder.path.empty()) {
      out += concat({folder.variable, "=\"", standard, "/", folder.name, "\"\n"});
    } else {
      out += concat({folder.variable, "=", shell::quote(folder.path), "\n"});
    }
    out += concat({"export ", folder.variable, "\nmkdir -p -- \"", folder.is_file ? "$(dirname -- \"$" : "$",
                   folder.variable, folder.is_file ? "\")" : "", "\" || exit\n"});
  }
  return out.empty() ? out : out + "\n";
}

std::string lines(const std::vector<std::string>& all) {
  std::string out;
  for (const std::string& line : all) out += concat({line, "\n"});
  return out.empty() ? out : out + "\n";
}

/// Lines of the user; without what they prepare, the program would do something else.
std::string setup(const Plan& plan) {
  std::string out;
  for (const std::string& line : plan.setup) {
    out += concat(
        {line,
         "\nsetup_status=$?\n((setup_status == 0)) || {\n    echo \"aml-dist: a line of --setup failed with status ",
         "$setup_status, so the program is not started\" >&2\n    exit \"$setup_status\"\n}\n"});
  }
  return out.empty() ? out : out + "\n";
}

bool is_along_topology(const Plan& plan) {
  const auto spec = plan.option.empty() ? Result<launch::Spec>(launch::Spec{}) : launch::parse_spec(plan.option);
  return spec && spec->along_topology;
}

/// order=topology: a host file for srun.
std::string host_file(const Plan& plan) {
  if (!is_along_topology(plan)) return {};
  return concat({"# order=topology: neighbours in rank are neighbours in the network.\n",
                 "SLURM_HOSTFILE=$(mktemp) || exit\nexport SLURM_HOSTFILE\n", at_end(plan, "rm -f \"$SLURM_HOSTFILE\""),
                 "\n", shell::quote(commands::sibling_program("aml-dist")), " order >\"$SLURM_HOSTFILE\" || exit\n\n"});
}

/// The options of srun, as words.
std::vector<std::string> step_options(const Plan& plan) {
  std::vector<std::string> words;
  // A job with --export passes less than its environment on to its steps, unless they ask for it.
  const bool own_environment = !plan.environment.empty() || !plan.outputs.empty();
  if (own_environment && plan.job.has("export") && !plan.step.has("export")) words.emplace_back("--export=ALL");
  for (const GivenOption& option : plan.step.all()) words.push_back(option.to_word());
  if (is_along_topology(plan)) words.emplace_back("--distribution=arbitrary");
  if (!plan.option.empty()) words.push_back(concat({"--aml-dist=", plan.option}));
  return words;
}

/// The record of the job's end, for aml-run --wait (step/messages/job_record.hpp). If it cannot be written, the job
/// runs without it.
std::string begin_record(std::string_view record) {
  if (record.empty()) return {};
  return concat({"# How this job ends is written here, for aml-run --wait.\n", "job_record=", record, "\n",
                 shell::quote(commands::sibling_program("aml-run")), " --begin-record \"$job_record\" ",
                 "\"job $SLURM_JOB_ID ${SLURM_RESTART_COUNT:-0}\" || job_record=/dev/null\n\n"});
}

/// Runs the step and keeps the status with which the script ends. Not in a trap on EXIT: there bash has no status for a
/// signal.
std::string recorded(std::string_view record, std::string step) {
  if (record.empty()) return step;
  step.pop_back();  // the newline
  return concat({"job_status=0\n", step, " || job_status=$?\n",
                 "echo \"ended $job_status\" >>\"$job_record\"\nexit \"$job_status\"\n"});
}

/// `aml-dist keep` in front of srun, which starts it again.
std::string keep_of(const Plan& plan) {
  if (plan.keep.all().empty()) return {};
  std::string out = concat({shell::quote(commands::sibling_program("aml-dist")), " keep "});
  for (const GivenOption& option : plan.keep.all()) out += concat({shell::quote(option.to_word()), " "});
  return out + "-- ";
}

/// srun, with the path where it records which task failed first.
std::string srun_of(const Plan& plan) {
  const bool writes = !record_path(plan).empty() && !plan.option.empty();
  return concat({writes ? concat({step::job_record_variable, "=\"$job_record\" "}) : "", keep_of(plan), "srun"});
}

std::string shell_step(const Plan& plan, const FilledText& line, const std::vector<std::string>& options) {
  std::string out = "# Each task gives this to bash, so that $RANK and its like are its own.\n";
  if (!line.values.empty()) out += "# The values of ${{...}} are put in here, as text.\n";
  if (keeps_dollar(line)) out += "# shellcheck disable=SC2016\n";
  out += concat({"command=", filled(line), "\n", let_signals_pass(plan, line.text), enter_folder(plan)});
  // An image has a PATH of its own.
  if (plan.conda && plan.container) out += "command=\"PATH=$(printf %q \"$conda_folder\")/bin:\\$PATH; $command\"\n";
  out += concat({"\n", srun_of(plan), " "});
  for (const std::string& option : options) out += shell::quote(option) + " ";
  return concat({out, plan.container ? container_words(*plan.container, plan.environment) : std::string(),
                 plan.ray ? shell::join(plan.ray->words()) + " " : std::string(), "bash -c \"$command\"\n"});
}

/// As enter_folder(), for a program: Slurm would start it in /tmp on a node that lacks the folder.
std::vector<std::string> folder_words(const Plan& plan) {
  if (plan.work.path.empty() || plan.job.value_of("nodes") == "1") return {};
  return {"bash", "-c", concat({"cd -- ", shell::quote(plan.work.path), " || exit 4; exec \"$@\""}), "bash"};
}

/// Which words belong to srun's options, and which to the program.
std::string program_step(const Plan& plan, const Program& command, const std::vector<std::string>& options) {
  std::vector<std::string> program = folder_words(plan);
  const bool expand =
      command.expand && !plan.option.empty() && std::ranges::any_of(command.words, commands::mentions_task_variable);
  if (plan.ray) std::ranges::copy(plan.ray->words(), std::back_inserter(program));
  if (expand) program.insert(program.end(), {commands::sibling_program("aml-dist"), "exec", "--"});
  program.insert(program.end(), command.words.begin(), command.words.end());
  const bool doubtful = std::ranges::any_of(program, shell::keeps_dollar);
  const std::string left = concat({srun_of(plan), options.empty() ? "" : " ", shell::join(options)});
  const std::string right = shell::join(program);
  const bool wide = left.size() + right.size() + 1 > widest_line;
  return concat({expand ? "# Each task expands $RANK and its like in its arguments.\n" : "",
                 doubtful ? "# shellcheck disable=SC2016\n" : "", left, wide ? " \\\n    " : " ", right, "\n"});
}

std::string step(const Plan& plan, const std::vector<std::string>& options) {
  const auto* const shell_line = std::get_if<ShellLine>(&plan.command);
  return shell_line != nullptr ? shell_step(plan, shell_line->line, options)
                               : program_step(plan, std::get<Program>(plan.command), options);
}

Result<void> check_length(const Plan& plan) {
  std::size_t longest = 0;
  if (const auto* const shell_line = std::get_if<ShellLine>(&plan.command)) longest = shell_line->line.text.size();
  else
    for (const std::string& word : std::get<Program>(plan.command).words) longest = std::max(longest, word.size());
  if (longest < longest_environment_string) return {};
  return Error{Errc::limit, concat({"an argument of the command is ", std::to_string(longest / 1024),
                                    " KiB long, and Linux takes less than 128 KiB: put it into a file"})};
}

/// Checks that a node cannot make alone (partitions compared with the others', writes between nodes), before the
/// program starts.
std::string verification(const Plan& plan) {
  const auto spec = plan.option.empty() ? Result<launch::Spec>(launch::Spec{}) : launch::parse_spec(plan.option);
  if (!spec || spec->rdma != launch::RdmaPolicy::require) return {};
  const std::string tool = shell::quote(commands::sibling_program("aml-dist"));
  return concat({"# rdma=require: all nodes are verified, and write to each other, before the program starts.\n",
                 "if ((SLURM_JOB_NUM_NODES > 1)); then\n",
                 "    srun --nodes=\"$SLURM_JOB_NUM_NODES\" --ntasks=\"$SLURM_JOB_NUM_NODES\" --ntasks-per-node=1 ",
                 "--aml-dist=none \\\n        ", tool, " check --policy require --before-program || exit\nfi\n\n"});
}

std::string body(const Plan& plan, const std::vector<std::string>& options) {
  const std::string record = record_path(plan);
  return concat({lines(beginning_lines(plan)), begin_record(record), working_folder(plan.work), output_folders(plan),
                 lines(value_lines(plan)), exports(plan), lines(download_lines(plan.downloads)),
                 plan.conda ? lines({conda_lines(*plan.conda)}) : std::string(), setup(plan), lines(watch_lines(plan)),
                 verification(plan), host_file(plan), recorded(record, step(plan, options))});
}

}  // namespace

Result<std::string> write_batch_script(const Plan& plan) {
  if (auto status = check_length(plan); !status) return status.error();
  return concat({"#!/bin/bash\n", directives(plan.job), "\n", heading(plan), "\n", body(plan, step_options(plan))});
}

Result<std::string> write_step_script(const Plan& plan, std::vector<std::string>& dropped) {
  if (auto status = check_length(plan); !status) return status.error();
  std::vector<std::string> options;
  for (const GivenOption& option : plan.job.all()) {
    const auto* const known = commands::find_slurm_option(option.name);
    const bool job_only = known != nullptr && known->scope == commands::Scope::job;
    if (job_only) dropped.push_back(concat({"--", option.name}));
    else if (!plan.step.has(option.name)) options.push_back(option.to_word());
  }
  const auto own = step_options(plan);
  options.insert(options.end(), own.begin(), own.end());
  return concat({"#!/bin/bash\n", heading(plan), "\n", body(plan, options)});
}

}  // namespace amldist::run
