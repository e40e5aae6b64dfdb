#include "aml_dist/check/site_checks.hpp"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <thread>

#include "aml_dist/check/site_verdict.hpp"
#include "base/os/child_process.hpp"
#include "base/os/process_tree.hpp"
#include "base/text/text.hpp"
#include "base/time/clock.hpp"
#include "launch/site/plugstack.hpp"

namespace amldist::tools {
namespace {

using fabric::Check;
using fabric::Verdict;
using launch::SiteCheck;
using launch::VerdictFormat;
using text::concat;

constexpr std::size_t longest_tool_output = std::size_t{1} << 20;

Check ask_tool(const std::string& name, const SiteCheck& site, std::chrono::seconds longest) {
  const std::string id = concat({"site.", name});
  if (site.needs_root && ::geteuid() != 0) return {id, Verdict::skip, "only root can run it", ""};
  const auto limit = std::min(longest, std::chrono::seconds(site.seconds));
  const auto errors = site.format == VerdictFormat::exit ? ErrorStream::with_output : ErrorStream::dropped;
  const auto output =
      output_of({.words = site.words, .own_group = true}, Clock::now() + limit, longest_tool_output, errors);
  if (output) return read_site_verdict(name, site, *output);
  const bool is_late = output.error().code == Errc::timeout;
  return {id, Verdict::unknown,
          is_late ? concat({site.words.front(), " did not end within ", std::to_string(limit.count()), " s"})
                  : concat({site.words.front(), ": ", output.error().message}),
          "run it by hand on the node"};
}

/// Ends the processes that the tools have left, also those that left their group: they have become this process's
/// children.
void end_what_is_left() {
  constexpr timespec pause = {0, 2'000'000};
  constexpr int most_rounds = 100;  // of one that keeps forking
  for (int round = 0; round < most_rounds && !descendants().empty(); ++round) {
    signal_descendants(SIGKILL);
    static_cast<void>(::nanosleep(&pause, nullptr));
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    }
  }
}

}  // namespace

launch::SitePolicy read_site_policy(const std::string& file) {
  std::vector<std::string> complaints;
  if (!file.empty()) {
    const std::string argument = concat({"config=", std::filesystem::absolute(file).string()});
    const std::string_view words = argument;
    return launch::load_policy({&words, 1}, complaints);
  }
  for (const launch::PlugstackFile& each : launch::read_plugstack(launch::plugstack_path())) {
    if (each.lines.empty()) continue;
    const std::vector<std::string>& arguments = each.lines.front().arguments;
    const std::vector<std::string_view> words(arguments.begin(), arguments.end());
    return launch::load_policy(words, complaints);
  }
  return launch::SitePolicy::defaults();
}

std::vector<Check> run_site_checks(const launch::SitePolicy& policy, std::chrono::seconds longest) {
  if (policy.site_checks.empty()) return {};
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  std::vector<Check> checks(policy.site_checks.size());
  std::vector<std::thread> threads;
  std::size_t index = 0;
  for (const auto& each : policy.site_checks) {
    Check& check = checks[index++];
    threads.emplace_back([&each, &check, longest] { check = ask_tool(each.first, each.second, longest); });
  }
  for (std::thread& each : threads) each.join();
  end_what_is_left();
  ::prctl(PR_SET_CHILD_SUBREAPER, 0);
  return checks;
}

}  // namespace amldist::tools
