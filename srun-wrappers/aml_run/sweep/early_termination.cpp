#include "aml_run/sweep/early_termination.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <optional>

#include "aml_run/yaml/yaml_reading.hpp"
#include "base/text/text.hpp"

namespace amldist::run {
namespace {

using text::concat;
using text::quote;
using PolicyKind = TerminationPolicy::Kind;

std::string number_text(double number) {
  std::array<char, 32> out{};
  std::snprintf(out.data(), out.size(), "%g", number);
  return out.data();
}

bool is_worse(double left, double right, bool maximize) { return maximize ? left < right : left > right; }

/// The trials that have at least this many reports.
std::vector<const Series*> reached(const std::vector<Series>& others, std::size_t count) {
  std::vector<const Series*> out;
  for (const Series& each : others) {
    if (each.values.size() >= count) out.push_back(&each);
  }
  return out;
}

std::string bandit(const TerminationPolicy& policy, bool maximize, double own, const std::vector<const Series*>& others,
                   std::size_t count) {
  double best = own;
  for (const Series* other : others) {
    const double value = best_of(other->values, count, maximize);
    if (is_worse(best, value, maximize)) best = value;
  }
  // The slack is a share of the best value's size, so that a negative metric is judged alike.
  const double slack =
      policy.slack_factor > 0
          ? std::abs(best) * (maximize ? policy.slack_factor / (1 + policy.slack_factor) : policy.slack_factor)
          : policy.slack_amount;
  const double limit = maximize ? best - slack : best + slack;
  if (!is_worse(own, limit, maximize)) return {};
  return concat({"bandit: ", number_text(own), " is beyond ", number_text(limit), ", the slack from the best, ",
                 number_text(best)});
}

double average_of(const Series& series, std::size_t count) {
  const auto end = series.values.begin() + static_cast<std::ptrdiff_t>(count);
  return std::accumulate(series.values.begin(), end, 0.0) / static_cast<double>(count);
}

/// Azure ML takes the median over all trials, including this one.
std::string median_stopping(bool maximize, const Series& own, const std::vector<const Series*>& others,
                            std::size_t count) {
  const double best = best_of(own.values, count, maximize);
  std::vector<double> averages = {average_of(own, count)};
  averages.reserve(others.size() + 1);
  for (const Series* other : others) averages.push_back(average_of(*other, count));
  std::ranges::sort(averages);
  const std::size_t middle = averages.size() / 2;
  const double median = averages.size() % 2 == 1 ? averages[middle] : (averages[middle - 1] + averages[middle]) / 2;
  if (!is_worse(best, median, maximize)) return {};
  return concat({"median_stopping: ", number_text(best), " is worse than the median of the trials' averages, ",
                 number_text(median)});
}

std::string truncation(const TerminationPolicy& policy, bool maximize, double own,
                       const std::vector<const Series*>& others, std::size_t count) {
  std::size_t all = 1;
  std::size_t worse = 0;
  for (const Series* other : others) {
    if (policy.exclude_finished && other->finished) continue;
    ++all;
    if (is_worse(best_of(other->values, count, maximize), own, maximize)) ++worse;
  }
  const auto cut = static_cast<std::size_t>(std::floor(static_cast<double>(all) * policy.percentage / 100));
  if (worse >= cut) return {};
  return concat({"truncation_selection: ", number_text(own), " is among the worst ", number_text(policy.percentage),
                 " % of ", std::to_string(all), " trials"});
}

class PolicyReader {
 public:
  PolicyReader(std::string_view file, const YamlValue& value) : file_(file), value_(value) {}

  Result<TerminationPolicy> read() {
    const YamlValue* const type = value_.find("type");
    const std::string name = type != nullptr ? text::to_lower(type->text) : std::string();
    if (name == "bandit") policy_.kind = PolicyKind::bandit;
    else if (name == "median_stopping") policy_.kind = PolicyKind::median_stopping;
    else if (name == "truncation_selection") policy_.kind = PolicyKind::truncation_selection;
    else
      return error_at(file_, type != nullptr ? type->location : value_.location,
                      concat({"invalid value ", quote(name),
                              " for early_termination.type: use bandit, median_stopping or truncation_selection"}));
    for (const YamlEntry& entry : value_.entries) {
      if (auto status = read_key(entry); !status) return status.error();
    }
    if (auto status = check(); !status) return status.error();
    return policy_;
  }

