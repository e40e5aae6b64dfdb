// The result of a verification: a list of checks, each with a verdict, its evidence and a remedy.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/option/spec.hpp"

namespace amldist::fabric {

/// The verdict of one check. `skip`: there is nothing to check, and the evidence says why. `unknown`: there is
/// something to check, and it cannot be read or understood. Neither is a pass.
enum class Verdict { pass, warn, fail, skip, unknown };

/// One check. Ids are stable names ("ib.state", docs/fabric.md); each appears once in a report.
struct Check {
  std::string id;
  Verdict verdict = Verdict::skip;
  std::string evidence;  ///< what was seen, with the device and port; one line, printable
  std::string remedy;    ///< what to do; empty if nothing
};

/// A finding about one device, port or node. Findings are joined to a check.
struct Finding {
  Verdict verdict = Verdict::pass;
  std::string evidence;
  std::string remedy;
};

/// Result of a whole verification.
struct Report {
  launch::RdmaPolicy policy = launch::RdmaPolicy::prefer;
  std::vector<Check> checks;
  bool verified = false;       ///< a port was judged; without one, the report does not pass
  bool unknown_fails = false;  ///< unknown=fail: a check that is unknown fails the report

  /// The worst verdict, in the order fail, warn, unknown, pass; only fail fails. If nothing was verified: fail under
  /// `require`, else skip.
  [[nodiscard]] Verdict verdict() const noexcept;
  [[nodiscard]] const Check* find(std::string_view id) const noexcept;
};

/// Joins findings to a check: the worst verdict, the evidence of the findings that have it, and each of their remedies
/// once. Without findings: skip, with `otherwise` as the reason. Long evidence is shortened and says how much was left
/// out.
[[nodiscard]] Check join_findings(std::string_view id, const std::vector<Finding>& findings,
                                  std::string_view otherwise);

/// Adds a finding: a worse one takes the place of what the check says, an equal one stands beside it.
void add_finding(Check& check, const Finding& finding);

[[nodiscard]] std::string_view to_string(Verdict verdict) noexcept;
[[nodiscard]] std::optional<Verdict> verdict_from_name(std::string_view name) noexcept;

}  // namespace amldist::fabric
