// The lines of --help texts: at most 80 columns.
#pragma once

#include <string>
#include <string_view>

#include "base/text/text.hpp"

namespace amldist::text {

inline constexpr std::size_t help_columns = 80;

/// "  HEAD    WORDS": the words begin in `column` and are broken into lines that begin there, too.
[[nodiscard]] inline std::string help_line(std::string_view head, std::string_view words, std::size_t column) {
  std::string line = concat({"  ", head});
  line.append(line.size() + 2 <= column ? column - line.size() : 3, ' ');
  std::string out;
  std::string_view blank;
  for (const std::string_view word : split(words, ' ')) {
    if (line.size() + blank.size() + word.size() > help_columns) {
      out += concat({line.substr(0, line.find_last_not_of(' ') + 1), "\n"});
      line.assign(column, ' ');
      blank = {};
    }
    line += concat({blank, word});
    blank = " ";
  }
  return concat({out, line, "\n"});
}

}  // namespace amldist::text
