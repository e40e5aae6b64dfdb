#include "step/messages/end_record.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include "base/text/text.hpp"
#include "launch/option/spec.hpp"
#include "launch/placement/task_map.hpp"

namespace amldist::step {
namespace {

using text::concat;

constexpr std::array<std::string_view, 15> causes = {
    "done",      "rank_exit",      "rank_signal", "out_of_memory",  "hang",
    "node_down", "node_unhealthy", "link",        "plugin_missing", "launch_failed",
    "refused",   "time_limit",     "preempted",   "cancelled",      "unknown"};
constexpr std::size_t longest_evidence = 1024;
constexpr std::size_t most_blamed = 64;
constexpr std::uint64_t latest_time = 1ULL << 40;
constexpr std::uint64_t largest_status = 255;
constexpr std::uint64_t largest_signal = 127;

/// Printable ASCII, so that no reader of the file can be misled; a quotation mark and a backslash are escaped.
std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c < ' ' || c >= 0x7f ? '?' : c;
  }
  return out + '"';
}

std::string number_or_null(const std::optional<std::uint32_t>& number) {
  return number ? std::to_string(*number) : "null";
}

/// Reads one line from left to right. After something wrong nothing is right any more.
class Reader {
 public:
  explicit Reader(std::string_view line) : rest_(line) {}

  void expect(std::string_view text) {
    good_ = good_ && rest_.starts_with(text);
    if (good_) rest_.remove_prefix(text.size());
  }
  [[nodiscard]] bool takes(std::string_view text) {
    const bool there = good_ && rest_.starts_with(text);
    if (there) rest_.remove_prefix(text.size());
    return there;
  }
  std::string string() {
    std::string out;
    expect("\"");
    while (good_ && !takes("\"")) {
      static_cast<void>(takes("\\"));
      good_ = !rest_.empty() && rest_.front() >= ' ' && rest_.front() < 0x7f;
      if (!good_) break;
      out += rest_.front();
      rest_.remove_prefix(1);
    }
    return out;
  }
  std::uint64_t number(std::uint64_t most) {
    const auto end = std::min(rest_.find_first_not_of("0123456789"), rest_.size());
    const auto found = text::to_number(rest_.substr(0, end), most);
    good_ = good_ && found;
    rest_.remove_prefix(end);
    return found.value_or(0);
  }
  std::optional<std::uint32_t> number_or_null(std::uint64_t most) {
    if (takes("null")) return std::nullopt;
    return static_cast<std::uint32_t>(number(most));
  }
  std::vector<std::string> strings() {
    std::vector<std::string> out;
    expect("[");
    while (good_ && !takes("]")) {
      if (!out.empty()) expect(",");
      out.push_back(string());
      good_ = good_ && out.size() <= most_blamed;
    }
    return out;
  }
  [[nodiscard]] bool is_at_end() const { return good_ && rest_.empty(); }

 private:
  std::string_view rest_;
  bool good_ = true;
};

}  // namespace

std::string_view to_string(EndRecord::Cause cause) { return causes.at(static_cast<std::size_t>(cause)); }

std::string EndRecord::to_line() const {
  std::string blamed;
  for (std::size_t i = 0; i < std::min(nodes_blamed.size(), most_blamed); ++i)
    if (blamed.size() < longest_evidence)
      blamed += concat({std::string_view(i == 0 ? "" : ","), json_string(nodes_blamed[i])});
  return concat({"{\"schema\":1,\"step\":", json_string(step), ",\"cause\":\"", to_string(cause), "\",\"rank\":",
                 number_or_null(rank), ",\"node\":", node.empty() ? std::string("null") : json_string(node),
                 ",\"status\":", number_or_null(status), ",\"signal\":", number_or_null(signal),
                 ",\"time\":", std::to_string(time),
                 ",\"evidence\":", json_string(std::string_view(evidence).substr(0, longest_evidence)),
                 ",\"nodes_blamed\":[", blamed, "]}\n"});
}

std::optional<EndRecord> EndRecord::parse(std::string_view line) {
  if (line.size() > longest_end_record) return std::nullopt;
  if (line.ends_with('\n')) line.remove_suffix(1);
  Reader reader(line);
  EndRecord record;
  reader.expect("{\"schema\":1,\"step\":");
  record.step = reader.string();
  reader.expect(",\"cause\":");
  const auto* const cause = std::ranges::find(causes, reader.string());
  reader.expect(",\"rank\":");
  record.rank = reader.number_or_null(most_tasks - 1);
  reader.expect(",\"node\":");
  if (!reader.takes("null")) record.node = reader.string();
  reader.expect(",\"status\":");
  record.status = reader.number_or_null(largest_status);
  reader.expect(",\"signal\":");
  record.signal = reader.number_or_null(largest_signal);
  reader.expect(",\"time\":");
  record.time = static_cast<std::int64_t>(reader.number(latest_time));
  reader.expect(",\"evidence\":");
  record.evidence = reader.string();
  reader.expect(",\"nodes_blamed\":");
  record.nodes_blamed = reader.strings();
  reader.expect("}");
  if (!reader.is_at_end() || cause == causes.end()) return std::nullopt;
  record.cause = Cause{static_cast<int>(cause - causes.begin())};
  return record.to_line() == concat({line, "\n"}) ? std::optional(std::move(record)) : std::nullopt;
}

std::string EndRecord::sentence() const {
  switch (cause) {
    case Cause::rank_exit:
    case Cause::rank_signal:
    case Cause::out_of_memory:
      return concat({"first failure: ", evidence});
    case Cause::hang:
      return concat({"hang: ", evidence});
    case Cause::plugin_missing:
      return evidence;
    case Cause::refused:
      return concat({"refused: ", evidence});
    case Cause::node_unhealthy:
    case Cause::link:
    case Cause::cancelled:
    case Cause::time_limit:
    case Cause::preempted:
    case Cause::node_down:
      if (!rank && !evidence.empty()) return concat({"ended by Slurm: ", evidence});
      return rank ? concat({"first failure: ", evidence}) : std::string();
    default:
      return {};
  }
}

int EndRecord::shell_status() const {
  constexpr int shells_offset = 128;
  if (signal) return shells_offset + static_cast<int>(*signal);
  return static_cast<int>(status.value_or(0));
}

}  // namespace amldist::step
