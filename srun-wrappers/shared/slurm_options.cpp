#include "shared/slurm_options.hpp"

#include <algorithm>
#include <array>

#include "base/text/text.hpp"

namespace amldist::commands {
namespace {

using text::concat;
using A = Argument;
using S = Scope;

/// From the help texts of sbatch 22.05 to 26.05. --wait, --wrap, --parsable, --test-only and --help are missing:
/// aml-run has its own, or they would change sbatch's answer.
constexpr std::array options = {
    SlurmOption{"account", 'A', A::required, S::job},
    SlurmOption{"acctg-freq"},
    SlurmOption{"array", 'a', A::required, S::job},
    SlurmOption{"batch", '\0', A::required, S::job},
    SlurmOption{"bb"},
    SlurmOption{"bbf"},
    SlurmOption{"begin", 'b', A::required, S::job},
    SlurmOption{"chdir", 'D'},
    SlurmOption{"cluster-constraint", '\0', A::required, S::job},
    SlurmOption{"clusters", 'M', A::required, S::job},
    SlurmOption{"comment"},
    SlurmOption{"constraint", 'C'},
    SlurmOption{"container"},
    SlurmOption{"container-id"},
    SlurmOption{"contiguous", '\0', A::none},
    SlurmOption{"core-spec", 'S'},
    SlurmOption{"cores-per-socket"},
    SlurmOption{"cpu-freq"},
    SlurmOption{"cpus-per-gpu"},
    SlurmOption{"cpus-per-task", 'c'},
    SlurmOption{"deadline", '\0', A::required, S::job},
    SlurmOption{"delay-boot", '\0', A::required, S::job},
    SlurmOption{"dependency", 'd', A::required, S::job},
    SlurmOption{"distribution", 'm'},
    SlurmOption{"error", 'e'},
    SlurmOption{"exclude", 'x'},
    SlurmOption{"exclusive", '\0', A::optional},
    SlurmOption{"export"},
    SlurmOption{"export-file", '\0', A::required, S::job},
    SlurmOption{"extra-node-info", 'B'},
    SlurmOption{"get-user-env", '\0', A::optional, S::job},
    SlurmOption{"gid", '\0', A::required, S::job},
    SlurmOption{"gpu-bind"},
    SlurmOption{"gpu-freq"},
    SlurmOption{"gpus", 'G'},
    SlurmOption{"gpus-per-node"},
    SlurmOption{"gpus-per-socket"},
    SlurmOption{"gpus-per-task"},
    SlurmOption{"gres"},
    SlurmOption{"gres-flags"},
    SlurmOption{"hint"},
    SlurmOption{"hold", 'H', A::none, S::job},
    SlurmOption{"ignore-pbs", '\0', A::none, S::job},
    SlurmOption{"input", 'i'},
    SlurmOption{"job-name", 'J'},
    SlurmOption{"kill-on-invalid-dep", '\0', A::required, S::job},
    SlurmOption{"licenses", 'L', A::required, S::job},
    SlurmOption{"mail-type", '\0', A::required, S::job},
    SlurmOption{"mail-user", '\0', A::required, S::job},
    SlurmOption{"mcs-label", '\0', A::required, S::job},
    SlurmOption{"mem"},
    SlurmOption{"mem-bind"},
    SlurmOption{"mem-per-cpu"},
    SlurmOption{"mem-per-gpu"},
    SlurmOption{"mincpus", '\0', A::required, S::job},
    SlurmOption{"network"},
    SlurmOption{"nice", '\0', A::optional, S::job},
    SlurmOption{"no-kill", 'k', A::optional},
    SlurmOption{"no-requeue", '\0', A::none, S::job},
    SlurmOption{"nodefile", 'F', A::required, S::job},
    SlurmOption{"nodelist", 'w'},
    SlurmOption{"nodes", 'N'},
    SlurmOption{"ntasks", 'n'},
    SlurmOption{"ntasks-per-core"},
    SlurmOption{"ntasks-per-gpu"},
    SlurmOption{"ntasks-per-node"},
    SlurmOption{"ntasks-per-socket"},
    SlurmOption{"open-mode"},
    SlurmOption{"output", 'o'},
    SlurmOption{"overcommit", 'O', A::none},
    SlurmOption{"oversubscribe", 's', A::none},
    SlurmOption{"partition", 'p', A::required, S::job},
    SlurmOption{"power", '\0', A::required, S::job},
    SlurmOption{"prefer", '\0', A::required, S::job},
    SlurmOption{"priority", '\0', A::required, S::job},
    SlurmOption{"profile"},
    SlurmOption{"propagate", '\0', A::optional},
    SlurmOption{"qos", 'q', A::required, S::job},
    SlurmOption{"quiet", 'Q', A::none},
    SlurmOption{"reboot", '\0', A::none, S::job},
    SlurmOption{"requeue", '\0', A::none, S::job},
    SlurmOption{"reservation", '\0', A::required, S::job},
    SlurmOption{"resv-ports", '\0', A::optional},
    SlurmOption{"segment", '\0', A::required, S::job},
    SlurmOption{"signal", '\0', A::required, S::job},
    SlurmOption{"sockets-per-node"},
    SlurmOption{"spread-job", '\0', A::none, S::job},
    SlurmOption{"stepmgr", '\0', A::none, S::job},
    SlurmOption{"switches", '\0', A::required, S::job},
    SlurmOption{"thread-spec"},
    SlurmOption{"threads-per-core"},
    SlurmOption{"time", 't'},
    SlurmOption{"time-min", '\0', A::required, S::job},
    SlurmOption{"tmp", '\0', A::required, S::job},
    SlurmOption{"tres-bind"},
    SlurmOption{"tres-per-task"},
    SlurmOption{"uid", '\0', A::required, S::job},
    SlurmOption{"use-min-nodes", '\0', A::none, S::job},
    SlurmOption{"verbose", 'v', A::none},
    SlurmOption{"wait-all-nodes", '\0', A::required, S::job},
    SlurmOption{"wckey", '\0', A::required, S::job},
};

/// sbatch's other names for the same thing.
constexpr std::array<std::pair<std::string_view, std::string_view>, 5> other_names = {{
    {"tasks-per-node", "ntasks-per-node"},
    {"tasks", "ntasks"},
    {"workdir", "chdir"},
    {"share", "oversubscribe"},
    {"licence", "licenses"},
}};

}  // namespace

std::string GivenOption::to_word() const { return value ? concat({"--", name, "=", *value}) : concat({"--", name}); }

void SlurmOptions::set(std::string_view name, std::optional<std::string> value) {
  erase(name);
  options_.push_back({std::string(name), std::move(value)});
}

void SlurmOptions::erase(std::string_view name) {
  std::erase_if(options_, [&](const GivenOption& option) { return option.name == name; });
}

void SlurmOptions::merge(const SlurmOptions& others) {
  for (const GivenOption& option : others.options_) {
    const auto same = std::ranges::find(options_, option.name, &GivenOption::name);
    if (same != options_.end()) same->value = option.value;
    else options_.push_back(option);
  }
}

const GivenOption* SlurmOptions::find(std::string_view name) const {
  const auto found = std::ranges::find(options_, name, &GivenOption::name);
  return found == options_.end() ? nullptr : &*found;
}

std::string_view SlurmOptions::value_of(std::string_view name) const {
  const GivenOption* const option = find(name);
  return option != nullptr && option->value ? std::string_view(*option->value) : std::string_view();
}

std::span<const SlurmOption> slurm_options() noexcept { return options; }

const SlurmOption* find_slurm_option(std::string_view name) noexcept {
  const auto* const other = std::ranges::find(other_names, name, [](const auto& names) { return names.first; });
  if (other != other_names.end()) name = other->second;
  const auto* const found = std::ranges::find(options, name, &SlurmOption::name);
  return found == options.end() ? nullptr : found;
}

std::vector<std::string_view> other_names_of(const SlurmOption& option) {
  std::vector<std::string_view> out;
  for (const auto& [other, name] : other_names) {
    if (name == option.name) out.push_back(other);
  }
  return out;
}

}  // namespace amldist::commands
