#include "shared/terminal.hpp"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/os/environment.hpp"
#include "base/text/hex.hpp"
#include "base/text/text.hpp"
#include "shared/exit_status.hpp"

namespace amldist::commands {
namespace {

std::string_view escape_of(Tone tone) {
  switch (tone) {
    case Tone::good:
      return "\033[32m";
    case Tone::bad:
      return "\033[31m";
    case Tone::faint:
      return "\033[2m";
    case Tone::plain:
      break;
  }
  return {};
}

std::string without_controls(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte != 0x7f) {
      out += c;
    } else {
      out += "\\x";
      append_hex(out, byte);
    }
  }
  return out;
}

}  // namespace

bool wants_colour(int descriptor) {
  const bool refused = !own_variable("NO_COLOR").value_or("").empty();  // no-color.org: set and not empty
  const bool dumb = own_variable("TERM").value_or("dumb") == "dumb";
  return ::isatty(descriptor) == 1 && !dumb && !refused;
}

int print(std::string_view text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  return std::fflush(stdout) == 0 && written ? exit_done : exit_failed;
}

void say(std::string_view sentence, Tone tone) {
  const std::string_view escape = wants_colour(STDERR_FILENO) ? escape_of(tone) : std::string_view();
  const std::string line =
      text::concat({escape, "aml-dist: ", without_controls(sentence), escape.empty() ? "" : "\033[0m", "\n"});
  std::fwrite(line.data(), 1, line.size(), stderr);
}

int fail(const Error& error) {
  say(error.message, Tone::bad);
  return exit_status_of(error.code);
}

int fail_without_slurm(std::string_view sentence) {
  say(sentence, Tone::bad);
  return exit_no_slurm;
}

}  // namespace amldist::commands
