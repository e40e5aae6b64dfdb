#include "step/server/last_states.hpp"

#include <algorithm>

#include "step/messages/rank_state.hpp"
#include "trace/diagnosis/hang_diagnosis.hpp"

namespace amldist::step {

void LastStates::take(std::string_view text) {
  constexpr std::size_t most = 16384;
  constexpr std::int64_t now_ns = 1LL << 60;  // only the order of calls counts
  auto recording = parse_rank_state(text, tasks_, now_ns);
  if (!recording || states_.size() >= most) return;
  const auto [place, is_new] = states_.try_emplace({recording->rank, recording->source});
  if (is_new || place->second.writer != trace::Writer::gone) place->second = std::move(*recording);
}

bool LastStates::has_mpi() const {
  return states_.empty() || std::ranges::any_of(states_, [](const auto& each) { return each.first.second == "mpi"; });
}

/// nullopt, too, where ranks tell of different ones.
std::optional<RecordedCause> LastStates::told_wrong_call() const {
  const trace::Recording* told = nullptr;
  for (const auto& [key, state] : states_) {
    if (!state.wrong) continue;
    if (told == nullptr) told = &state;
    if (told->wrong != state.wrong) return std::nullopt;
  }
  if (told == nullptr) return std::nullopt;
  RecordedCause cause;
  cause.source = told->source;
  cause.wrong_call = told->note;
  if (!told->wrong->rank) return cause;
  cause.ranks = {*told->wrong->rank};
  const auto own = states_.lower_bound({cause.ranks.front(), ""});
  if (own != states_.end() && own->first.first == cause.ranks.front()) cause.node = own->second.host;
  return cause;
}

std::optional<RecordedCause> LastStates::cause() const {
  auto told = told_wrong_call();
  if (told && !told->ranks.empty()) return told;
  std::vector<trace::Recording> recordings;
  recordings.reserve(states_.size());
  for (const auto& [key, state] : states_) recordings.push_back(state);
  const auto diagnosis = trace::diagnose_hang(recordings);
  const bool is_wrong_call = diagnosis && diagnosis->kind == trace::HangDiagnosis::Kind::wrong_call;
  const bool is_decided = diagnosis && diagnosis->is_decided();
  if (told && !(is_decided && is_wrong_call)) return told;  // the first rank to die need not be the one that was wrong
  if (!is_decided && !is_wrong_call) return std::nullopt;
  RecordedCause cause;
  if (is_wrong_call) cause.wrong_call = trace::sentence(diagnosis->stall, 0, 0);
  if (!is_decided) return cause;  // its sentence says that nothing tells which of them is wrong
  for (const trace::MissingRank& each : diagnosis->stall.missing) {
    if (each.recording == nullptr) continue;
    cause.ranks.push_back(each.rank);
    cause.source = each.recording->source;
  }
  if (cause.ranks.empty()) return std::nullopt;
  cause.node = diagnosis->stall.missing.front().host();
  return cause;
}

}  // namespace amldist::step
