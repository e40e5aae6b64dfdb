// Reads what scontrol prints.
#pragma once

#include <string_view>

namespace amldist::commands {

enum class ValueEnd { blank, line };

/// The value of "KEY=VALUE" in what `scontrol show` prints of one job (without -o), node or step: up to the next blank,
/// or to the end of its line. `key`: with '='. Empty if it is not there. A job's name, which may have blanks and '=',
/// is passed over.
[[nodiscard]] std::string_view scontrol_value(std::string_view text, std::string_view key,
                                              ValueEnd end = ValueEnd::blank);

}  // namespace amldist::commands
