// What can be told of a task's program before it is executed.
#pragma once

#include <string>
#include <string_view>

#include "base/text/environment.hpp"

namespace amldist::spank {

/// The file that execvp(3) would execute for the word `program`; empty: none.
[[nodiscard]] std::string find_program(const std::string& program, const EnvironmentReader& environment);

/// Why nothing that LD_PRELOAD names would be loaded into this program, as in "is statically linked"; empty: it would
/// be, or nobody can tell (a script, a file of another kind).
[[nodiscard]] std::string_view why_not_preloaded(const std::string& path);

}  // namespace amldist::spank
