#include "aml_run/command/command_line.hpp"

#include <algorithm>

#include "aml_run/command/az_line.hpp"
#include "base/text/text.hpp"
#include "launch/option/spec.hpp"
#include "shared/exit_status.hpp"
#include "shared/option_parser.hpp"

namespace amldist::run {
namespace {

using text::concat;
using text::quote;

Error wrong(std::string_view sentence) { return {Errc::invalid_argument, concat({sentence, " (see aml-run --help)"})}; }

Error unknown_option(std::string_view word, const std::vector<std::string>& names) {
  if (is_option_of_az(word)) {
    return wrong(concat({quote(word), " is an option of az: write aml-run job create in front of it, or options of ",
                         "aml-run alone"}));
  }
  const std::string_view bare = word.substr(std::min(word.find_first_not_of('-'), word.size()));
  const std::vector<std::string_view> known(names.begin(), names.end());
  const auto near = text::nearest(bare, known);
  return wrong(concat({"unknown option ", quote(word),
                       near ? concat({": did you mean --", *near, "?"})
                            : std::string(": an option of another plugin is written --name=value")}));
}

/// Whether `name` is probably `near` mistyped, and not an option of another plugin, such as --container-image.
bool is_slip(std::string_view name, std::string_view near) {
  const std::size_t difference = name.size() > near.size() ? name.size() - near.size() : near.size() - name.size();
  return name.front() == near.front() && difference <= 2 && !name.starts_with("container-");
}

/// The command line while it is being read.
class Reader {
 public:
  explicit Reader(std::span<const Command> commands) : commands_(commands), wanted_(commands.size(), false) {
    add_commands();
    add_own();
    parser_.add_slurm_options(line_.slurm);
  }

  Result<CommandLine> read(std::vector<std::string> words) {
    const auto dashes = std::ranges::find(words, "--");
    const bool has_command = dashes != words.end();
    if (has_command) line_.words.assign(dashes + 1, words.end());
    words.erase(dashes, words.end());
    auto rest = parser_.parse(std::move(words));
    if (!rest) return wrong(rest.error().message);
    if (has_command && line_.words.empty()) return wrong("the command after -- is missing");
    if (auto status = take_rest(*rest); !status) return status.error();
    if (auto status = find_command(); !status) return status.error();
    if (auto status = check_kind(); !status) return status.error();
    if (auto status = check_stop(); !status) return status.error();
    if (auto status = check_job(); !status) return status.error();
    return std::move(line_);
  }

 private:
  void add_commands() {
    for (std::size_t i = 0; i < commands_.size(); ++i) {
      const std::string name = concat({"--", commands_[i].name});
      const auto want = [this, i](const std::string& id) {
        wanted_[i] = true;
        if (commands_[i].takes_id) line_.id = id;
      };
      if (commands_[i].takes_id) parser_.add_value(name, want);
      else parser_.add_switch(commands_[i].name == "help" ? "--help,-h" : name, want);
    }
  }

  void add_own() {
    parser_.add_text("--kind,--aml-dist", line_.kind);
    parser_.add_text("--mpi", line_.mpi);
    parser_.add_text("--stop-before", line_.stop_before);
    parser_.add_text("--instance-types", line_.instance_types);
    parser_.add_text("--download-path", line_.download_path);
    parser_.add_text("--metric-pattern", line_.metric);
    for (const char* const name : {"spares", "retries", "per-hour", "min-nodes", "no-restart-on", "checkpoints",
                                   "progress", "grace", "health"}) {
      parser_.add_value(concat({"--", name}), [this, name](const std::string& value) { line_.keep.set(name, value); });
    }
    parser_.add_switch("--requeue-at-limit", [this](const std::string&) { line_.keep.set("requeue-at-limit"); });
    parser_.add_value("--set", [this](const std::string& value) { sets_.push_back(value); });
    parser_.add_value("--setup", [this](const std::string& value) { line_.setup.push_back(value); });
    for (const auto& [name, field] :
         {std::pair("--dry-run", &line_.dry_run), std::pair("--wait,-W", &line_.wait), std::pair("--json", &line_.json),
          std::pair("--literal", &line_.literal), std::pair("--snapshot", &line_.snapshot),
          std::pair("--test-only", &line_.test_only), std::pair("--new-job", &line_.new_job),
          std::pair("--dashboard", &line_.dashboard)}) {
      parser_.add_switch(name, [to = field](const std::string&) { *to = true; });
    }
    parser_.add_switch("--no-expand", [this](const std::string&) { line_.expand = false; });
  }

