// The doctor's result for one framework under one launcher.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace amldist::doctor {

enum class Outcome {
  fine,   ///< starts with everyone
  warns,  ///< starts, but a script that does what the reason names would not, or would waste something
  fails,  ///< raises or aborts
  hangs,  ///< waits for processes or for an address that never answer
  alone,  ///< starts, but silently with fewer processes than the step has
  skip,   ///< does not apply to this step
};

[[nodiscard]] constexpr std::string_view to_string(Outcome outcome) {
  switch (outcome) {
    case Outcome::fine:
      return "fine";
    case Outcome::warns:
      return "warns";
    case Outcome::fails:
      return "fails";
    case Outcome::hangs:
      return "hangs";
    case Outcome::alone:
      return "alone";
    case Outcome::skip:
      break;
  }
  return "skip";
}

/// Whether the result makes the doctor's exit status 1.
[[nodiscard]] constexpr bool is_bad(Outcome outcome) {
  return outcome == Outcome::fails || outcome == Outcome::hangs || outcome == Outcome::alone;
}

/// One row. Texts may be empty; numbers are absent if the framework would not get that far, or if a launcher gives a
/// different one to each process that it starts.
struct FrameworkResult {
  std::string framework = {};
  std::string launcher = {};
  std::string environment = {};  ///< the framework's own name for the source of its numbers
  std::optional<std::uint64_t> rank = std::nullopt;
  std::optional<std::uint64_t> size = std::nullopt;
  std::string master = {};  ///< "host:port"
  Outcome outcome = Outcome::fine;
  std::string reason = {};
  std::string remedy = {};
};

/// An outcome with its texts, for the checks that several frameworks share.
struct Problem {
  Outcome outcome;
  std::string reason;
  std::string remedy;
};

[[nodiscard]] inline FrameworkResult with(FrameworkResult result, Problem problem) {
  result.outcome = problem.outcome;
  result.reason = std::move(problem.reason);
  result.remedy = std::move(problem.remedy);
  return result;
}

}  // namespace amldist::doctor
