// `aml-dist check` among the subcommands.
#include <memory>

#include "aml_dist/check/check.hpp"
#include "aml_dist/command.hpp"

namespace amldist::tools {

Command add_check(CLI::App& app) {
  const auto shared = std::make_shared<CheckOptions>();
  return {add_check(app, *shared), [shared] { return check(*shared); }};
}

}  // namespace amldist::tools
