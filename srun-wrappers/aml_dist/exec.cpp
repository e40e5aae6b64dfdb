#include "aml_dist/exec.hpp"

#include "base/os/child_process.hpp"
#include "base/os/environment.hpp"
#include "base/text/text.hpp"
#include "launch/frameworks/task_environment.hpp"
#include "shared/exit_status.hpp"
#include "shared/programs.hpp"
#include "shared/task_variables.hpp"
#include "shared/terminal.hpp"

namespace amldist::tools {
namespace {

constexpr const char* help =
    "Example:\n"
    "  srun --aml-dist=pytorch aml-dist exec -- python train.py --rank '$RANK'\n\n"
    "aml-dist exec [--] COMMAND [ARGUMENT]...\n\n"
    "Replaces $NAME and ${NAME} in the words of COMMAND, if NAME is one of these, and\n"
    "starts it. Every other byte stays as it is: no shell is involved.\n\n";

int print_help() {
  std::fputs(help, stdout);
  for (const std::string_view name : launch::task_variables()) {
    std::printf("  %.*s\n", static_cast<int>(name.size()), name.data());
  }
  std::fputs("\nExit status: that of COMMAND; 2 wrong usage, or a variable is not set;\n126 and 127 as in a shell.\n",
             stdout);
  return commands::exit_done;
}

}  // namespace

int exec_command(std::vector<std::string> words) {
  if (!words.empty() && (words.front() == "--help" || words.front() == "-h")) return print_help();
  if (!words.empty() && words.front() == "--") words.erase(words.begin());
  if (words.empty()) {
    commands::say("exec: the command is missing: write aml-dist exec -- COMMAND");
    return commands::exit_usage;
  }
  for (std::string& word : words) {
    auto expanded = commands::expand_task_variables(word, own_variable);
    if (!expanded) {
      commands::say(text::concat({"exec: ", expanded.error().message}));
      return commands::exit_usage;
    }
    word = std::move(*expanded);
  }
  const Error error = become(words);
  commands::say(text::concat({"exec: ", error.message}));
  return error.code == Errc::not_found ? 127 : 126;
}

}  // namespace amldist::tools
