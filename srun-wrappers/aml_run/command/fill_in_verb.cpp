#include "aml_run/command/fill_in_verb.hpp"

#include <cstdio>

#include "aml_run/expressions.hpp"
#include "base/text/text.hpp"
#include "shared/exit_status.hpp"
#include "shared/terminal.hpp"

namespace amldist::run {

std::optional<int> fill_in_verb(const std::vector<std::string>& words) {
  if (words.size() < 2) return std::nullopt;
  const bool literally = words[0] == "--fill-in-literally";
  if (!literally && words[0] != "--fill-in") return std::nullopt;
  Values values;
  for (std::size_t i = 2; i < words.size(); ++i) {
    const auto equals = words[i].find('=');
    if (equals == std::string::npos) {
      return commands::fail({Errc::invalid_argument, text::concat({words[0], ": write EXPRESSION=VALUE"})});
    }
    values.insert_or_assign(words[i].substr(0, equals), words[i].substr(equals + 1));
  }
  const auto filled = fill_in(words[1], values, literally);
  if (!filled) return commands::fail(filled.error());
  std::fwrite(filled->data(), 1, filled->size(), stdout);
  return std::fflush(stdout) == 0 ? commands::exit_done : commands::exit_failed;
}

}  // namespace amldist::run
