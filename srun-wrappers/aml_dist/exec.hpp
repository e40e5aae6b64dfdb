// `aml-dist exec`: the variables of a task in the arguments of its command, without a shell.
#pragma once

#include <string>
#include <vector>

namespace amldist::tools {

/// `words` follow "exec": an optional "--" and the command. Becomes the command, or returns the exit status: 2 for a
/// wrong call or a variable that is not set, 127 or 126 like a shell for a program that does not exist or cannot run.
int exec_command(std::vector<std::string> words);

}  // namespace amldist::tools
