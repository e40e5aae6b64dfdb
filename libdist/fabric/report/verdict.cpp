#include "fabric/report/verdict.hpp"

#include <algorithm>
#include <array>

#include "base/text/text.hpp"

namespace amldist::fabric {
namespace {

using text::concat;

constexpr std::size_t longest_evidence = 400;
constexpr std::size_t most_passes = 2;  // for passes, examples suffice

/// Orders verdicts: fail, warn, unknown, pass. A skip does not count.
int severity(Verdict verdict) noexcept {
  switch (verdict) {
    case Verdict::fail:
      return 4;
    case Verdict::warn:
      return 3;
    case Verdict::unknown:
      return 2;
    case Verdict::pass:
      return 1;
    case Verdict::skip:
      break;
  }
  return 0;
}

void append_once(std::string& joined, std::string_view piece) {
  if (piece.empty() || joined.find(piece) != std::string::npos) return;
  if (!joined.empty()) joined += "; ";
  joined += piece;
}

/// What is not the worst of its check is named all the same: two faults of one kind are two.
bool is_worth_saying(Verdict verdict) noexcept { return verdict == Verdict::warn || verdict == Verdict::unknown; }

void append_lesser(Check& check, const Finding& finding) {
  if (check.evidence.size() + finding.evidence.size() > longest_evidence) return;
  if (check.evidence.find(finding.evidence) != std::string::npos) return;
  append_once(check.evidence, concat({"also ", finding.evidence}));
  if (check.remedy.size() < longest_evidence) append_once(check.remedy, finding.remedy);
}

}  // namespace

Verdict Report::verdict() const noexcept {
  Verdict worst = Verdict::skip;
  for (const Check& check : checks) {
    if (check.verdict == Verdict::unknown && unknown_fails) worst = Verdict::fail;
    if (severity(check.verdict) > severity(worst)) worst = check.verdict;
  }
  if (policy == launch::RdmaPolicy::require && !verified) return Verdict::fail;
  return worst == Verdict::pass && !verified ? Verdict::skip : worst;
}

const Check* Report::find(std::string_view id) const noexcept {
  const auto found = std::ranges::find(checks, id, &Check::id);
  return found == checks.end() ? nullptr : &*found;
}

Check join_findings(std::string_view id, const std::vector<Finding>& findings, std::string_view otherwise) {
  Check check{std::string(id), Verdict::skip, "", ""};
  for (const Finding& finding : findings) {
    if (severity(finding.verdict) > severity(check.verdict)) check.verdict = finding.verdict;
  }
  std::size_t left_out = 0;
  std::size_t shown = 0;
  for (const Finding& finding : findings) {
    if (finding.verdict != check.verdict) continue;
    const bool enough = check.verdict == Verdict::pass && shown == most_passes;
    const bool fits = shown == 0 || check.evidence.size() + finding.evidence.size() <= longest_evidence;
    if (enough || !fits) {
      ++left_out;
      continue;
    }
    ++shown;
    append_once(check.evidence, finding.evidence);
    if (check.remedy.size() < longest_evidence) append_once(check.remedy, finding.remedy);
  }
  if (left_out > 0) check.evidence += concat({"; and ", std::to_string(left_out), " more"});
  for (const Finding& finding : findings) {
    if (finding.verdict != check.verdict && is_worth_saying(finding.verdict)) append_lesser(check, finding);
  }
  if (check.evidence.empty()) check.evidence = otherwise;
  return check;
}

void add_finding(Check& check, const Finding& finding) {
  if (severity(finding.verdict) < severity(check.verdict)) {
    if (is_worth_saying(finding.verdict)) append_lesser(check, finding);
    return;
  }
  if (severity(finding.verdict) > severity(check.verdict)) {
    const Finding before{check.verdict, std::move(check.evidence), std::move(check.remedy)};
    check = {std::move(check.id), finding.verdict, finding.evidence, finding.remedy};
    if (is_worth_saying(before.verdict)) append_lesser(check, before);
    return;
  }
  if (!check.evidence.empty() && check.evidence.size() + finding.evidence.size() > longest_evidence) return;
  append_once(check.evidence, finding.evidence);
  append_once(check.remedy, finding.remedy);
}

std::string_view to_string(Verdict verdict) noexcept {
  constexpr std::array<std::string_view, 5> names = {"pass", "warn", "fail", "skip", "unknown"};
  return names.at(static_cast<std::size_t>(verdict));
}

std::optional<Verdict> verdict_from_name(std::string_view name) noexcept {
  for (const Verdict each : {Verdict::pass, Verdict::warn, Verdict::fail, Verdict::skip, Verdict::unknown}) {
    if (name == to_string(each)) return each;
  }
  return std::nullopt;
}

}  // namespace amldist::fabric
