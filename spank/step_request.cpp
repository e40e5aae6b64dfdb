#include "spank/step_request.hpp"

namespace amldist::spank {

Result<Spec> StepRequest::spec() const { return option ? *option : Result<Spec>(Spec{}); }

Result<Spec> StepRequest::spec_in_partition(std::string_view partition) const {
  if (option) return *option;
  Spec spec;
  if (const auto found = policy.default_kind.find(partition); found != policy.default_kind.end()) {
    spec.kind = found->second;
  }
  return spec;
}

}  // namespace amldist::spank
