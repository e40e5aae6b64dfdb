#include "aml_run/plan.hpp"
#include "base/text/text.hpp"
#include "shared/programs.hpp"

namespace amldist::run {

using text::concat;

std::vector<std::string> RayCluster::words() const {
  std::vector<std::string> out = {commands::sibling_program("aml-dist"), "ray"};
  if (dashboard) out.push_back(dashboard->empty() ? std::string("--dashboard") : concat({"--dashboard=", *dashboard}));
  if (!head_arguments.empty()) out.push_back(concat({"--head-args=", head_arguments}));
  if (!worker_arguments.empty()) out.push_back(concat({"--worker-args=", worker_arguments}));
  out.emplace_back("--");
  return out;
}

}  // namespace amldist::run
