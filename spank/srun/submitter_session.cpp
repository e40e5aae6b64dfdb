#include "spank/srun/submitter_session.hpp"

#include <cstdlib>
#include <exception>

#include "base/os/environment.hpp"
#include "launch/frameworks/task_environment.hpp"

namespace amldist::spank {

void SubmitterSession::take_option(std::string_view text) {
  const bool is_first = !request.option;
  if (!is_first && !option_is_inherited && text != option_text) mentions_differ = true;
  option_is_inherited = is_first && inherited_option() == text;
  request.option = launch::parse_spec(text);
  option_text = text;
}

void SubmitterSession::take_variables(bool is_srun) {
  ::unsetenv(sent_option_variable);
  for (const char* const name : {option_variable, job_option_variable}) {
    const bool is_open = !request.option;
    const auto value = own_variable(name);
    request.take_variable(name, value);
    if (is_open && request.option) option_text = *value;
  }
  if (!request.option || !*request.option || request.policy.disabled) return;
  if (!is_srun) ::setenv(job_option_variable, option_text.c_str(), 1);
  else if (request.variable == job_option_variable) ::setenv(sent_option_variable, option_text.c_str(), 1);
}

void forget_outer_tasks_per_node() noexcept {
  try {
    if (launch::has_outer_tasks_per_node(own_variable)) ::unsetenv("SLURM_NTASKS_PER_NODE");
  } catch (const std::exception&) {  // out of memory: srun warns
  }
}

std::optional<std::string> inherited_option() {
  constexpr std::string_view ending = "SPANK_OPTION_aml_dist_aml_dist";
  for (const std::string& variable : all_own_variables()) {
    const std::string_view entry = variable;
    const auto equals = entry.find('=');
    if (equals != std::string_view::npos && entry.substr(0, equals).ends_with(ending)) {
      return std::string(entry.substr(equals + 1));
    }
  }
  return std::nullopt;
}

}  // namespace amldist::spank
