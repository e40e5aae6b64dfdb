#include "aml_run/sweep/metrics.hpp"

#include <regex.h>

#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "aml_run/yaml/yaml_reading.hpp"
#include "base/text/text.hpp"
#include "shared/json.hpp"
#include "shared/programs.hpp"

namespace amldist::run {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t longest_metrics = std::size_t{64} * 1024 * 1024;

std::optional<double> number_of(std::string_view text) { return finite_number(std::string(text::trim(text))); }

std::optional<double> in_json(std::string_view line, std::string_view metric) {
  const auto value = commands::parse_json(line);
  if (!value.is_object()) return std::nullopt;
  const auto own = value.find(std::string(metric));
  if (own != value.end() && own->is_number()) return own->get<double>();
  const auto name = value.find("name");
  const auto number = value.find("value");
  const bool is_it = name != value.end() && name->is_string() && name->get<std::string>() == metric;
  return is_it && number != value.end() && number->is_number() ? std::optional(number->get<double>()) : std::nullopt;
}

/// A compiled pattern.
class Pattern {
 public:
  explicit Pattern(const std::string& text)
      : status_(::regcomp(&compiled_, text.c_str(), REG_EXTENDED | REG_NEWLINE)) {}
  Pattern(const Pattern&) = delete;
  Pattern& operator=(const Pattern&) = delete;
  ~Pattern() {
    if (status_ == 0) ::regfree(&compiled_);
  }
  [[nodiscard]] bool good() const { return status_ == 0 && compiled_.re_nsub > 0; }
  [[nodiscard]] std::optional<double> match(const std::string& line) const {
    std::array<regmatch_t, 2> groups{};
    if (::regexec(&compiled_, line.c_str(), groups.size(), groups.data(), 0) != 0 || groups[1].rm_so < 0)
      return std::nullopt;
    return number_of(std::string_view(line).substr(static_cast<std::size_t>(groups[1].rm_so),
                                                   static_cast<std::size_t>(groups[1].rm_eo - groups[1].rm_so)));
  }

 private:
  regex_t compiled_{};
  int status_;
};

std::vector<double> read_mlflow_store(const std::string& folder, const std::string& metric) {
  std::vector<double> out;
  std::error_code ignored;
  for (const auto& experiment : fs::directory_iterator(folder, ignored)) {
    std::error_code also_ignored;
    for (const auto& run : fs::directory_iterator(experiment.path(), also_ignored)) {
      const auto text = commands::read_file((run.path() / "metrics" / metric).string(), longest_metrics);
      if (!text) continue;
      const auto values = read_mlflow_text(*text);
      out.insert(out.end(), values.begin(), values.end());
    }
  }
  return out;
}

}  // namespace

std::vector<double> read_metrics_text(std::string_view text, std::string_view metric) {
  std::vector<double> out;
  for (const std::string_view raw : text::split(text, '\n')) {
    const std::string_view line = text::trim(raw);
    std::optional<double> number;
    if (line.starts_with('{')) number = in_json(line, metric);
    else if (line.starts_with(metric) && line.size() > metric.size()) {
      std::string_view rest = line.substr(metric.size());
      const bool is_separated = std::string_view(" \t=:").find(rest.front()) != std::string_view::npos;
      const auto begin = rest.find_first_not_of(" \t=:");
      if (is_separated && begin != std::string_view::npos) number = number_of(rest.substr(begin));
    }
    if (number) out.push_back(*number);
  }
  return out;
}

std::vector<double> read_mlflow_text(std::string_view text) {
  std::vector<double> out;
  for (const std::string_view line : text::split(text, '\n')) {
    const auto fields = text::split(line, ' ');
    const auto number = fields.size() >= 2 ? number_of(fields[1]) : std::nullopt;
    if (number) out.push_back(*number);
  }
  return out;
}

Result<std::vector<double>> read_log_text(std::string_view text, const std::string& pattern) {
  const Pattern compiled(pattern);
  if (!compiled.good()) {
    return Error{
        Errc::invalid_argument,
        text::concat({"the pattern ", text::quote(pattern),
                      " is not an extended regular expression with a group: write one such as 'loss: ([0-9.]+)'"})};
  }
  std::vector<double> out;
  for (const std::string_view line : text::split(text, '\n')) {
    if (const auto number = compiled.match(std::string(line))) out.push_back(*number);
  }
  return out;
}

std::vector<double> read_trial_metrics(const std::string& folder, const std::string& metric,
                                       const std::string& pattern) {
  if (const auto text = commands::read_file(folder + "/metrics.jsonl", longest_metrics)) {
    auto values = read_metrics_text(*text, metric);
    if (!values.empty()) return values;
  }
  auto values = read_mlflow_store(folder + "/mlruns", metric);
  if (!values.empty() || pattern.empty()) return values;
  const auto log = commands::read_file(folder + "/output.txt", longest_metrics);
  auto found = log ? read_log_text(*log, pattern) : Result<std::vector<double>>(std::vector<double>());
  return found ? std::move(*found) : std::vector<double>();
}

}  // namespace amldist::run
