#include "base/os/environment.hpp"

#include <unistd.h>

#include <cstdlib>

namespace amldist {

std::optional<std::string> own_variable(std::string_view name) {
  const char* const value = std::getenv(std::string(name).c_str());
  return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
}

EnvironmentReader process_environment() { return own_variable; }

std::vector<std::string> all_own_variables() {
  std::vector<std::string> variables;
  for (char** each = environ; each != nullptr && *each != nullptr; ++each) variables.emplace_back(*each);
  return variables;
}

}  // namespace amldist
