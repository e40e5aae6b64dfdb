#include "launchers/launcher.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/os/environment.hpp"
#include "shared/allocation.hpp"
#include "shared/exit_status.hpp"
#include "shared/json.hpp"
#include "shared/option_parser.hpp"
#include "shared/programs.hpp"
#include "shared/task_variables.hpp"
#include "shared/terminal.hpp"

namespace amldist::launchers {
namespace {

using commands::print;
using commands::SlurmOptions;
using nlohmann::ordered_json;
using text::concat;

std::string table_text(std::span<const Flag> table) {
  std::size_t width = 0;
  for (const Flag& flag : table) width = std::max(width, flag.names.size());
  std::string out;
  for (const Flag& flag : table) {
    const std::string_view handling = to_string(flag.handling);
    out += concat({flag.names, std::string(width + 2 - flag.names.size(), ' '), handling,
                   std::string(12 - handling.size(), ' '), flag.becomes, "\n"});
  }
  return out;
}

std::string table_json(std::span<const Flag> table) {
  auto out = ordered_json::array();
  for (const Flag& flag : table) {
    out.push_back({{"names", text::split(flag.names, ' ')},
                   {"values", flag.values},
                   {"handling", to_string(flag.handling)},
                   {"becomes", flag.becomes},
                   {"type", flag.type}});
  }
  return commands::json_text(out, 1);
}

std::string line_json(const StepLine& line) {
  auto variables = ordered_json::object();
  for (const auto& [name, value] : line.environment) variables[name] = value;
  const ordered_json out = {
      {"command", line.command()}, {"environment", variables}, {"line", line.to_line()}, {"notes", line.notes}};
  return commands::json_text(out);
}

/// Options of srun, and of plugins.
Result<void> merge_slurm(Base& base) {
  for (const std::string& given : base.slurm) {
    const auto taken = commands::read_slurm_option(given);
    if (taken) {
      base.line.srun.merge(*taken);
      continue;
    }
    if (taken.error().code != Errc::not_found) return taken.error();
    if (!given.starts_with("--") || given.size() < 3) {
      return Error{Errc::invalid_argument, concat({"invalid value ", text::quote(given),
                                                   " for --slurm: use one option of srun, such as "
                                                   "--slurm=--partition=gpu"})};
    }
    const auto equals = given.find('=');
    if (equals == std::string::npos) base.line.srun.set(given.substr(2));
    else base.line.srun.set(given.substr(2, equals - 2), given.substr(equals + 1));
  }
  return {};
}

/// Slurm binds each task to the one processor that it has by default, which starves the threads and the workers that
/// load data. What somebody says about processors stays.
void unbind(SlurmOptions& srun) {
  constexpr std::array about_processors = {"cpu-bind", "cpus-per-task", "hint", "threads-per-core", "ntasks-per-core"};
  const bool is_said = std::ranges::any_of(about_processors, [&](const char* name) { return srun.has(name); }) ||
                       own_variable("SRUN_CPUS_PER_TASK") || own_variable("SLURM_CPU_BIND");
  if (!is_said) srun.set("cpu-bind", "none");
}

}  // namespace

Result<void> apply_handling(Base& base, const Flag& flag, const GivenFlag& given, bool has_function) {
  switch (flag.handling) {
    case FlagHandling::refused:
      return Error{Errc::invalid_argument, concat({given.name, " is not supported here: ", flag.becomes})};
    case FlagHandling::ignored:
      base.line.note(concat({given.name, " is ignored: ", flag.becomes}));
      break;
    case FlagHandling::handed_on:
      if (!has_function) {
        base.handed_on.push_back(given.name);
        base.handed_on.insert(base.handed_on.end(), given.values.begin(), given.values.end());
      }
      break;
    case FlagHandling::translated:
      break;
  }
  return {};
}

Result<void> finish_line(Base& base) {
  StepLine& line = base.line;
  const auto context = commands::find_job_context();
  if (!context) return context.error();
  if (*context == commands::JobContext::task) line.srun.set("overlap");
  line.srun.set("kill-on-bad-exit", "1");
  // The first Ctrl-C ends the processes, as with the real launchers: a tee behind the line dies of it, too, and srun
  // would go on with nobody to read.
  line.srun.set("quit-on-interrupt");
  line.expand = line.expand || std::ranges::any_of(line.words, commands::mentions_task_variable);
  if (auto status = merge_slurm(base); !status) return status;
  if (line.binds_nothing) unbind(line.srun);
  if (*context != commands::JobContext::outside) commands::count_tasks(line.srun);
  return {};
}

int conclude(Base& base, std::string_view tool, std::span<const Flag> table, std::string_view help) {
  if (base.help) {
    return print(
        concat({help, "\nExit status: that of srun. Where srun was not started:\n", commands::exit_status_help, "\n"}));
  }
  if (base.version) return print(concat({"aml-", tool, " " AMLDIST_VERSION "\n"}));
  if (base.list_flags) return print(base.json ? table_json(table) : table_text(table));
  if (!base.dry_run) return start(base.line);
  if (base.json) return print(line_json(base.line));
  for (const std::string& sentence : base.line.notes) commands::say(sentence);
  return print(base.line.to_line() + "\n");
}

}  // namespace amldist::launchers
