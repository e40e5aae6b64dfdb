#include "aml_dist/check/site_verdict.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <vector>

#include "base/text/text.hpp"
#include "fabric/facts/attribute.hpp"

namespace amldist::tools {
namespace {

using fabric::Check;
using fabric::Verdict;
using launch::VerdictFormat;
using nlohmann::json;
using text::concat;

constexpr int deepest_output = 32;
constexpr std::size_t most_findings = 1000;
constexpr std::size_t longest_site_message = 200;

/// Words of healthagent, DCGM, Oracle's and NVIDIA's tools, in small letters.
constexpr std::array<std::pair<std::string_view, Verdict>, 21> verdict_words = {{
    {"pass", Verdict::pass},    {"passed", Verdict::pass},    {"ok", Verdict::pass},
    {"info", Verdict::pass},    {"healthy", Verdict::pass},   {"warn", Verdict::warn},
    {"warning", Verdict::warn}, {"degraded", Verdict::warn},  {"fail", Verdict::fail},
    {"failed", Verdict::fail},  {"error", Verdict::fail},     {"critical", Verdict::fail},
    {"fatal", Verdict::fail},   {"unhealthy", Verdict::fail}, {"skip", Verdict::skip},
    {"skipped", Verdict::skip}, {"na", Verdict::skip},        {"n/a", Verdict::skip},
    {"not run", Verdict::skip}, {"notrun", Verdict::skip},    {"unknown", Verdict::unknown},
}};

std::optional<Verdict> verdict_of_word(std::string_view word) {
  const std::string small = text::to_lower(text::trim(word.substr(0, longest_site_message)));
  const auto found = std::ranges::find(verdict_words, small, &std::pair<std::string_view, Verdict>::first);
  return found == verdict_words.end() ? std::nullopt : std::optional(found->second);
}

/// The member of an object if it is a text, or a list that begins with a text or with an object that has one.
std::string text_member(const json& object, std::string_view name) {
  const auto found = object.find(name);
  if (found == object.end()) return {};
  const json* value = &*found;
  if (value->is_array() && !value->empty()) value = &value->front();
  if (value->is_object() && value->contains("warning")) value = &(*value)["warning"];
  return value->is_string() ? fabric::printable(value->get_ref<const std::string&>(), longest_site_message)
                            : std::string();
}

std::string first_text_member(const json& object, std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    if (std::string found = text_member(object, name); !found.empty()) return found;
  }
  return {};
}

/// The message of a finding, and what it describes beside it: healthagent's message is often only "NAME reports
/// errors".
std::string message_of(const json& object) {
  std::string message = first_text_member(object, {"message", "error", "warnings", "reason", "info"});
  std::string more = first_text_member(object, {"description", "details"});
  if (more.empty() || message == more) return message;
  if (message.empty()) return more;
  return concat({message, " (", more, ")"});
}

/// What the objects of a tool's JSON say: each that has a member `key` is a finding. Its name is its own or that of the
/// nearest named object above, else the key under which it is.
class ReadFindings {
 public:
  explicit ReadFindings(std::string_view key) : key_(key) {}

  void collect(const json& value, const std::string& place, bool is_named) {
    if (value.is_array()) {
      for (const json& each : value) collect(each, place, is_named);
    } else if (value.is_object()) {
      collect_object(value, place, is_named);
    }
  }

  [[nodiscard]] const std::vector<fabric::Finding>& all() const noexcept { return all_; }

 private:
  void collect_object(const json& object, std::string place, bool is_named) {
    if (std::string own = first_text_member(object, {"check_id", "name", "id"}); !own.empty()) {
      place = std::move(own);
      is_named = true;
    }
    if (const std::string word = text_member(object, key_); !word.empty()) add(object, word, place);
    for (const auto& [name, member] : object.items()) {
      if (member.is_structured()) collect(member, is_named ? place : fabric::printable(name, 64), is_named);
    }
  }

