#include "spank/slurm/step_request.hpp"

#include "base/text/text.hpp"

namespace amldist::spank {
namespace {

Result<launch::Spec> parse_variable(std::string_view value) {
  if (launch::is_help(value)) {
    return Error{Errc::invalid_argument,
                 text::concat({option_variable, "=help: help is for the command line, srun --aml-dist=help"})};
  }
  auto spec = launch::parse_spec(value);
  if (!spec) return Error{spec.error().code, text::concat({option_variable, ": ", spec.error().message})};
  return spec;
}

}  // namespace

void StepRequest::take_variable(const std::optional<std::string>& value) {
  if (option || !value || value->empty()) return;
  option = parse_variable(*value);
  is_from_variable = true;
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
