#include "aml_dist/common/side_step.hpp"

#include <cstdlib>
#include <string_view>

#include "base/os/environment.hpp"
#include "base/text/hostlist.hpp"
#include "base/text/text.hpp"

namespace amldist::tools {
namespace {

void forget_own_job() {
  for (const std::string& each : all_own_variables()) {
    const std::string name = each.substr(0, each.find('='));
    const bool shapes_step = name.starts_with("SLURM_") && name != "SLURM_CONF";
    if (shapes_step || name == "AMLDIST_OPTION") ::unsetenv(name.c_str());
  }
}

}  // namespace

Result<std::map<std::string, std::string>> running_steps(const std::string& job) {
  constexpr std::uint64_t most_number = 4'000'000'000;
  const auto list = commands::run_program({"squeue", "--steps", "--noheader", "--format=%i|%N", "--jobs=" + job});
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
                                      const std::vector<std::string>& arguments, std::size_t most) {
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
                                    "--aml-dist=none",
                                    commands::sibling_program("aml-dist")};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return commands::run_program(words, {}, most);
}

std::string last_line_of(const std::string& text) {
  const std::string_view trimmed = text::trim(text);
  return std::string(trimmed.substr(trimmed.rfind('\n') + 1));
}

}  // namespace amldist::tools
