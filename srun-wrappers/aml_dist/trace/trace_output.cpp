#include "aml_dist/trace/trace_output.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>

#include "aml_dist/common/table.hpp"
#include "aml_dist/trace/call_places.hpp"
#include "base/text/text.hpp"
#include "shared/json.hpp"
#include "trace/diagnosis/straggler.hpp"
#include "trace/diagnosis/unreceived.hpp"
#include "trace/diagnosis/waits.hpp"

namespace amldist::tools {
namespace {

using nlohmann::ordered_json;
using text::concat;
using trace::CallRecord;
using trace::MissingRank;
using trace::Recording;
using trace::Stall;
using trace::Writer;
using trace::recorder_format::Ending;
using trace::recorder_format::State;

std::string_view word_of(Writer writer, Ending ending) {
  if (writer == Writer::runs) return "runs";
  if (writer == Writer::stopped) return "stopped";
  return ending == Ending::none ? "dead" : "closed";
}

std::string_view word_of(State state) {
  constexpr std::array<std::string_view, 5> words = {"empty", "enqueued", "started", "completed", "failed"};
  return words.at(static_cast<std::size_t>(state));
}

std::vector<std::string> row_of(const Recording& recording, std::int64_t now, bool has_places) {
  std::vector<std::string> row = {std::to_string(recording.rank), recording.host,
                                  std::string(word_of(recording.writer, recording.ending)),
                                  std::to_string(recording.recorded)};
  const CallRecord* const call = telling_call(recording);
  if (call == nullptr) return row;
  const std::int64_t since = std::max({call->ended_ns, call->started_ns, call->enqueued_ns});
  row.push_back(trace::describe_call(*call));
  row.emplace_back(word_of(call->state));
  row.push_back(describe_duration(now - since) + " ago");
  if (has_places) row.push_back(recording.place);
  return row;
}

std::string head_of(const TracedStep& step) {
  std::set<std::string> hosts;
  for (const Recording& recording : step.recordings) hosts.insert(recording.host);
  const std::size_t missing = step.size() - std::min<std::size_t>(step.size(), step.recordings.size());
  return concat({"step ", step.job(), ": ", text::count(step.size(), "rank"), ", recorders of ",
                 std::to_string(step.recordings.size()), " on ", text::count(hosts.size(), "node"), " in ", step.folder,
                 missing == 0 ? "" : "; ranks that ended well or ran elsewhere have no recorder here", "\n"});
}

std::uint64_t seconds_since(const TracedStep& step, std::int64_t since_ns) {
  return since_ns > 0 && step.now_ns > since_ns ? static_cast<std::uint64_t>(step.now_ns - since_ns) / 1'000'000'000
                                                : 0;
}

/// As srun says it under `hang=`, and then the calls of other communicators that cannot end.
std::string stall_lines(const TracedStep& step) {
  std::string out;
  if (step.hang) out = trace::sentence(*step.hang, seconds_since(step, step.hang->stall.since_ns)) + "\n";
  for (const Stall& stall : step.stalls) {
    if (step.hang && stall.communicator == step.hang->stall.communicator) continue;
    out += trace::sentence(stall, seconds_since(step, stall.since_ns), stall.waiting.size()) + "\n";
  }
  return out;
}

std::string agreement_lines(const TracedStep& step) {
  std::string out;
  for (const Agreement& each : step.agreements) out += each.sentence + "\n";
  return out;
}

std::string unreceived_lines(const TracedStep& step) {
  constexpr std::size_t most_shown = 8;
  const auto all = trace::find_unreceived(step.recordings);
  std::string out;
  for (std::size_t i = 0; i < std::min(all.size(), most_shown); ++i)
    out += concat({"not received: ", trace::describe(all[i]), "\n"});
  if (all.size() > most_shown)
    out += concat({"not received: and ", std::to_string(all.size() - most_shown), " more\n"});
  return out;
}

ordered_json object_of(const CallRecord& call) {
  return {{"sequence", call.sequence},
          {"operation", trace::name_of(call)},
          {"type", calls::to_string(call.type)},
          {"redop", calls::to_string(call.reduction)},
          {"bytes", call.bytes},
          {"peer", call.peer},
          {"tag", call.tag},
          {"communicator", call.communicator},
          {"state", word_of(call.state)},
          {"status", call.status},
          {"enqueued_ns", call.enqueued_ns},
          {"started_ns", call.started_ns},
          {"ended_ns", call.ended_ns}};
}

ordered_json object_of(const Recording& recording, std::size_t last) {
  ordered_json communicators = ordered_json::array();
  for (const auto& one : recording.communicators) {
    communicators.push_back({{"communicator", one.slot},
                             {"id", one.id},
                             {"name", one.name},
                             {"rank", one.rank},
                             {"size", one.size},
                             {"entered", one.entered},
                             {"completed", one.completed},
                             {"closed", one.closed}});
  }
  ordered_json calls = ordered_json::array();
  const std::size_t first = recording.calls.size() - std::min(last, recording.calls.size());
  for (std::size_t i = first; i < recording.calls.size(); ++i) calls.push_back(object_of(recording.calls[i]));
  return {{"rank", recording.rank},
          {"local_rank", recording.local_rank},
          {"host", recording.host},
          {"pid", recording.pid},
          {"process", word_of(recording.writer, recording.ending)},
          {"recorded", recording.recorded},
          {"started_ns", recording.created_ns},
          {"latest_ns", recording.latest_ns},
          {"note", recording.note},
          {"called_from", recording.place.empty() ? ordered_json() : ordered_json(recording.place)},
          {"communicators", std::move(communicators)},
          {"calls", std::move(calls)}};
}

ordered_json object_of(const Stall& stall) {
  ordered_json missing = ordered_json::array();
  for (const MissingRank& each : stall.missing) {
    missing.push_back({{"rank", each.rank},
                       {"host", each.host()},
                       {"why", tools::word_of(each.why)},
                       {"last", each.last != nullptr ? object_of(*each.last) : ordered_json()}});
  }
  return {{"sentence", trace::sentence(stall)},
          {"communicator", stall.communicator_name},
          {"operation", trace::name_of(stall.call)},
          {"sequence", stall.call.sequence},
          {"bytes", stall.call.bytes},
          {"type", calls::to_string(stall.call.type)},
          {"since_ns", stall.since_ns},
          {"waiting", stall.waiting},
          {"stragglers", std::move(missing)}};
}

ordered_json object_of(const trace::HangDiagnosis& hang, const TracedStep& step) {
  ordered_json ranks = ordered_json::array();
  for (const MissingRank& each : hang.stall.missing) ranks.push_back(each.rank);
  return {{"sentence", trace::sentence(hang, seconds_since(step, hang.stall.since_ns))},
          {"kind", trace::to_string(hang.kind)},
          {"ranks", std::move(ranks)}};
}

ordered_json agreements_of(const TracedStep& step) {
  ordered_json all = ordered_json::array();
  for (const Agreement& each : step.agreements) {
    all.push_back({{"witness", each.witness},
                   {"agrees", each.agrees ? ordered_json(*each.agrees) : ordered_json()},
                   {"sentence", each.sentence}});
  }
  return all;
}

ordered_json unreceived_of(const TracedStep& step) {
  ordered_json all = ordered_json::array();
  for (const auto& each : trace::find_unreceived(step.recordings))
    all.push_back({{"from", each.from}, {"to", each.to}, {"tag", each.tag}, {"count", each.count}});
  return all;
}

ordered_json object_of(const trace::StepWaits& waits, std::span<const Recording> recordings) {
  ordered_json ranks = ordered_json::array();
  for (const auto& each : waits.ranks) {
    ranks.push_back({{"rank", each.rank},
                     {"host", each.host},
                     {"calls", each.calls},
                     {"waited_ns", each.waited_ns},
                     {"share", waits.share_of(each)}});
  }
  const auto straggler = trace::name_straggler(recordings, waits);
  return {{"calls", waits.calls},
          {"waited_ns", waits.waited_ns},
          {"ranks", std::move(ranks)},
          {"straggler", straggler ? ordered_json(straggler->rank) : ordered_json()},
          {"sentence", straggler ? ordered_json(straggler->sentence) : ordered_json()}};
}

}  // namespace

std::string_view word_of(MissingRank::Why why) {
  constexpr std::array<std::string_view, 7> words = {"never-called", "stopped",     "dead", "slow",
                                                     "differs",      "no-recorder", "alone"};
  return words.at(static_cast<std::size_t>(why));
}

std::string describe_duration(std::int64_t nanoseconds) {
  const auto seconds = static_cast<double>(std::max<std::int64_t>(nanoseconds, 0)) * 1e-9;
  std::array<char, 64> words{};
  if (seconds < 1e-3) std::snprintf(words.data(), words.size(), "%.0f us", seconds * 1e6);
  else if (seconds < 1) std::snprintf(words.data(), words.size(), "%.1f ms", seconds * 1e3);
  else if (seconds < 100) std::snprintf(words.data(), words.size(), "%.1f s", seconds);
  else if (seconds < 6000) std::snprintf(words.data(), words.size(), "%.0f min", seconds / 60);
  else
    std::snprintf(words.data(), words.size(), "%.0f h %.0f min", std::floor(seconds / 3600),
                  std::floor(std::fmod(seconds / 60, 60)));
  return words.data();
}

std::string to_table(const TracedStep& step) {
  std::vector<std::vector<std::string>> rows = {{"RANK", "HOST", "PROCESS", "CALLS", "CALL", "STATE", "SINCE"}};
  const bool has_places =
      std::ranges::any_of(step.recordings, [](const Recording& each) { return !each.place.empty(); });
  if (has_places) rows.front().emplace_back("CALLED FROM");
  for (const Recording& recording : step.recordings) rows.push_back(row_of(recording, step.now_ns, has_places));
  std::string out = concat({head_of(step), "\n", format_table(rows)});
  if (step.hang || !step.stalls.empty() || !step.agreements.empty()) out += "\n";
  out += stall_lines(step) + agreement_lines(step);
  if (step.hang || !step.stalls.empty()) out += unreceived_lines(step);
  const auto waits = trace::find_waits(step.recordings);
  if (const auto straggler = trace::name_straggler(step.recordings, waits))
    out += concat({step.stalls.empty() ? "\n" : "", "straggler: ", straggler->sentence, "\n"});
  for (const Recording& recording : step.recordings) {
    if (!recording.note.empty())
      out += concat({"rank ", std::to_string(recording.rank), " found: ", recording.note, "\n"});
  }
  return out;
}

std::string to_json(const TracedStep& step, std::size_t last) {
  ordered_json recorders = ordered_json::array();
  for (const Recording& recording : step.recordings) recorders.push_back(object_of(recording, last));
  ordered_json stalls = ordered_json::array();
  for (const Stall& stall : step.stalls) stalls.push_back(object_of(stall));
  const ordered_json all = {{"job", step.job()},
                            {"folder", step.folder},
                            {"size", step.size()},
                            {"now_ns", step.now_ns},
                            {"stalls", std::move(stalls)},
                            {"hang", step.hang ? object_of(*step.hang, step) : ordered_json()},
                            {"agreement", agreements_of(step)},
                            {"unreceived", unreceived_of(step)},
                            {"waits", object_of(trace::find_waits(step.recordings), step.recordings)},
                            {"recorders", std::move(recorders)},
                            {"problems", step.problems}};
  return commands::json_text(all);
}

}  // namespace amldist::tools
