#include "aml_dist/ray/program.hpp"

#include <chrono>

#include "base/os/child_process.hpp"
#include "base/os/whole_file.hpp"
#include "base/text/text.hpp"
#include "shared/programs.hpp"

namespace amldist::ray {
namespace {

using text::concat;

/// "2.60.0 3.11.2" or "ray, version 2.60.0"; empty: it does not say.
std::string answer_of(std::vector<std::string> words) {
  constexpr auto patience = std::chrono::seconds(120);  // a cold network file system
  constexpr std::size_t most = 4096;
  const auto output = output_of({.words = std::move(words)}, Clock::now() + patience, most);
  if (!output || output->status != 0) return {};
  const std::string_view all = output->text;
  const auto last = text::trim(all.substr(0, all.find_last_not_of('\n') + 1));
  return std::string(last.substr(last.find('\n') == std::string_view::npos ? 0 : last.rfind('\n') + 1));
}

std::string ask_python(const std::string& path) {
  const std::string first = first_line_of(path);
  if (!first.starts_with("#!/") || first.find("python") == std::string::npos || first.find(' ') != std::string::npos) {
    return {};
  }
  return answer_of({first.substr(2), "-c",
                    "import importlib.metadata as m, sys; print(m.version('ray'), '%d.%d.%d' % sys.version_info[:3])"});
}

bool is_version(std::string_view text) {
  return !text.empty() && text.front() >= '0' && text.front() <= '9' && text.size() < 40;
}

/// The first two numbers of "2.60.0"; 0 for what has none.
std::pair<std::uint64_t, std::uint64_t> release_of(std::string_view version) {
  const auto parts = text::split(version, '.');
  constexpr std::uint64_t most = 1'000'000;
  return {text::to_number(parts[0], most).value_or(0),
          parts.size() > 1 ? text::to_number(parts[1], most).value_or(0) : 0};
}

}  // namespace

bool Program::has_tokens() const { return release_of(version) >= std::pair<std::uint64_t, std::uint64_t>(2, 52); }

std::string Program::to_string() const {
  return concat({"Ray ", version, python.empty() ? "" : " with Python ", python});
}

bool Program::fits(const Program& other) const {
  return version == other.version && (python == other.python || python.empty() || other.python.empty());
}

Result<Program> find_ray() {
  const auto path = commands::find_program("ray");
  if (!path) {
    return Error{Errc::not_found,
                 "there is no program 'ray' in PATH: install Ray, or start the step with the PATH that has it"};
  }
  std::string answer = ask_python(*path);
  if (answer.empty()) answer = answer_of({*path, "--version"});
  constexpr std::string_view prefix = "ray, version ";
  if (answer.starts_with(prefix)) answer.erase(0, prefix.size());
  const auto words = text::split(answer, ' ');
  if (!is_version(words[0])) {
    return Error{Errc::unavailable,
                 concat({text::quote(*path), " does not tell its version: does 'ray --version' work there?"})};
  }
  return Program{*path, std::string(words[0]), words.size() > 1 ? std::string(words[1]) : std::string()};
}

}  // namespace amldist::ray
