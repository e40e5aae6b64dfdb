#include "aml_dist/doctor/report.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "aml_dist/common/table.hpp"
#include "base/text/text.hpp"
#include "shared/json.hpp"

namespace amldist::doctor {
namespace {

using text::concat;

nlohmann::ordered_json number_or_null(const std::optional<std::uint64_t>& number) {
  return number ? nlohmann::ordered_json(*number) : nlohmann::ordered_json(nullptr);
}

std::string cell(const std::optional<std::uint64_t>& number) { return number ? std::to_string(*number) : "-"; }

/// A user's text, made printable on one line.
std::string printable(std::string_view text) {
  constexpr std::size_t longest = 60;
  std::string out(text.substr(0, longest));
  if (text.size() > longest) out += "...";
  std::ranges::replace_if(
      out, [](char c) { return (c >= 0 && c < ' ') || c == 0x7f; }, '?');
  return out;
}

std::string cell(const std::string& text) { return text.empty() ? "-" : printable(text); }

std::string name_of(const FrameworkResult& result) {
  return result.launcher == "-" || result.launcher == "srun" ? result.framework
                                                             : concat({result.framework, " by ", result.launcher});
}

/// Rows with the same text, in the order of the first of them.
struct Remark {
  const FrameworkResult* result;
  std::string names;
};

std::vector<Remark> remarks_of(std::span<const FrameworkResult> results) {
  std::vector<Remark> remarks;
  for (const FrameworkResult& result : results) {
    if (result.reason.empty()) continue;
    const auto same = std::ranges::find_if(remarks, [&](const Remark& remark) {
      return remark.result->outcome == result.outcome && remark.result->reason == result.reason;
    });
    if (same == remarks.end()) remarks.push_back({&result, name_of(result)});
    else same->names += concat({", ", name_of(result)});
  }
  // Failures first, skipped rows last.
  std::ranges::stable_sort(remarks, {}, [](const Remark& remark) {
    return remark.result->outcome == Outcome::skip ? 2 : is_bad(remark.result->outcome) ? 0 : 1;
  });
  return remarks;
}

}  // namespace

std::string to_json(std::span<const FrameworkResult> results) {
  nlohmann::ordered_json array = nlohmann::ordered_json::array();
  for (const FrameworkResult& result : results) {
    array.push_back({{"framework", result.framework},
                     {"launcher", result.launcher},
                     {"environment", result.environment},
                     {"rank", number_or_null(result.rank)},
                     {"size", number_or_null(result.size)},
                     {"master", result.master},
                     {"verdict", to_string(result.outcome)},
                     {"reason", result.reason},
                     {"remedy", result.remedy}});
  }
  return commands::json_text(array);
}

std::string to_text(std::span<const FrameworkResult> results) {
  std::vector<std::vector<std::string>> rows = {
      {"FRAMEWORK", "LAUNCHER", "ENVIRONMENT", "RANK", "SIZE", "MASTER", "VERDICT"}};
  for (const FrameworkResult& result : results) {
    if (result.outcome == Outcome::skip) continue;  // their reasons follow
    rows.push_back({result.framework, result.launcher, cell(result.environment), cell(result.rank), cell(result.size),
                    cell(result.master), std::string(to_string(result.outcome))});
  }
  std::string out = rows.size() > 1 ? tools::format_table(rows) : std::string();
  for (const Remark& remark : remarks_of(results)) {
    if (remark.result->outcome == Outcome::skip) {
      out += concat({"\nskip: ", remark.names, ": ", remark.result->reason, "\n"});
      continue;
    }
    out += concat({"\n", to_string(remark.result->outcome), ": ", remark.names, "\n  ", remark.result->reason, "\n"});
    if (!remark.result->remedy.empty()) out += concat({"  remedy: ", remark.result->remedy, "\n"});
  }
  return out;
}

}  // namespace amldist::doctor
