#include "aml_run/sweep/sweep_view.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

#include "aml_run/runs/run_view.hpp"
#include "aml_run/yaml/yaml_reading.hpp"
#include "base/text/text.hpp"
#include "shared/json.hpp"

namespace amldist::run {
namespace {

using nlohmann::ordered_json;
using text::concat;

constexpr std::size_t most_short_rows = 16;
constexpr std::size_t widest_value = 24;

std::string metric_text(const TrialResult& trial) {
  if (!trial.metric) return "-";
  std::array<char, 32> out{};
  std::snprintf(out.data(), out.size(), "%.6g", *trial.metric);
  return out.data();
}

/// A value in a cell: long numbers are rounded, control characters escaped, long texts cut.
std::string cell(std::string_view text) {
  std::string out;
  if (const auto number = text.size() > 10 ? finite_number(std::string(text)) : std::nullopt) {
    std::array<char, 32> short_form{};
    std::snprintf(short_form.data(), short_form.size(), "%.6g", *number);
    return short_form.data();
  }
  for (const char c : text) out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  if (out.size() <= widest_value) return out;
  std::size_t cut = widest_value - 3;
  while (cut > 0 && (static_cast<unsigned char>(out[cut]) & 0xc0U) == 0x80) --cut;
  return out.substr(0, cut) + "...";
}

/// Characters, not bytes: counts the bytes that begin one in UTF-8.
std::size_t characters_of(std::string_view text) {
  return static_cast<std::size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0U) != 0x80; }));
}

std::vector<std::string> row_of(const SweepResults& results, std::size_t i) {
  const TrialResult& trial = results.trials[i];
  std::vector<std::string> cells = {std::to_string(trial.number)};
  for (const std::string& value : results.record.trials[i]) cells.push_back(cell(value));
  std::string state = text::to_lower(trial.state);
  if (trial.exit_status != 0 && trial.state == "FAILED")
    state += concat({" (", std::to_string(trial.exit_status), ")"});
  cells.push_back(std::move(state));
  cells.push_back(concat({metric_text(trial), results.best == i ? " *" : ""}));
  return cells;
}

/// The trials of a short table: those that run, then the best, as many as fit.
std::vector<std::size_t> short_rows(const SweepResults& results) {
  std::vector<std::size_t> rows;
  for (std::size_t i = 0; i < results.trials.size() && rows.size() < most_short_rows / 2; ++i) {
    if (results.trials[i].state == "RUNNING") rows.push_back(i);
  }
  std::vector<std::size_t> ended;
  for (std::size_t i = 0; i < results.trials.size(); ++i) {
    if (results.trials[i].metric && results.trials[i].state != "RUNNING") ended.push_back(i);
  }
  std::ranges::stable_sort(ended, [&](std::size_t a, std::size_t b) {
    return results.record.maximize ? *results.trials[a].metric > *results.trials[b].metric
                                   : *results.trials[a].metric < *results.trials[b].metric;
  });
  for (std::size_t i = 0; i < ended.size() && rows.size() < most_short_rows; ++i) rows.push_back(ended[i]);
  std::ranges::sort(rows);
  return rows;
}

std::string_view escape_of(const SweepResults& results, std::size_t i) {
  const std::string& state = results.trials[i].state;
  if (results.best == i) return "\033[1;32m";
  if (state == "RUNNING") return "\033[36m";
  if (state == "FAILED" || state == "TIMEOUT" || state == "OUT_OF_MEMORY" || state == "NODE_FAIL") return "\033[31m";
  return state == "COMPLETED" ? "" : "\033[2m";
}

std::map<std::string, std::size_t> counts_of(const SweepResults& results) {
  std::map<std::string, std::size_t> counts;
  for (const TrialResult& trial : results.trials) ++counts[text::to_lower(trial.state)];
  return counts;
}

}  // namespace

