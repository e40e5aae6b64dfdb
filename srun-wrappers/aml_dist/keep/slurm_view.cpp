#include "aml_dist/keep/slurm_view.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <ctime>

#include "base/net/own_network.hpp"
#include "base/os/child_process.hpp"
#include "base/os/environment.hpp"
#include "base/text/text.hpp"
#include "shared/scontrol.hpp"

namespace amldist::keep {
namespace {

using text::concat;

/// Without the user's own format of times, which would be hard to read back.
std::vector<std::string> variables() {
  auto all = all_own_variables();
  std::erase_if(all, [](const std::string& each) { return each.starts_with("SLURM_TIME_FORMAT="); });
  return all;
}

/// A command of Slurm's; nullopt: it has not answered in time.
std::optional<ChildOutput> ask(std::vector<std::string> words, std::chrono::seconds limit = std::chrono::seconds(5)) {
  constexpr std::size_t most = std::size_t{64} << 20;
  auto output = output_of({.words = std::move(words), .environment = variables()}, Clock::now() + limit, most);
  return output ? std::optional(std::move(*output)) : std::nullopt;
}

std::string joined(std::span<const std::string> names) {
  const std::vector<std::string_view> views(names.begin(), names.end());
  return text::join(views, ",");
}

/// `may_end_it`: Slurm ends the command itself when it does what was asked.
Result<void> command(std::vector<std::string> words, bool may_end_it = false) {
  const std::string name = concat({words[0], " ", words[1]});
  constexpr std::chrono::seconds limit{10};
  const auto answer = ask(std::move(words), limit);
  if (answer && (answer->status == 0 || (may_end_it && signal_of(answer->status) == SIGTERM))) return {};
  return Error{Errc::unavailable, concat({name, answer ? concat({" ended with status ", std::to_string(answer->status)})
                                                       : std::string(" did not answer")})};
}

/// A number of `scontrol show config`: "SlurmdPort              = 6818".
std::optional<std::uint64_t> setting(std::string_view config, std::string_view name) {
  const auto at = config.find(concat({"\n", name, " "}));
  if (at == std::string_view::npos) return std::nullopt;
  std::string_view value = config.substr(config.find('=', at) + 1);
  value = value.substr(0, value.find('\n'));
  value = text::trim(value);
  return text::to_number(value.substr(0, value.find_first_not_of("0123456789")), UINT32_MAX);
}

}  // namespace

bool NodeState::is_down() const {
  return word.starts_with("DOWN") || word.starts_with("FAIL") || word.find("NOT_RESPONDING") != std::string::npos ||
         word.find('*') != std::string::npos || word.find("POWERED_DOWN") != std::string::npos ||
         word.find("POWERING_DOWN") != std::string::npos;
}

bool NodeState::is_usable() const { return !is_down() && word.find("DRAIN") == std::string::npos; }

std::map<std::string, NodeState> parse_nodes(std::string_view text) {
  std::map<std::string, NodeState> out;
  for (const std::string_view line : text::split(text, '\n')) {
    const std::string_view name = commands::scontrol_value(line, "NodeName=");
    if (name.empty()) continue;
    const auto port = text::to_number(commands::scontrol_value(line, "Port="), 65535);
    out.emplace(name, NodeState{std::string(commands::scontrol_value(line, "NodeAddr=")),
                                std::string(commands::scontrol_value(line, "State=")),
                                static_cast<std::uint16_t>(port.value_or(0))});
  }
  return out;
}

std::map<std::string, NodeState> node_states(std::span<const std::string> nodes) {
  const auto answer = ask({"scontrol", "-o", "show", "node", joined(nodes)});
  return answer && answer->status == 0 ? parse_nodes(answer->text) : std::map<std::string, NodeState>();
}

SlurmNumbers slurm_numbers() {
  SlurmNumbers numbers;
  const auto answer = ask({"scontrol", "show", "config"});
  if (!answer) return numbers;
  if (const auto port = setting(answer->text, "SlurmdPort"); port && *port <= 65535)
    numbers.slurmd_port = static_cast<std::uint16_t>(*port);
  if (const auto timeout = setting(answer->text, "SlurmdTimeout"); timeout && *timeout > 0)
    numbers.slurmd_timeout = static_cast<std::uint32_t>(*timeout);
  return numbers;
}

std::optional<std::string> parse_step(std::string_view text, std::string_view host, pid_t srun) {
  const std::string wanted = concat({host.substr(0, host.find('.')), ":", std::to_string(srun)});
  for (const std::string_view line : text::split(text, '\n')) {
    const std::string_view owner = commands::scontrol_value(line, "SrunHost:Pid=");
    const std::string_view name = owner.substr(0, owner.find(':'));
    const std::string own = concat({name.substr(0, name.find('.')), owner.substr(std::min(name.size(), owner.size()))});
    if (own == wanted) return std::string(commands::scontrol_value(line, "StepId="));
  }
  return std::nullopt;
}

std::string name_of_job(std::uint32_t job, const EnvironmentReader& environment) {
  const auto number = [&](const char* name) {
    return text::to_number(environment(name).value_or(""), std::uint64_t{UINT32_MAX});
  };
  const auto array = number("SLURM_ARRAY_JOB_ID");
  const auto task = number("SLURM_ARRAY_TASK_ID");
  return array && task ? concat({std::to_string(*array), "_", std::to_string(*task)}) : std::to_string(job);
}

std::optional<std::string> step_of(const std::string& job, pid_t srun) {
  const auto answer = ask({"scontrol", "-o", "show", "step", job});
  return answer ? parse_step(answer->text, own_host_name(), srun) : std::nullopt;
}

bool is_known_step(const std::string& job, const std::string& step) {
  const auto answer = ask({"scontrol", "-o", "show", "step", job});
  return answer && answer->text.find(concat({"StepId=", step, " "})) != std::string::npos;
}

Result<void> shrink_job(const std::string& job, std::span<const std::string> nodes, const std::string& folder) {
  // scontrol writes scripts with the job's new variables into its working folder.
  return command({"env", concat({"--chdir=", folder}), "scontrol", "update", concat({"JobId=", job}),
                  concat({"NodeList=", joined(nodes)})});
}

void cancel_step(const std::string& step) { static_cast<void>(ask({"scancel", "--quiet", step})); }

Result<void> requeue_job(const std::string& job) {
  return command({"scontrol", "requeue", job}, true);  // like all processes of the job
}

Result<void> exclude_nodes(const std::string& job, std::span<const std::string> nodes) {
  const std::string before = job_field(job, "ExcNodeList");
  if (before.empty())  // what the job excludes itself would be replaced
    return Error{Errc::unavailable, "scontrol does not say which nodes the job excludes"};
  const bool has_own = before != "(null)";
  return command({"scontrol", "update", concat({"JobId=", job}),
                  concat({"ExcNodeList=", has_own ? before : "", has_own ? "," : "", joined(nodes)})});
}

std::optional<std::int64_t> end_of_job(const std::string& job) {
  if (job_field(job, "TimeLimit") == "UNLIMITED") return no_time_limit;
  return parse_time(job_field(job, "EndTime"));
}

std::optional<std::int64_t> parse_time(const std::string& text) {
  std::tm parts = {};
  const char* const end = ::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &parts);
  if (end == nullptr || *end != '\0') return std::nullopt;
  parts.tm_isdst = -1;
  const std::time_t time = std::mktime(&parts);
  return time == -1 ? std::nullopt : std::optional(std::int64_t{time});
}

std::string job_field(const std::string& job, std::string_view name) {
  const auto answer = ask({"scontrol", "show", "job", job});
  return answer ? std::string(commands::scontrol_value(answer->text, concat({name, "="}))) : std::string();
}

}  // namespace amldist::keep
