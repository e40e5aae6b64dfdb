#include "aml_run/command/command_line.hpp"

#include <algorithm>
#include <array>

#include "aml_run/command/own_options.hpp"
#include "base/text/text.hpp"
#include "launch/option/spec.hpp"
#include "shared/exit_status.hpp"

namespace amldist::run {
namespace {

using text::concat;
using text::quote;

constexpr std::array<std::string_view, 25> own_names = {
    "kind",     "aml-dist",       "set",  "setup",   "mpi",       "wait",      "json",   "dry-run",
    "new-job",  "instance-types", "help", "version", "list-keys", "no-expand", "launch", "literal",
    "snapshot", "list",           "show", "resume",  "cancel",    "stream",    "svg",    "metric-pattern",
    "test-only"};

Error wrong(std::string_view sentence) { return {Errc::invalid_argument, concat({sentence, " (see aml-run --help)"})}; }

Error unknown_option(std::string_view word) {
  std::vector<std::string_view> names(own_names.begin(), own_names.end());
  for (const auto& option : commands::slurm_options()) names.push_back(option.name);
  const std::string_view bare = word.substr(std::min(word.find_first_not_of('-'), word.size()));
  const auto near = text::nearest(bare, names);
  return wrong(concat({"unknown option ", quote(word),
                       near ? concat({": did you mean --", *near, "?"})
                            : std::string(": an option of another plugin is written --name=value")}));
}

/// Whether `name` is rather `near` mistyped than an option of another plugin, such as --container-image.
bool is_slip(std::string_view name, std::string_view near) {
  const std::size_t difference = name.size() > near.size() ? name.size() - near.size() : near.size() - name.size();
  return name.front() == near.front() && difference <= 2 && !name.starts_with("container-");
}

/// What neither we nor sbatch's table know: options of other plugins pass, everything else is a slip.
Result<void> take_extras(const std::vector<std::string>& extras, CommandLine& line) {
  for (const std::string& word : extras) {
    const auto equals = word.find('=');
    const bool plugin_option = word.starts_with("--") && equals != std::string::npos && equals > 2;
    if (plugin_option) {
      const std::string name = word.substr(2, equals - 2);
      std::vector<std::string_view> known(own_names.begin(), own_names.end());
      for (const auto& option : commands::slurm_options()) known.push_back(option.name);
      if (const auto near = text::nearest(name, known); near && is_slip(name, *near)) {
        return unknown_option(word.substr(0, equals));
      }
      line.slurm.set(name, word.substr(equals + 1));
    } else if (word.starts_with('-')) {
      return unknown_option(word);
    } else {
      return wrong(concat({quote(word), " is one word too many: put -- in front of a command"}));
    }
  }
  return {};
}

Result<void> read_sets(const std::vector<std::string>& sets, CommandLine& line) {
  for (const std::string& each : sets) {
    const auto equals = each.find('=');
    if (equals == std::string::npos || equals == 0) {
      return wrong(concat({"--set ", quote(each), ": write PATH=VALUE, such as inputs.epochs=2"}));
    }
    line.set.emplace_back(each.substr(0, equals), each.substr(equals + 1));
  }
  return {};
}

Result<void> check_kind(CommandLine& line) {
  if (line.kind.empty()) return {};
  if (launch::is_help(line.kind)) {
    line.kind_help = true;
    return {};
  }
  const auto spec = launch::parse_spec(line.kind);
  return spec ? Result<void>() : Result<void>(spec.error());
}

/// A count that Slurm would take, or a range for --nodes.
Result<void> check_count(const commands::SlurmOptions& slurm, std::string_view name, bool range) {
  const auto* const option = slurm.find(name);
  if (option == nullptr) return {};
  const std::string_view value = slurm.value_of(name);
  const auto parts = text::split(value, '-');
  const bool good =
      (parts.size() == 1 || (range && parts.size() == 2)) && std::ranges::all_of(parts, [](std::string_view part) {
        const auto number = text::to_number(part, 1U << 24U);
        return number && *number > 0;
      });
  if (good) return {};
  return wrong(concat({"--", name, "=", quote(value), " is not possible: give a whole number, 1 or more"}));
}

Result<void> check_together(const CommandLine& line) {
  if (line.help || line.version || line.list_keys || line.kind_help) return {};
  if (line.list || !line.run_verb.empty()) {
    if (line.job_file.empty() && line.words.empty() && !(line.list && !line.run_verb.empty())) return {};
    return wrong(concat(
        {"--", line.list ? "list" : line.run_verb, " is about runs that there are already: give no job with it"}));
  }
  for (const auto& [name, range] :
       {std::pair("nodes", true), std::pair("ntasks", false), std::pair("ntasks-per-node", false)}) {
    if (auto checked = check_count(line.slurm, name, range); !checked) return checked.error();
  }
  if (line.job_file.empty() && line.words.empty()) {
    return wrong("there is nothing to run: give a job file, or -- and a command");
  }
  if (!line.job_file.empty() && !line.words.empty()) {
    return wrong(
        concat({"there is a job file, ", quote(line.job_file), ", and a command behind --: give one of them"}));
  }
  const bool is_file = line.job_file.ends_with(".yml") || line.job_file.ends_with(".yaml") || line.job_file == "-" ||
                       line.job_file.find('/') != std::string::npos || line.job_file.empty();
  if (!is_file) {
    return wrong(concat({quote(line.job_file), " is not a .yml file: put -- in front of a command"}));
  }
  if (line.job_file.empty() && !line.set.empty()) return wrong("--set changes a job file, and there is none");
  if (line.slurm.has("wrap")) return wrong("--wrap makes a script of its own: put the command behind -- instead");
  if (line.wait && line.slurm.has("array")) return wrong("--wait follows one job, and --array makes many");
  return {};
}

}  // namespace

Result<CommandLine> read_command_line(std::vector<std::string> words) {
  CommandLine line;
  const auto dashes = std::ranges::find(words, "--");
  if (dashes != words.end()) line.words.assign(dashes + 1, words.end());
  const bool has_command = dashes != words.end();
  words.erase(dashes, words.end());
  auto slurm = commands::take_slurm_options(words, own_names);
  if (!slurm) return wrong(slurm.error().message);
  line.slurm = std::move(*slurm);

  const auto own = take_own_options(words, line);
  if (!own) return wrong(own.error().message);
  if (has_command && line.words.empty()) return wrong("there is no command behind --");
  if (auto done = take_extras(own->extras, line); !done) return done.error();
  if (auto done = read_sets(own->sets, line); !done) return done.error();
  if (auto done = check_kind(line); !done) return done.error();
  if (auto done = check_together(line); !done) return done.error();
  return line;
}

std::string help_text() {
  return R"(Examples:
  aml-run job.yml                                 submit an Azure ML job file
  aml-run job.yml --wait                          and follow it to its end
  aml-run job.yml --dry-run > job.sh              the batch script, nothing submitted
  aml-run job.yml --partition=gpu --set inputs.data.path=/shared/cifar
  aml-run --kind pytorch -N2 --tasks-per-node 4 -- python train.py --rank '$RANK'

aml-run [OPTION]... JOB.yml
aml-run [OPTION]... -- COMMAND [ARGUMENT]...

  --kind KIND[,KEY=VALUE]  pytorch (default of a command), mpi, tensorflow, jax, none; help for all
  --set PATH=VALUE         change a key of the job file
  --literal                a value of ${{...}} is one word, whatever bash makes of it
  --setup LINE             a line of bash in front of the program (module load ...)
  --mpi TYPE               srun's --mpi (kind mpi: pmix)
  --instance-types FILE    what instance types and computes are on this cluster
  --no-expand              leave $RANK and its like in a command's arguments alone
  --dry-run                print the batch script
  -W, --wait               follow the job; its exit status becomes ours; Ctrl-C asks
  --snapshot               copy the code folder, so that later edits do not reach the job
  --list, --show ID, --cancel ID, --stream ID   runs (sweeps, pipelines) and jobs
  --resume ID              run again what did not end well
  --download ID            copy its logs and outputs; --download-path FOLDER says where
  --svg FILE               a run as a picture
  --metric-pattern REGEX   where in its log a sweep's trial says its metric
  --test-only              ask sbatch whether and when the job would start
  --json                   what was done, for programs
  --new-job                a job, even inside an allocation (there a step is started)
  --list-keys              every key of a job file and what becomes of it
  any option of sbatch     -N2, --time=1:00:00, --gpus-per-node=4; wins over the job file

Exit status: with --wait and for a step that of the job. Where no job was started:
)" + std::string(commands::exit_status_help) +
         "\n";
}

}  // namespace amldist::run
