#include "aml_run/sweep/sweep_store.hpp"

#include <nlohmann/json.hpp>

#include "aml_run/owned_folder.hpp"
#include "aml_run/sweep/metrics.hpp"
#include "base/text/text.hpp"
#include "shared/json.hpp"
#include "shared/programs.hpp"

namespace amldist::run {
namespace {

using nlohmann::ordered_json;
using text::concat;

constexpr std::size_t longest_sweep_file = std::size_t{64} * 1024 * 1024;

ordered_json policy_to_json(const TerminationPolicy& policy) {
  return {{"kind", static_cast<int>(policy.kind)},
          {"interval", policy.interval},
          {"delay", policy.delay},
          {"slack_factor", policy.slack_factor},
          {"slack_amount", policy.slack_amount},
          {"percentage", policy.percentage},
          {"exclude_finished", policy.exclude_finished}};
}

std::string text_of(const std::string& file) {
  auto text = commands::read_file(file, 4096);
  return text ? std::move(*text) : std::string();
}

TerminationPolicy policy_of(const ordered_json& json) {
  TerminationPolicy policy;
  policy.kind = static_cast<TerminationPolicy::Kind>(json.at("kind").get<int>());
  policy.interval = std::max<std::size_t>(1, json.at("interval").get<std::size_t>());
  policy.delay = json.at("delay").get<std::size_t>();
  policy.slack_factor = json.at("slack_factor").get<double>();
  policy.slack_amount = json.at("slack_amount").get<double>();
  policy.percentage = json.at("percentage").get<double>();
  policy.exclude_finished = json.at("exclude_finished").get<bool>();
  return policy;
}

}  // namespace

std::string trial_folder(const std::string& sweep_folder, std::uint32_t number) {
  return concat({sweep_folder, "/trials/", std::to_string(number)});
}

Result<void> write_sweep(const std::string& folder, const SweepRecord& record) {
  const auto sweep = OwnedFolder::open(folder, OwnedFolder::Missing::is_made);
  if (!sweep) return sweep.error();
  const auto trials = sweep->enter("trials", OwnedFolder::Missing::is_made);
  if (!trials) return trials.error();
  for (std::uint32_t number = 1; number <= record.trials.size(); ++number) {
    if (auto status = trials->enter(std::to_string(number), OwnedFolder::Missing::is_made); !status)
      return status.error();
  }
  const ordered_json json = {{"names", record.names},
                             {"trials", record.trials},
                             {"metric", record.metric},
                             {"maximize", record.maximize},
                             {"pattern", record.pattern},
                             {"policy", policy_to_json(record.policy)},
                             {"timeout_seconds", record.timeout_seconds},
                             {"outputs", record.outputs}};
  return sweep->write("sweep.json", commands::json_text(json, 1));
}

Result<SweepRecord> read_sweep_record(const std::string& folder) {
  const auto sweep = OwnedFolder::open(folder);
  if (!sweep) return sweep.error();
  const auto content = sweep->read("sweep.json", longest_sweep_file);
  if (!content) return content.error();
  try {
    const auto json = commands::parse_json(*content);
    SweepRecord record;
    record.names = json.at("names").get<std::vector<std::string>>();
    record.trials = json.at("trials").get<std::vector<Trial>>();
    record.metric = json.at("metric").get<std::string>();
    record.maximize = json.at("maximize").get<bool>();
    record.pattern = json.at("pattern").get<std::string>();
    record.policy = policy_of(json.at("policy"));
    record.timeout_seconds = json.at("timeout_seconds").get<std::uint64_t>();
    record.outputs = json.at("outputs").get<std::map<std::string, std::string>>();
    return record;
  } catch (const nlohmann::json::exception&) {
    return Error{Errc::invalid_argument, concat({folder, "/sweep.json cannot be read: aml-run did not write it"})};
  }
}

std::optional<std::size_t> find_best(const std::vector<TrialResult>& trials, bool maximize) {
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < trials.size(); ++i) {
    const TrialResult& trial = trials[i];
    const bool counts = trial.metric && (trial.state == "COMPLETED" || trial.state == "TERMINATED");
    if (!counts) continue;
    const bool better =
        !best || (maximize ? *trial.metric > *trials[*best].metric : *trial.metric < *trials[*best].metric);
    if (better) best = i;
  }
  return best;
}

Result<SweepResults> read_results(const std::string& folder, const std::vector<WorkState>& states) {
  auto record = read_sweep_record(folder);
  if (!record) return record.error();
  SweepResults out;
  for (std::uint32_t number = 1; number <= record->trials.size(); ++number) {
    const std::string own = trial_folder(folder, number);
    TrialResult trial;
    trial.number = number;
    if (number <= states.size()) {
      const WorkState& work = states[number - 1];
      trial.state = work.state;
      trial.job_id = work.job_id;
      trial.exit_status = work.ended() && !work.good() ? work.exit_status : 0;
    }
    const auto values = read_trial_metrics(own, record->metric, record->pattern);
    trial.reports = values.size();
    if (!values.empty()) trial.metric = best_of(values, values.size(), record->maximize);
    if (trial.state == "TERMINATED") trial.why = text_of(own + "/terminated");
    out.trials.push_back(std::move(trial));
  }
  out.best = find_best(out.trials, record->maximize);
  out.record = std::move(*record);
  return out;
}

}  // namespace amldist::run
