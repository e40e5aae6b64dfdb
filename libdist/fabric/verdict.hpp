// What a verification comes to: a list of checks, each with a verdict, what was seen, and what to do.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/spec.hpp"

namespace amldist::fabric {

/// The verdict on one check. `skip`: it could not be made, and the evidence says why; never a kind of pass.
enum class Verdict { pass, warn, fail, skip };

/// One check. Ids are stable names ("ib.state", docs/fabric.md); each appears once in a report.
struct Check {
  std::string id;
  Verdict verdict = Verdict::skip;
  std::string evidence;  ///< what was seen, with the device and port; one line, printable
  std::string remedy;    ///< what to do; empty where nothing is to be done
};

/// A finding about one device or port, or about one of several nodes, before findings are put together into a check.
struct Finding {
  Verdict verdict = Verdict::pass;
  std::string evidence;
  std::string remedy;
};

/// A verification as a whole.
struct Report {
  RdmaPolicy policy = RdmaPolicy::prefer;
  std::vector<Check> checks;
  bool verified = false;  ///< there was a port to judge: without one, passing side checks are no pass

  /// The worst verdict; warnings do not fail. skip when nothing was verified.
  [[nodiscard]] Verdict verdict() const noexcept;
  [[nodiscard]] const Check* find(std::string_view id) const noexcept;
};

/// Joins findings: the worst verdict, the evidence of those that have it, one remedy of each sort. Without any: skip,
/// with `otherwise` as the reason. Evidence is cut after a few hundred characters, and says how many are left out.
[[nodiscard]] Check join_findings(std::string_view id, const std::vector<Finding>& findings,
                                  std::string_view otherwise);

[[nodiscard]] std::string_view to_string(Verdict verdict) noexcept;
[[nodiscard]] std::optional<Verdict> verdict_from_name(std::string_view name) noexcept;
[[nodiscard]] std::string_view to_string(RdmaPolicy policy) noexcept;
[[nodiscard]] std::optional<RdmaPolicy> policy_from_name(std::string_view name) noexcept;

/// Bytes that are not printable ASCII as \xNN: what came from sysfs or a peer, fit for a terminal.
[[nodiscard]] std::string printable(std::string_view input, std::size_t longest = 120);

}  // namespace amldist::fabric
