// Large steps that stand still in the ways that could cost more than a look at each rank.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "trace/record/record_reader.hpp"

namespace amldist::trace::testing {

enum class StandStill : std::uint8_t { one_missing, all_but_one_missing, grid, ring, from_any, all_dead, many_groups };
inline constexpr std::array<StandStill, 7> stand_stills = {
    StandStill::one_missing, StandStill::all_but_one_missing, StandStill::grid, StandStill::ring, StandStill::from_any,
    StandStill::all_dead,    StandStill::many_groups};
inline const char* name_of(StandStill what) {
  constexpr std::array<const char*, 7> names = {
      "one missing", "all but one missing", "grid", "ring of messages", "from any rank", "all dead", "many groups"};
  return names.at(static_cast<std::size_t>(what));
}

/// `ranks`: a multiple of 32.
inline std::vector<Recording> standing_still(StandStill what, std::uint32_t ranks) {
  using calls::Operation;
  constexpr std::int64_t start = 1'700'000'000'000'000'000;
  constexpr std::uint32_t row = 32;
  std::vector<Recording> step(ranks);
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    Recording& own = step[rank];
    own.rank = rank;
    own.size = ranks;
    own.host = "node" + std::to_string(rank / 8);
    own.local_rank = rank % 8;
    own.source = "mpi";
    own.writer = what == StandStill::all_dead ? Writer::gone : Writer::runs;
    own.communicators.push_back({0, 1, rank, ranks, 0, 0, false, "world", MemberRanks::row(0, 1, ranks)});
    own.communicators.push_back(
        {1, 1000 + rank / row, rank % row, row, 0, 0, false, "row", MemberRanks::row(rank / row * row, 1, row)});
    const auto call = [&](std::uint32_t slot, Operation operation, std::int32_t peer = -1) {
      CallRecord made;
      made.ticket = own.calls.size() + 1;
      made.sequence = peer == -1 ? ++own.communicators[slot].entered : 0;
      made.operation = operation;
      made.communicator = slot;
      made.peer = peer;
      made.state = recorder_format::State::started;
      made.enqueued_ns = made.started_ns = start;
      own.calls.push_back(made);
    };
    const auto next = static_cast<std::int32_t>((rank + 1) % ranks);
    switch (what) {
      case StandStill::one_missing:
        if (rank != ranks / 2) call(0, Operation::barrier);
        break;
      case StandStill::all_but_one_missing:
        if (rank == 0) call(0, Operation::barrier);
        break;
      case StandStill::grid:  // one rank leaves out its row, the others of which wait there
        call(rank / row == 1 && rank != row ? 1 : 0, Operation::allreduce);
        break;
      case StandStill::ring:
      case StandStill::all_dead:
        call(0, Operation::send, next);
        break;
      case StandStill::from_any:
        call(0, Operation::recv, recorder_format::any_peer);
        break;
      case StandStill::many_groups:  // in each row another rank than the first has not come
        if (rank % row != 7) call(1, Operation::barrier);
        break;
    }
  }
  return step;
}

}  // namespace amldist::trace::testing