  /// The job file and options of other plugins; anything else is a mistake.
  Result<void> take_rest(const std::vector<std::string>& rest) {
    for (const std::string& word : rest) {
      const bool is_option = word.starts_with('-') && word != "-";
      if (is_option) {
        if (auto status = take_plugin_option(word); !status) return status;
      } else if (line_.job_file.empty()) {
        line_.job_file = word;
      } else {
        return wrong(concat({"unexpected argument ", quote(word), ": put -- in front of a command"}));
      }
    }
    for (const std::string& each : sets_) {
      const auto equals = each.find('=');
      if (equals == std::string::npos || equals == 0)
        return wrong(concat({"--set ", quote(each), ": write PATH=VALUE, such as inputs.epochs=2"}));
      line_.set.emplace_back(each.substr(0, equals), each.substr(equals + 1));
    }
    return {};
  }

  Result<void> take_plugin_option(const std::string& word) {
    const auto equals = word.find('=');
    if (!word.starts_with("--") || equals == std::string::npos || equals < 3)
      return unknown_option(word, parser_.names());
    const std::string name = word.substr(2, equals - 2);
    const std::vector<std::string> names = parser_.names();
    const std::vector<std::string_view> known(names.begin(), names.end());
    if (const auto near = text::nearest(name, known); near && is_slip(name, *near))
      return unknown_option(word.substr(0, equals), names);
    line_.slurm.set(name, word.substr(equals + 1));
    return {};
  }

  Result<void> find_command() {
    for (std::size_t i = 0; i < commands_.size(); ++i) {
      if (!wanted_[i]) continue;
      if (line_.command == nullptr) line_.command = &commands_[i];
      else if (commands_[i].takes_id)
        return wrong(concat({"--", line_.command->name, " and --", commands_[i].name, " are given: give one of them"}));
    }
    return {};
  }

  [[nodiscard]] Result<void> check_kind() const {
    if (line_.kind.empty() || launch::is_help(line_.kind)) return {};
    const auto spec = launch::parse_spec(line_.kind);
    return spec ? Result<void>() : Result<void>(spec.error());
  }

  /// SECONDS or SECONDS@SIGNAL, as the key stop= of the option.
  [[nodiscard]] Result<void> check_stop() const {
    if (line_.stop_before.empty()) return {};
    const std::string_view kind = line_.kind.empty() ? std::string_view("pytorch") : line_.kind;
    const auto spec = launch::parse_spec(concat({kind, ",stop=", line_.stop_before}));
    return spec ? Result<void>() : wrong(concat({"--stop-before: ", spec.error().message}));
  }

  /// A count that Slurm accepts, or a range for --nodes.
  [[nodiscard]] Result<void> check_count(std::string_view name) const {
    if (!line_.slurm.has(name)) return {};
    const std::string_view value = line_.slurm.value_of(name);
    const auto parts = text::split(value, '-');
    const bool good = parts.size() <= (name == "nodes" ? 2U : 1U) && std::ranges::all_of(parts, [](auto part) {
                        const auto number = text::to_number(part, 1U << 24U);
                        return number && *number > 0;
                      });
    if (good) return {};
    return wrong(concat({"invalid value ", quote(value), " for --", name, ": use a whole number, 1 or more"}));
  }

