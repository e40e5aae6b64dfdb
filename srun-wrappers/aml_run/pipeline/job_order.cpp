#include "aml_run/pipeline/job_order.hpp"

#include <algorithm>

#include "base/text/text.hpp"

namespace amldist::run {

Result<std::vector<std::size_t>> order_jobs(const std::vector<NamedJob>& jobs) {
  std::vector<std::size_t> order;
  std::set<std::string> done;
  while (order.size() < jobs.size()) {
    const std::size_t before = order.size();
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      const bool is_ready =
          !done.contains(jobs[i].name) &&
          std::ranges::all_of(jobs[i].needs, [&](const std::string& need) { return done.contains(need); });
      if (!is_ready) continue;
      order.push_back(i);
      done.insert(jobs[i].name);
    }
    if (order.size() > before) continue;
    std::vector<std::string_view> left;
    for (const NamedJob& job : jobs) {
      if (!done.contains(job.name)) left.emplace_back(job.name);
    }
    return Error{Errc::invalid_argument,
                 text::concat({"these jobs depend on each other in a cycle, or on jobs that do: ", text::join(left)})};
  }
  return order;
}

}  // namespace amldist::run
