#include "step/messages/job_record.hpp"

#include <algorithm>
#include <limits>

#include "base/text/text.hpp"

namespace amldist::step {
namespace {

constexpr std::uint64_t most_id = std::numeric_limits<std::uint32_t>::max();
constexpr std::uint64_t most_status = 255;
constexpr std::size_t longest_sentence = 1024;

std::string printable(std::string_view text) {
  std::string out(text.substr(0, longest_sentence));
  std::ranges::replace_if(
      out, [](char c) { return c < ' ' || c == 0x7f; }, '?');
  return out;
}

void read_line(std::string_view line, JobRecord& record) {
  const auto words = text::split(line, ' ');
  const auto status = words.size() > 1 ? text::to_number(words[1], most_status) : std::nullopt;
  if (!status) return;
  if (words[0] == "ended" && words.size() == 2) record.ended = static_cast<int>(*status);
  if (words[0] != "failed" || words.size() < 3 || record.first_failure) return;
  const std::size_t before = words[0].size() + words[1].size() + 2;
  record.first_failure = JobRecord::FailedTask{static_cast<int>(*status), printable(line.substr(before))};
}

}  // namespace

std::optional<JobRecord> JobRecord::parse(std::string_view text) {
  const auto lines = text::split(text, '\n');
  const auto words = text::split(lines.front(), ' ');
  const auto job = words.size() == 3 ? text::to_number(words[1], most_id) : std::nullopt;
  const auto restarts = words.size() == 3 ? text::to_number(words[2], most_id) : std::nullopt;
  if (words[0] != "job" || !job || !restarts) return std::nullopt;
  JobRecord record{static_cast<std::uint32_t>(*job), static_cast<std::uint32_t>(*restarts), {}, {}};
  for (const std::string_view line : lines) read_line(line, record);
  return record;
}

std::string JobRecord::line_of(const FailedTask& failed) {
  return text::concat({"failed ", std::to_string(failed.status), " ", printable(failed.sentence), "\n"});
}

}  // namespace amldist::step