  [[nodiscard]] Result<void> check_job() const {
    const bool has_job = !line_.job_file.empty() || !line_.words.empty();
    if (line_.command != nullptr) {
      if (!line_.command->is_about_runs || !has_job) return {};
      const bool streams = line_.command->name == "stream";
      return wrong(concat({"--", line_.command->name, " concerns existing runs: give no job with it",
                           streams ? "; --wait follows a job that is started" : ""}));
    }
    if (launch::is_help(line_.kind)) return {};
    for (const std::string_view name : {"nodes", "ntasks", "ntasks-per-node"}) {
      if (auto status = check_count(name); !status) return status;
    }
    if (!has_job) return wrong("there is nothing to run: give a job file, or -- and a command");
    if (!line_.job_file.empty() && !line_.words.empty())
      return wrong(
          concat({"there is a job file, ", quote(line_.job_file), ", and a command after --: give one of them"}));
    const std::string& file = line_.job_file;
    const bool is_file = file.ends_with(".yml") || file.ends_with(".yaml") || file == "-" ||
                         file.find('/') != std::string::npos || file.empty();
    if (!is_file) return wrong(concat({quote(file), " is not a .yml file: put -- in front of a command"}));
    if (file.empty() && !line_.set.empty()) return wrong("--set changes a job file: give one");
    if (line_.slurm.has("wrap")) return wrong("--wrap makes a script of its own: put the command after -- instead");
    if (line_.wait && line_.slurm.has("array")) return wrong("--wait follows one job, and --array makes many");
    return {};
  }

  std::span<const Command> commands_;
  std::vector<bool> wanted_;
  std::vector<std::string> sets_;
  commands::OptionParser parser_;
  CommandLine line_;
};

}  // namespace

Result<CommandLine> read_command_line(std::span<const Command> commands, std::vector<std::string> words) {
  return Reader(commands).read(std::move(words));
}

std::string help_text() {
  return R"(Examples:
  aml-run job.yml                                 submit an Azure ML job file
  aml-run job.yml --wait                          and follow it to its end
  aml-run job.yml --dry-run > job.sh              print the batch script
  aml-run job.yml --partition=gpu --set inputs.data.path=/shared/cifar
  aml-run -N2 --tasks-per-node 4 -- python train.py --rank '$RANK'

aml-run [OPTION]... JOB.yml
aml-run [OPTION]... -- COMMAND [ARGUMENT]...

  --kind KIND[,KEY=VALUE]  pytorch (default), mpi, tensorflow, jax, ray, none;
                           help: all of them
  --set PATH=VALUE         change a key of the job file
  --literal                a value of ${{...}} is one word
  --setup LINE             a line of bash before the program (module load ...)
  --mpi TYPE               srun's --mpi (kind mpi: pmix)
  --stop-before SECONDS[@SIGNAL]   ask the ranks to save before the time limit
  --instance-types FILE    what instance types and computes are on this cluster
  --dashboard              kind ray: with Ray's dashboard; its address is in the
                           job's output
  --spares N, --retries N  start the step again without the guilty node; these
                           and more are those of aml-dist keep
  --no-expand              leave $RANK and its like in arguments alone
  --dry-run                print the batch script
  -W, --wait               follow the job; end with its status; Ctrl-C asks
  --snapshot               the job has a copy of the code folder as it is now
  --list, --show ID, --cancel ID, --stream ID   runs and jobs
  --resume ID              run again what did not end well
  --download ID            copy its logs and outputs, to --download-path FOLDER
  --metric-pattern REGEX   where in its log a sweep's trial says its metric
  --test-only              ask sbatch whether and when the job would start
  --json                   what was done, for programs
  --new-job                a job, even inside an allocation
  --list-keys              every key of a job file and what becomes of it
  any option of sbatch     -N2, --time=1:00:00, --gpus-per-node=4; wins over the
                           job file

Exit status: with --wait and for a step that of the job. If no job was started:
)" + std::string(commands::exit_status_help) +
         "\n";
}

}  // namespace amldist::run
