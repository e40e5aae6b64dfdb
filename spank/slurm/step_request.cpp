#include "spank/slurm/step_request.hpp"

#include "base/text/text.hpp"

namespace amldist::spank {
namespace {

Result<launch::Spec> parse_variable(const char* name, std::string_view value) {
  if (launch::is_help(value)) {
    return Error{Errc::invalid_argument,
                 text::concat({name, "=help: help is for the command line, srun --aml-dist=help"})};
  }
  auto spec = launch::parse_spec(value);
  if (!spec) return Error{spec.error().code, text::concat({name, ": ", spec.error().message})};
  return spec;
}

}  // namespace

void StepRequest::take_variable(const char* name, const std::optional<std::string>& value) {
  if (option || !value || value->empty()) return;
  option = parse_variable(name, *value);
  variable = name;
}

Result<launch::Spec> StepRequest::spec() const { return option ? *option : Result<launch::Spec>(launch::Spec{}); }

Result<void> StepRequest::settings_are_usable() const {
  return policy.refusal.empty() ? Result<void>() : Error{Errc::unavailable, policy.refusal};
}

Result<launch::Spec> StepRequest::spec_in_partition(std::string_view partition) const {
  if (option) return *option;
  launch::Spec spec;
  if (const auto found = policy.default_kind.find(partition); found != policy.default_kind.end()) {
    spec.kind = found->second;
  }
  return spec;
}

}  // namespace amldist::spank