std::vector<std::string> draw_sweep(const SweepResults& results, bool colour, bool short_form) {
  std::vector<std::vector<std::string>> table(1);
  table[0].emplace_back("trial");
  for (const std::string& name : results.record.names) table[0].push_back(cell(name));
  table[0].emplace_back("state");
  table[0].push_back(cell(results.record.metric));
  std::vector<std::size_t> rows;
  const bool shortened = short_form && results.trials.size() > most_short_rows;
  if (shortened) rows = short_rows(results);
  for (std::size_t i = 0; i < results.trials.size() && !shortened; ++i) rows.push_back(i);
  for (const std::size_t i : rows) table.push_back(row_of(results, i));
  std::vector<std::size_t> widths(table[0].size(), 0);
  for (const auto& cells : table) {
    for (std::size_t i = 0; i < cells.size(); ++i) widths[i] = std::max(widths[i], characters_of(cells[i]));
  }
  std::vector<std::string> lines;
  for (std::size_t row = 0; row < table.size(); ++row) {
    std::string line;
    for (std::size_t i = 0; i < table[row].size(); ++i) {
      line += table[row][i];
      if (i + 1 < table[row].size()) line += std::string(widths[i] - characters_of(table[row][i]) + 2, ' ');
    }
    const std::string_view escape = !colour ? "" : row == 0 ? "\033[1m" : escape_of(results, rows[row - 1]);
    lines.push_back(concat({escape, line, escape.empty() ? "" : "\033[0m"}));
  }
  lines.push_back(summary_of(results));
  return lines;
}

std::string summary_of(const SweepResults& results) {
  std::string metric = results.record.metric;
  std::ranges::replace_if(
      metric, [](char c) { return static_cast<unsigned char>(c) < 0x20; }, ' ');
  std::string out;
  for (const auto& [state, count] : counts_of(results))
    out += concat({out.empty() ? "" : ", ", std::to_string(count), " ", state});
  out = concat({text::count(results.trials.size(), "trial"), ": ", out});
  if (!results.best) return concat({out, "; no trial has reported ", metric});
  const TrialResult& best = results.trials[*results.best];
  out += concat({"; best: trial ", std::to_string(best.number), " with ", metric, " ", metric_text(best), " ("});
  for (std::size_t i = 0; i < results.record.names.size(); ++i) {
    out += concat({i > 0 ? ", " : "", results.record.names[i], "=", cell(results.record.trials[*results.best][i])});
  }
  return out + ")";
}

std::string sweep_to_json(const Run& run, const RunState& state, const SweepResults& results) {
  const auto parameters = [&](std::size_t i) {
    auto out = ordered_json::object();
    for (std::size_t k = 0; k < results.record.names.size(); ++k)
      out[results.record.names[k]] = results.record.trials[i][k];
    return out;
  };
  ordered_json out = {{"run", run.name}, {"kind", run.kind}, {"state", word_for(state)}, {"folder", run.folder}};
  out["exit_status"] = state.ended() ? ordered_json(exit_status_of(run, state)) : ordered_json();
  out["objective"] = {{"metric", results.record.metric}, {"goal", results.record.maximize ? "maximize" : "minimize"}};
  out["best"] = ordered_json();
  if (results.best) {
    out["best"] = {{"trial", results.trials[*results.best].number},
                   {"metric", *results.trials[*results.best].metric},
                   {"parameters", parameters(*results.best)},
                   {"folder", trial_folder(run.folder, results.trials[*results.best].number)}};
  }
  out["trials"] = ordered_json::array();
  for (std::size_t i = 0; i < results.trials.size(); ++i) {
    const TrialResult& trial = results.trials[i];
    ordered_json row = {{"trial", trial.number},  {"parameters", parameters(i)}, {"state", trial.state},
                        {"job_id", trial.job_id}, {"reports", trial.reports},    {"exit_status", trial.exit_status}};
    row["metric"] = trial.metric ? ordered_json(*trial.metric) : ordered_json();
    row["best"] = results.best == i;
    if (!trial.why.empty()) row["why"] = trial.why;
    row["folder"] = trial_folder(run.folder, trial.number);
    out["trials"].push_back(std::move(row));
  }
  return commands::json_text(out);
}

}  // namespace amldist::run
