// Frameworks that find rank 0 themselves use the first host of one of Slurm's lists, each with its own reading of such
// lists.
#include "aml_dist/doctor/rules.hpp"
#include "base/net/ipv4.hpp"
#include "base/text/hostlist.hpp"
#include "base/text/text.hpp"

namespace amldist::doctor {

using text::concat;

std::string port_of_job(const TaskContext& here) {
  const std::string job = here.text("SLURM_JOB_ID");
  const std::string last_four = job.substr(job.size() < 4 ? 0 : job.size() - 4);
  return std::to_string(text::to_number(last_four, 9999).value_or(0) + 15000);
}

std::optional<Problem> first_host_problem(const TaskContext& here, std::string_view framework, std::string_view list,
                                          const std::string& host, std::string_view remedy) {
  const auto& known = here.machine().host_of_rank_zero;
  const auto step = Hostlist::parse(here.text("SLURM_STEP_NODELIST"));
  const std::string first = known ? *known : step && !step->empty() ? step->at(0) : host;
  if (first != host) {
    return Problem{Outcome::hangs,
                   concat({framework, " reads ", text::quote(host), " out of ", list, "=", text::quote(here.text(list)),
                           ", but rank 0 is on ", text::quote(first)}),
                   std::string(remedy)};
  }
  // The list is sorted, and does not show the order in the host file.
  if (!known && here.nodes() > 1 && here.text("SLURM_DISTRIBUTION").starts_with("arbitrary")) {
    return Problem{Outcome::hangs,
                   concat({framework, " takes ", text::quote(host),
                           " for the host of rank 0, which a host file need not name first"}),
                   std::string(remedy)};
  }
  return std::nullopt;
}

std::optional<Problem> foreign_master(const TaskContext& here, const std::string& address) {
  const std::string master = Ipv4::parse(address) ? address : address.substr(0, address.find('.'));
  const std::string own = here.text("SLURMD_NODENAME");
  const bool on_first = here.text("NODE_RANK") == "0" || here.text("RANK") == "0";
  const std::string first = here.machine().host_of_rank_zero.value_or(on_first ? own : std::string());
  const bool is_known = !first.empty() || (!on_first && !own.empty() && master == own);
  const auto nodes = Hostlist::parse(here.text("SLURM_STEP_NODELIST"));
  if (!is_known || master == first || !nodes) return std::nullopt;
  for (std::uint32_t i = 0; i < nodes->size(); ++i) {
    if (nodes->at(i) != master) continue;
    return Problem{Outcome::hangs,
                   concat({"the master is ", address, ", but rank 0 is on ", first.empty() ? "another node" : first,
                           ": nobody listens there"}),
                   "unset MASTER_ADDR"};
  }
  return std::nullopt;
}

}  // namespace amldist::doctor
