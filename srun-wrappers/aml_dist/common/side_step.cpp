#include "aml_dist/common/side_step.hpp"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "base/os/environment.hpp"
#include "base/text/hostlist.hpp"
#include "base/text/text.hpp"

namespace amldist::tools {
namespace {

constexpr std::uint64_t most_number = 4'000'000'000;

void forget_own_job() {
  for (const std::string& each : all_own_variables()) {
    const std::string name = each.substr(0, each.find('='));
    const bool shapes_step = name.starts_with("SLURM_") && name != "SLURM_CONF";
    if (shapes_step || name == "AMLDIST_OPTION") ::unsetenv(name.c_str());
  }
}

}  // namespace

Result<QueuedJob> find_job(const std::string& name, bool by_number) {
  const auto answer = commands::run_program({"squeue", "--noheader", "--format=%A|%F|%K|%U|%u", "--jobs=" + name});
  if (!answer) return answer.error();
  std::vector<QueuedJob> jobs;
  for (const std::string_view line : text::split(answer->out, '\n')) {
    const auto fields = text::split(line, '|');
    if (fields.size() != 5) continue;
    const bool is_task = text::to_number(fields[2], most_number).has_value();
    jobs.push_back({.number = std::string(fields[0]),
                    .name = is_task ? text::concat({fields[1], "_", fields[2]}) : std::string(fields[0]),
                    .user_id = std::string(fields[3]),
                    .user = std::string(fields[4])});
  }
  const auto own = std::ranges::find(jobs, name, &QueuedJob::number);
  if (by_number && own != jobs.end()) return *own;
  if (jobs.size() == 1) return jobs.front();
  if (!jobs.empty())
    return Error{Errc::invalid_argument,
                 text::concat({name, " is several jobs: name one, such as ", jobs.front().name})};
  const bool is_unknown = answer->status == 0 || answer->err.find("Invalid job id") != std::string::npos;
  if (is_unknown) return Error{Errc::not_found, text::concat({"job ", name, " does not run: see squeue"})};
  return Error{Errc::unavailable, text::concat({"squeue does not answer: ", last_line_of(answer->err)})};
}

Result<std::map<std::string, std::string>> running_steps(const QueuedJob& job) {
  const auto list = commands::run_program({"squeue", "--steps", "--noheader", "--format=%i|%N", "--jobs=" + job.name});
  if (!list) return list.error();
  std::map<std::string, std::string> steps;
  for (const std::string_view line : text::split(list->out, '\n')) {
    const auto bar = line.find('|');
    if (bar == std::string_view::npos) continue;
    const std::string_view id = text::trim(line.substr(0, bar));
    const std::string_view number = id.substr(id.rfind('.') + 1);
    if (text::to_number(number, most_number))
      steps.emplace(std::string(number), std::string(text::trim(line.substr(bar + 1))));
  }
  return steps;
}

Result<commands::Finished> run_beside(const std::string& step, const std::string& hosts,
                                      const std::vector<std::string>& arguments, std::size_t most, bool has_labels) {
  const auto nodes = Hostlist::parse(hosts);
  if (!nodes) return nodes.error();
  forget_own_job();
  const std::string count = std::to_string(nodes->size());
  std::vector<std::string> words = {"srun",
                                    "--jobid=" + step.substr(0, step.find('.')),
                                    "--overlap",
                                    "--nodes=" + count,
                                    "--ntasks=" + count,
                                    "--ntasks-per-node=1",
                                    "--nodelist=" + hosts,
                                    "--cpus-per-task=1",
                                    "--cpu-bind=none",
                                    "--mem=0",
                                    "--gres=none",
                                    "--mpi=none",
                                    "--input=none",
                                    "--quiet",
                                    "--aml-dist=none"};
  if (has_labels) words.emplace_back("--label");
  words.push_back(commands::sibling_program("aml-dist"));
  words.insert(words.end(), arguments.begin(), arguments.end());
  return commands::run_program(words, {}, most);
}

std::string last_line_of(const std::string& text) {
  const std::string_view trimmed = text::trim(text);
  return std::string(trimmed.substr(trimmed.rfind('\n') + 1));
}

}  // namespace amldist::tools
