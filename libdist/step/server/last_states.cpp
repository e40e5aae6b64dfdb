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

std::optional<RecordedCause> LastStates::cause() const {
  std::vector<trace::Recording> recordings;
  recordings.reserve(states_.size());
  for (const auto& [key, state] : states_) recordings.push_back(state);
  const auto diagnosis = trace::diagnose_hang(recordings);
  if (!diagnosis || !diagnosis->is_decided()) return std::nullopt;
  RecordedCause cause;
  for (const trace::MissingRank& each : diagnosis->stall.missing) {
    if (each.recording == nullptr) continue;
    cause.ranks.push_back(each.rank);
    cause.source = each.recording->source;
  }
  if (cause.ranks.empty()) return std::nullopt;
  cause.node = diagnosis->stall.missing.front().host();
  if (diagnosis->kind == trace::HangDiagnosis::Kind::wrong_call)
    cause.wrong_call = trace::sentence(diagnosis->stall, 0, 0);
  return cause;
}

}  // namespace amldist::step
