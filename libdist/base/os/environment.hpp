// This process's environment. Nothing else in the product calls getenv() or reads environ, so that whoever reads a
// variable takes an EnvironmentReader, and a test can give it another environment.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/environment.hpp"

namespace amldist {

/// One variable; nullopt: not set. Reads with getenv(): no other thread may change the environment meanwhile.
[[nodiscard]] std::optional<std::string> own_variable(std::string_view name);

/// A reader of this process's environment as it is at each call.
[[nodiscard]] EnvironmentReader process_environment();

/// All variables as "NAME=VALUE", in the order of environ.
[[nodiscard]] std::vector<std::string> all_own_variables();

}  // namespace amldist
