// What the doctor says about one framework under one launcher.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace amldist::doctor {

enum class Verdict {
  fine,   ///< starts with everyone
  warns,  ///< starts, but a script that does what the reason names would not, or would waste something
  fails,  ///< raises or aborts
  hangs,  ///< waits for processes or for an address that never answer
  alone,  ///< starts, but silently with fewer processes than the step has
  skip,   ///< not what this step is for
};

[[nodiscard]] constexpr std::string_view to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::fine:
      return "fine";
    case Verdict::warns:
      return "warns";
    case Verdict::fails:
      return "fails";
    case Verdict::hangs:
      return "hangs";
    case Verdict::alone:
      return "alone";
    case Verdict::skip:
      break;
  }
  return "skip";
}

/// Whether the doctor's exit status speaks of it.
[[nodiscard]] constexpr bool is_bad(Verdict verdict) {
  return verdict == Verdict::fails || verdict == Verdict::hangs || verdict == Verdict::alone;
}

/// One row. Texts may be empty; numbers are absent where the framework would not get that far, or where a launcher
/// gives a different one to each process that it starts.
struct Finding {
  std::string framework = {};
  std::string launcher = {};
  std::string environment = {};  ///< the framework's own name for where its numbers come from
  std::optional<std::uint64_t> rank = std::nullopt;
  std::optional<std::uint64_t> size = std::nullopt;
  std::string master = {};  ///< "host:port"
  Verdict verdict = Verdict::fine;
  std::string reason = {};
  std::string remedy = {};
};

/// A verdict with its words, for the checks that several frameworks share.
struct Trouble {
  Verdict verdict;
  std::string reason;
  std::string remedy;
};

[[nodiscard]] inline Finding with(Finding finding, Trouble trouble) {
  finding.verdict = trouble.verdict;
  finding.reason = std::move(trouble.reason);
  finding.remedy = std::move(trouble.remedy);
  return finding;
}

}  // namespace amldist::doctor
