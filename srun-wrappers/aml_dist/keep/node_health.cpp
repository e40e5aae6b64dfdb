#include "aml_dist/keep/node_health.hpp"

#include <fcntl.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/os/child_process.hpp"
#include "base/os/whole_file.hpp"
#include "base/text/text.hpp"

namespace amldist::keep {
namespace {

using nlohmann::json;
using text::concat;

/// Without SLURM_STEP_NUM_NODES each node checks itself and waits for no other. A node that has GPUs must have healthy
/// ones; under `require` one without would fail.
constexpr const char* script =
    "echo \"node $SLURMD_NODENAME\"; health=prefer; if [ -e /dev/nvidiactl ] || [ -e /dev/kfd ]; then health=require; "
    "fi; "
    "env -u SLURM_STEP_NUM_NODES \"$0\" check --json --health $health \"$@\"; exit 0";

constexpr std::size_t longest_output = std::size_t{64} << 20;

/// "ib.state: port 1 is down"; empty: the node is not sick. nullopt: this is not a report.
std::optional<std::string> first_failure(const std::string& report) {
  const json root = json::parse(report, nullptr, false);
  try {
    if (root.at("verdict").get<std::string>() != "fail") return std::string();
    for (const json& check : root.value("checks", json::array())) {
      if (check.value("verdict", "") == "fail")
        return concat({check.value("id", ""), ": ", check.value("evidence", "")});
    }
  } catch (const json::exception&) {  // of other types
    return std::nullopt;
  }
  return "its check failed";
}

std::vector<std::string> words_of(std::span<const std::string> nodes, HealthCheck kind) {
  const std::vector<std::string_view> names(nodes.begin(), nodes.end());
  const std::string count = std::to_string(nodes.size());
  std::vector<std::string> words = {"srun",
                                    "--overlap",
                                    "--label",
                                    "--quiet",
                                    "--mpi=none",
                                    "--aml-dist=none",
                                    "--input=none",
                                    "--export=ALL",
                                    "--cpu-bind=none",
                                    "--kill-on-bad-exit=0",
                                    "--cpus-per-task=1",
                                    "--mem=0",
                                    "--distribution=block",
                                    "--ntasks-per-node=1",
                                    "--nodes=" + count,
                                    "--ntasks=" + count,
                                    "--nodelist=" + text::join(names, ","),
                                    "/bin/sh",
                                    "-c",
                                    script,
                                    "/proc/self/exe"};
  std::error_code ignored;
  words.back() = std::filesystem::read_symlink("/proc/self/exe", ignored).string();
  if (kind == HealthCheck::bench) words.emplace_back("--bench");
  return words;
}

}  // namespace

NodeHealth parse_health(std::string_view output, std::span<const std::string> nodes) {
  std::map<std::string, std::pair<std::string, std::string>> tasks;  // by their label: node, report
  for (const std::string_view line : text::split(output, '\n')) {
    const auto colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    auto& [node, report] = tasks[std::string(text::trim(line.substr(0, colon)))];
    const std::string_view words = line.substr(std::min(colon + 2, line.size()));
    if (node.empty() && words.starts_with("node ")) node = words.substr(5);
    else report += concat({words, "\n"});
  }
  NodeHealth health;
  for (const std::string& name : nodes) {
    const auto task = std::ranges::find_if(tasks, [&](const auto& each) { return each.second.first == name; });
    const auto failure = task == tasks.end() ? std::nullopt : first_failure(task->second.second);
    if (!failure) health.silent.push_back(name);
    else if (!failure->empty()) health.sick.emplace(name, *failure);
  }
  return health;
}

NodeHealth check_nodes(std::span<const std::string> nodes, HealthCheck kind, const std::string& folder) {
  constexpr std::chrono::seconds quick{30};
  constexpr std::chrono::seconds bench{300};
  constexpr std::chrono::seconds to_end{3};
  if (kind == HealthCheck::off || nodes.empty()) return {};
  const std::string path = folder + "/check";
  const FileDescriptor output(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  const FileDescriptor nowhere(::open("/dev/null", O_RDWR | O_CLOEXEC));
  auto srun = ChildProcess::start({.words = words_of(nodes, kind),
                                   .standard_input = nowhere.get(),
                                   .standard_output = output.get(),
                                   .standard_error = nowhere.get(),
                                   .own_group = true});
  if (!srun) return {.silent = {nodes.begin(), nodes.end()}};
  if (!srun->wait_until(Clock::now() + (kind == HealthCheck::bench ? bench : quick))) {
    srun->kill(SIGTERM);
    if (!srun->wait_until(Clock::now() + to_end)) srun->kill(SIGKILL);
  }
  return parse_health(read_file_start(path, longest_output), nodes);
}

}  // namespace amldist::keep
