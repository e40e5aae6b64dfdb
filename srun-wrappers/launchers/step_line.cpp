#include "launchers/step_line.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "base/os/child_process.hpp"
#include "base/os/environment.hpp"
#include "base/text/text.hpp"
#include "shared/programs.hpp"
#include "shared/shell.hpp"
#include "shared/terminal.hpp"

namespace amldist::launchers {

using text::concat;

void StepLine::set_variable(std::string name, std::string value) {
  std::erase_if(environment, [&](const auto& variable) { return variable.first == name; });
  environment.emplace_back(std::move(name), std::move(value));
}

void StepLine::add_key(std::string_view key) { option += concat({",", key}); }

std::vector<std::string> StepLine::command() const {
  if (!instead.empty()) return instead;
  std::vector<std::string> out = {"srun"};
  for (const auto& each : srun.all()) out.push_back(each.to_word());
  // A job that was submitted with --export passes less than its environment on.
  if (!environment.empty() && !srun.has("export")) out.emplace_back("--export=ALL");
  if (!option.empty()) out.push_back(concat({"--aml-dist=", option}));
  if (expand) {
    out.push_back(commands::sibling_program("aml-dist"));
    out.insert(out.end(), {"exec", "--"});
  }
  out.insert(out.end(), words.begin(), words.end());
  return out;
}

std::string StepLine::to_line() const {
  std::string out;
  for (const auto& [name, value] : environment) out += concat({name, "=", shell::quote(value), " "});
  return out + shell::join(command());
}

int start(const StepLine& line) {
  const auto words = line.command();
  if (!commands::find_program(words.front()) && words.front().find('/') == std::string::npos) {
    const std::string sentence = concat({words.front(), " is not installed here (not in PATH)"});
    return line.instead.empty() ? commands::fail_without_slurm(sentence) : commands::fail({Errc::not_found, sentence});
  }
  for (const std::string& folder : line.folders) {
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (error) {
      return commands::fail(
          {Errc::not_found, concat({"the folder ", text::quote(folder), " cannot be made: ", error.message()})});
    }
  }
  for (const std::string& sentence : line.notes) commands::say(sentence);
  for (const auto& [name, value] : line.environment) ::setenv(name.c_str(), value.c_str(), 1);
  return commands::fail(become(words));
}

std::string python() {
  if (auto own = own_variable("PYTHON_EXEC"); own && !own->empty()) return *own;
  return !commands::find_program("python") && commands::find_program("python3") ? "python3" : "python";
}

}  // namespace amldist::launchers
