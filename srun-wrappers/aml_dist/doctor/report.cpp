#include "aml_dist/doctor/report.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "aml_dist/common/table.hpp"
#include "core/text.hpp"

namespace amldist::doctor {
namespace {

using text::concat;

nlohmann::ordered_json number_or_null(const std::optional<std::uint64_t>& number) {
  return number ? nlohmann::ordered_json(*number) : nlohmann::ordered_json(nullptr);
}

std::string cell(const std::optional<std::uint64_t>& number) { return number ? std::to_string(*number) : "-"; }

/// A user's own text, fit for a line of a terminal.
std::string printable(std::string_view text) {
  constexpr std::size_t longest = 60;
  std::string out(text.substr(0, longest));
  if (text.size() > longest) out += "...";
  std::ranges::replace_if(
      out, [](char c) { return (c >= 0 && c < ' ') || c == 0x7f; }, '?');
  return out;
}

std::string cell(const std::string& text) { return text.empty() ? "-" : printable(text); }

std::string name_of(const Finding& finding) {
  return finding.launcher == "-" || finding.launcher == "srun" ? finding.framework
                                                               : concat({finding.framework, " by ", finding.launcher});
}

/// Rows that say the same, in the order of the first of them.
struct Remark {
  const Finding* finding;
  std::string names;
};

std::vector<Remark> remarks_of(std::span<const Finding> findings) {
  std::vector<Remark> remarks;
  for (const Finding& finding : findings) {
    if (finding.reason.empty()) continue;
    const auto same = std::ranges::find_if(remarks, [&](const Remark& remark) {
      return remark.finding->verdict == finding.verdict && remark.finding->reason == finding.reason;
    });
    if (same == remarks.end()) remarks.push_back({&finding, name_of(finding)});
    else same->names += concat({", ", name_of(finding)});
  }
  // What is wrong first, what is skipped last.
  std::ranges::stable_sort(remarks, {}, [](const Remark& remark) {
    return remark.finding->verdict == Verdict::skip ? 2 : is_bad(remark.finding->verdict) ? 0 : 1;
  });
  return remarks;
}

}  // namespace

std::string to_json(std::span<const Finding> findings) {
  nlohmann::ordered_json array = nlohmann::ordered_json::array();
  for (const Finding& finding : findings) {
    array.push_back({{"framework", finding.framework},
                     {"launcher", finding.launcher},
                     {"environment", finding.environment},
                     {"rank", number_or_null(finding.rank)},
                     {"size", number_or_null(finding.size)},
                     {"master", finding.master},
                     {"verdict", to_string(finding.verdict)},
                     {"reason", finding.reason},
                     {"remedy", finding.remedy}});
  }
  // A user's own bytes may be no UTF-8; they must not keep the answer back.
  return array.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string to_text(std::span<const Finding> findings) {
  std::vector<std::vector<std::string>> rows = {
      {"FRAMEWORK", "LAUNCHER", "ENVIRONMENT", "RANK", "SIZE", "MASTER", "VERDICT"}};
  for (const Finding& finding : findings) {
    if (finding.verdict == Verdict::skip) continue;  // their reasons follow
    rows.push_back({finding.framework, finding.launcher, cell(finding.environment), cell(finding.rank),
                    cell(finding.size), cell(finding.master), std::string(to_string(finding.verdict))});
  }
  std::string out = rows.size() > 1 ? tools::format_table(rows) : std::string();
  for (const Remark& remark : remarks_of(findings)) {
    if (remark.finding->verdict == Verdict::skip) {
      out += concat({"\nskip: ", remark.names, ": ", remark.finding->reason, "\n"});
      continue;
    }
    out += concat({"\n", to_string(remark.finding->verdict), ": ", remark.names, "\n  ", remark.finding->reason, "\n"});
    if (!remark.finding->remedy.empty()) out += concat({"  remedy: ", remark.finding->remedy, "\n"});
  }
  return out;
}

}  // namespace amldist::doctor
