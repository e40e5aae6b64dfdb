// This process's environment. Nothing else in the product calls getenv() or reads environ: code that reads a variable
// takes an EnvironmentReader, so that a test can pass another environment.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/environment.hpp"

namespace amldist {

/// One variable; nullopt if it is not set. Calls getenv(): no other thread may change the environment meanwhile.
[[nodiscard]] std::optional<std::string> own_variable(std::string_view name);

/// A reader of this process's environment at the time of each call.
[[nodiscard]] EnvironmentReader process_environment();

/// All variables as "NAME=VALUE", in the order of environ.
[[nodiscard]] std::vector<std::string> all_own_variables();

}  // namespace amldist
