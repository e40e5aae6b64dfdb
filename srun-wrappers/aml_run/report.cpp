#include "aml_run/report.hpp"

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/text/text.hpp"
#include "shared/json.hpp"
#include "shared/terminal.hpp"

namespace amldist::run {
namespace {

using nlohmann::ordered_json;
using text::concat;

ordered_json ignored_json(const std::vector<Ignored>& ignored) {
  auto out = ordered_json::array();
  for (const Ignored& each : ignored) {
    out.push_back(
        {{"key", each.path}, {"line", each.location.line}, {"column", each.location.column}, {"why", each.why}});
  }
  return out;
}

std::string seconds_text(double seconds) {
  char out[32];
  std::snprintf(out, sizeof out, "%.0f s", seconds);
  return out;
}

}  // namespace

std::string to_json(const Plan& plan, const std::string& script, const std::string& job_id, const JobState* state,
                    const Followed* followed) {
  ordered_json out;
  if (job_id.empty()) out["job_id"] = nullptr;
  else out["job_id"] = std::stoull(job_id);
  out["name"] = plan.job.value_of("job-name");
  out["aml_dist"] = plan.option;
  if (state != nullptr) out["output"] = state->output;
  if (followed != nullptr) {
    out["state"] = followed->state.state;
    out["exit_status"] = followed->detached ? ordered_json() : ordered_json(exit_status_of(*followed));
    out["nodes"] = followed->state.nodes;
    out["seconds"] = followed->seconds;
    out["first_failure"] = followed->first_failure ? ordered_json(followed->first_failure->sentence) : ordered_json();
  }
  out["ignored"] = ignored_json(plan.ignored);
  out["script"] = script;
  return commands::json_text(out, 2);
}

std::string keys_as_table() {
  std::size_t width = 0;
  for (const SchemaKey& key : job_schema()) width = std::max(width, key.path.size());
  std::string out;
  for (const SchemaKey& key : job_schema()) {
    const std::string_view handling = to_string(key.handling);
    out += concat({key.path, std::string(width + 2 - key.path.size(), ' '), handling,
                   std::string(12 - handling.size(), ' '), key.becomes, "\n"});
  }
  return out;
}

std::string keys_as_json() {
  auto out = ordered_json::array();
  for (const SchemaKey& key : job_schema()) {
    ordered_json row = {{"key", key.path}, {"handling", to_string(key.handling)}, {"becomes", key.becomes}};
    if (!key.allowed.empty()) row["allowed"] = text::split(key.allowed, ' ');
    out.push_back(std::move(row));
  }
  return commands::json_text(out, 1);
}

void say_ignored(const Plan& plan) {
  if (plan.ignored.empty()) return;
  std::vector<std::string_view> names;
  for (const Ignored& each : plan.ignored) names.emplace_back(each.path);
  commands::say(concat({plan.source, ": without effect here: ", text::join(names), " (the script says why)"}),
                commands::Tone::faint);
}

namespace {

/// A batch script whose output cannot be opened does not start, and leaves no message about it.
std::string missing_output(const JobState& state) {
  std::error_code unknown;
  const bool is_missing = !state.output.empty() && !std::filesystem::exists(state.output, unknown) && !unknown;
  if (state.state != "FAILED" || !is_missing) return {};
  return concat({"; its output file ", state.output,
                 " was never created: check that you may write there from the job's first node"});
}

}  // namespace

void say_end(const std::string& id, const Followed& followed) {
  const int status = exit_status_of(followed);
  const std::string after = concat({" after ", seconds_text(followed.seconds)});
  if (status == 0) {
    commands::say(concat({"job ", id, " completed", after}), commands::Tone::good);
    return;
  }
  commands::say(concat({"job ", id, " ended as ", followed.state.state, after, ", exit status ", std::to_string(status),
                        followed.first_failure ? concat({"; first failure: ", followed.first_failure->sentence}) : "",
                        missing_output(followed.state)}),
                commands::Tone::bad);
}

}  // namespace amldist::run
