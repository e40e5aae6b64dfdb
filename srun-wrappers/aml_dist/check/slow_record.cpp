#include "aml_dist/check/slow_record.hpp"

#include <array>
#include <ctime>
#include <set>
#include <string_view>

#include "base/os/whole_file.hpp"
#include "base/text/text.hpp"
#include "fabric/facts/attribute.hpp"

namespace amldist::tools {
namespace {

using text::concat;

constexpr std::size_t longest_record = std::size_t{4} << 20;

std::string utc_now() {
  const std::time_t now = ::time(nullptr);
  std::tm broken = {};
  std::array<char, 32> text{};
  const bool known = ::gmtime_r(&now, &broken) != nullptr;
  return {text.data(), known ? std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &broken) : 0};
}

/// "2nd", "3rd", "11th".
std::string ordinal(std::size_t number) {
  const std::size_t last = number % 10;
  const bool is_teen = number % 100 / 10 == 1;
  const std::string_view ending = is_teen ? "th" : last == 1 ? "st" : last == 2 ? "nd" : last == 3 ? "rd" : "th";
  return concat({std::to_string(number), ending});
}

/// The other steps in which a part was slow, and the day of the first.
struct EarlierTimes {
  std::set<std::string_view> steps;
  std::string_view first_day;
};

EarlierTimes earlier_times(std::string_view content, std::string_view part, std::string_view step) {
  EarlierTimes out;
  for (const std::string_view line : text::split(content, '\n')) {
    const auto fields = text::split(line, '\t');
    if (fields.size() != 3 || fields[1] != part || fields[2] == step) continue;
    if (out.steps.empty()) out.first_day = fields[0].substr(0, fields[0].find('T'));
    out.steps.insert(fields[2]);
  }
  return out;
}

}  // namespace

std::string record_slow(const std::string& path, const std::vector<std::string>& slow, const std::string& step) {
  if (slow.empty()) return {};
  const auto content = read_whole_file(path, longest_record);
  if (!content && content.error().code != Errc::not_found)
    return concat({"the record ", text::quote(path), " cannot be read: ", content.error().message});
  std::string out;
  for (const std::string& part : slow) {
    const auto [steps, first_day] = earlier_times(content ? *content : std::string_view(), part, step);
    if (!append_line(path, concat({utc_now(), "\t", part, "\t", step, "\n"})))
      return concat({"the record ", text::quote(path), " cannot be written"});
    if (steps.empty()) continue;
    out += concat({out.empty() ? "" : ", ", part, ": the ", ordinal(steps.size() + 1), " time since ",
                   fabric::printable(first_day, 16)});
  }
  return out;
}

}  // namespace amldist::tools
