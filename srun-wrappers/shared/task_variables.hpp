// $RANK, ${LOCAL_RANK}, $MASTER_ADDR ... in the arguments of a command, expanded where the task runs.
//
//   --local_rank=$LOCAL_RANK     expanded: the name is one of those that aml-dist sets
//   $HOME $RANKS ${RANK:-0} $$   left exactly as they are: this is no shell
#pragma once

#include <string>
#include <string_view>

#include "base/text/environment.hpp"
#include "base/text/result.hpp"

namespace amldist::commands {

/// Whether `argument` refers to a variable that is expanded: one of amldist::task_variables().
[[nodiscard]] bool mentions_task_variable(std::string_view argument);
/// Whether `text` refers to this variable, as $NAME or ${NAME}.
[[nodiscard]] bool mentions(std::string_view text, std::string_view name);

/// `argument` with the references replaced; every other byte is unchanged. Errors: not_found, a variable that this kind
/// of job does not set.
[[nodiscard]] Result<std::string> expand_task_variables(std::string_view argument,
                                                        const EnvironmentReader& environment);

}  // namespace amldist::commands
