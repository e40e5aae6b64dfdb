// $[[ ... ]] in a component's command: a part that is left out if an optional input in it has no value.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/text/result.hpp"

namespace amldist::run {

/// `command` without the parts whose inputs have no value, and without the brackets of the others. `has_value` tells
/// for an input by name. Errors: a part that is not closed, or that is inside another one (the sentence without a
/// place).
[[nodiscard]] Result<std::string> keep_given_options(std::string_view command,
                                                     const std::function<bool(std::string_view input)>& has_value);

}  // namespace amldist::run