  void add(const json& object, const std::string& word, const std::string& place) {
    if (all_.size() == most_findings) return;
    const auto verdict = verdict_of_word(word);
    const std::string message = verdict ? message_of(object) : "";
    all_.push_back(
        {verdict.value_or(Verdict::unknown),
         concat({place, place.empty() ? "" : ": ", verdict && !message.empty() ? message : word}),
         first_text_member(object, {"recommended_actions", "recommended_action", "recommendations", "suggestion"})});
  }

  std::string_view key_;
  std::vector<fabric::Finding> all_;
};

/// Nothing for what is not an object, or is nested too deeply. Some tools print lines before it.
json parse_output(std::string_view text) {
  const auto begin = text.find('{');
  if (begin == std::string_view::npos) return {};
  bool is_deep = false;
  const auto keep = [&is_deep](int depth, json::parse_event_t, json&) {
    is_deep = is_deep || depth > deepest_output;
    return depth <= deepest_output;
  };
  json out = json::parse(text.substr(begin), keep, false);
  return is_deep || !out.is_object() ? json() : out;
}

Check read_status(const std::string& id, const json& root) {
  ReadFindings findings("status");
  findings.collect(root, "", false);
  Check check = join_findings(id, findings.all(), "its JSON has no \"status\"");
  if (findings.all().empty()) check.verdict = Verdict::unknown;
  return check;
}

/// The whole is said by overall_severity; the checks of that severity are the evidence.
Check read_nodeverdict(const std::string& id, const json& root) {
  const std::string word = text_member(root, "overall_severity");
  if (word.empty()) return {id, Verdict::unknown, "its JSON has no \"overall_severity\"", ""};
  const auto overall = verdict_of_word(word);
  if (!overall) return {id, Verdict::unknown, concat({"overall_severity is ", text::quote(word)}), ""};
  ReadFindings findings("severity");
  findings.collect(root, "", false);
  std::vector<fabric::Finding> same;
  std::ranges::copy_if(findings.all(), std::back_inserter(same),
                       [&overall](const fabric::Finding& each) { return each.verdict == *overall; });
  Check check = join_findings(id, same, word);
  check.verdict = *overall;
  return check;
}

/// The last line that is not blank.
std::string last_line_of(std::string_view text) {
  std::string_view last;
  for (const std::string_view line : text::split(text, '\n')) {
    if (!text::trim(line).empty()) last = text::trim(line);
  }
  return fabric::printable(last, longest_site_message);
}

Check read_exit(const std::string& id, const ChildOutput& output) {
  const std::string line = last_line_of(output.text);
  return {id, output.status == 0 ? Verdict::pass : Verdict::fail,
          line.empty() ? concat({"exit status ", std::to_string(output.status)}) : line, ""};
}

Check read_json(const std::string& id, VerdictFormat format, const ChildOutput& output) {
  const json root = parse_output(output.text);
  if (!root.is_object()) {
    return {id, Verdict::unknown, concat({"no JSON object, and exit status ", std::to_string(output.status)}), ""};
  }
  Check check = format == VerdictFormat::status ? read_status(id, root) : read_nodeverdict(id, root);
  const bool is_well = check.verdict == Verdict::pass || check.verdict == Verdict::skip;
  if (is_well && output.status != 0) {
    check.verdict = Verdict::unknown;
    check.evidence = concat({"it reports no fault, but ended with status ", std::to_string(output.status)});
  }
  return check;
}

}  // namespace

Check read_site_verdict(const std::string& name, const launch::SiteCheck& site, const ChildOutput& output) {
  const std::string id = concat({"site.", name});
  Check check;
  if (const int signal = signal_of(output.status); signal != 0) {
    check = {id, Verdict::unknown, concat({"signal ", std::to_string(signal), " ended it"}), ""};
  } else {
    check = site.format == VerdictFormat::exit ? read_exit(id, output) : read_json(id, site.format, output);
  }
  const bool is_well = check.verdict == Verdict::pass || check.verdict == Verdict::skip;
  if (!is_well && check.remedy.empty()) check.remedy = concat({"see what ", site.words.front(), " prints on the node"});
  return check;
}

}  // namespace amldist::tools
