#include "shared/scontrol.hpp"

#include "base/text/text.hpp"

namespace amldist::commands {

std::string_view scontrol_value(std::string_view text, std::string_view key, ValueEnd end) {
  for (std::string_view line : text::split(text, '\n')) {
    line = line.substr(0, line.find(" JobName="));  // it ends its line
    for (auto at = line.find(key); at != std::string_view::npos; at = line.find(key, at + 1)) {
      if (at != 0 && line[at - 1] != ' ') continue;
      const std::string_view value = line.substr(at + key.size());
      return end == ValueEnd::line ? value : value.substr(0, value.find(' '));
    }
  }
  return {};
}

}  // namespace amldist::commands