 private:
  Result<void> read_key(const YamlEntry& entry) {
    const std::string& text = entry.value.text;
    const bool bandit = policy_.kind == PolicyKind::bandit;
    const bool truncates = policy_.kind == PolicyKind::truncation_selection;
    if (entry.key == "type") return {};
    if (entry.key == "evaluation_interval" || entry.key == "delay_evaluation") {
      const auto number = text::to_number(text, 1'000'000);
      if (!number) return wrong(entry, "use a whole number, 0 or more");
      // 0 is Azure ML's default: every report, like 1.
      if (entry.key == "evaluation_interval") policy_.interval = std::max<std::size_t>(1, *number);
      else policy_.delay = static_cast<std::size_t>(*number);
      return {};
    }
    if (bandit && (entry.key == "slack_factor" || entry.key == "slack_amount")) {
      return read_number(entry, entry.key == "slack_factor" ? policy_.slack_factor : policy_.slack_amount);
    }
    if (truncates && entry.key == "truncation_percentage") return read_number(entry, policy_.percentage);
    if (truncates && entry.key == "exclude_finished_jobs") {
      policy_.exclude_finished = text::to_lower(text) == "true";
      return {};
    }
    return error_at(file_, entry.location, concat({"early_termination.", entry.key, " does not exist for this type"}));
  }

  Result<void> read_number(const YamlEntry& entry, double& to) const {
    const auto number = finite_number(entry.value.text);
    if (!number || *number < 0) return wrong(entry, "use a number, 0 or more");
    to = *number;
    return {};
  }

  [[nodiscard]] Result<void> check() const {
    if (policy_.kind == PolicyKind::bandit && (policy_.slack_factor > 0) == (policy_.slack_amount > 0)) {
      return error_at(file_, value_.location,
                      "early_termination of type bandit has one of slack_factor and slack_amount, above 0");
    }
    if (policy_.kind == PolicyKind::truncation_selection && (policy_.percentage <= 0 || policy_.percentage > 99)) {
      return error_at(file_, value_.location, "early_termination.truncation_percentage is a number, 1 to 99");
    }
    return {};
  }

  [[nodiscard]] Error wrong(const YamlEntry& entry, std::string_view what) const {
    return error_at(
        file_, entry.value.location,
        concat({"invalid value ", quote(entry.value.text), " for early_termination.", entry.key, ": ", what}));
  }

  std::string_view file_;
  const YamlValue& value_;
  TerminationPolicy policy_;
};

}  // namespace

Result<TerminationPolicy> read_termination(std::string_view file, const YamlValue& value) {
  return PolicyReader(file, value).read();
}

double best_of(const std::vector<double>& values, std::size_t count, bool maximize) {
  const auto end = values.begin() + static_cast<std::ptrdiff_t>(std::min(count, values.size()));
  return maximize ? *std::max_element(values.begin(), end) : *std::min_element(values.begin(), end);
}

std::string why_terminated(const TerminationPolicy& policy, bool maximize, const Series& own,
                           const std::vector<Series>& others) {
  const std::size_t count = own.values.size() - own.values.size() % policy.interval;
  if (policy.kind == PolicyKind::none || count == 0 || count < policy.delay) return {};
  const double value = best_of(own.values, count, maximize);
  const auto comparable = reached(others, count);
  switch (policy.kind) {
    case PolicyKind::bandit:
      return bandit(policy, maximize, value, comparable, count);
    case PolicyKind::median_stopping:
      return median_stopping(maximize, own, comparable, count);
    case PolicyKind::truncation_selection:
      return truncation(policy, maximize, value, comparable, count);
    case PolicyKind::none:
      break;
  }
  return {};
}

}  // namespace amldist::run
