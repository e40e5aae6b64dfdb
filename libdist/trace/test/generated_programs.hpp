// Programs that nobody wrote: random groups, a random schedule of matched calls, and one fault of a known kind at a
// known rank. They run on a model of ranks that block, until no rank can go on; the result is recordings as a reader
// gives them.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "trace/diagnosis/given_up.hpp"
#include "trace/record/record_reader.hpp"

namespace amldist::trace::testing {

/// A rank that computes, is blocked in I/O, or is slow looks the same in the records: `busy`.
enum class Fault : std::uint8_t { none, skip, extra, order, root, count, exception, exit, abort, kill, stop, busy };
inline const char* name_of(Fault fault) {
  constexpr std::array<const char*, 12> names = {"none",      "skip", "extra", "order", "root", "count",
                                                 "exception", "exit", "abort", "kill",  "stop", "busy"};
  return names.at(static_cast<std::size_t>(fault));
}

struct ModelCall {
  std::size_t group = 0;
  calls::Operation operation = calls::Operation::allreduce;
  std::uint64_t bytes = 4096;
  std::int32_t root = -1;  ///< of a message: the other rank, in the group

  [[nodiscard]] bool is_message() const { return !recorder_format::is_collective(operation); }
  [[nodiscard]] bool matches(const ModelCall& other) const {
    return operation == other.operation && bytes == other.bytes && root == other.root;
  }
  bool operator==(const ModelCall&) const = default;
};

/// What each rank calls, in order.
struct Program {
  std::uint32_t ranks = 0;
  std::vector<std::vector<std::uint32_t>> groups;  ///< the first is the world
  std::vector<std::vector<ModelCall>> calls;       ///< by rank
  std::size_t posted = 1;                          ///< calls that a rank begins before it waits for the first of them
  bool root_leaves = false;                        ///< a broadcast ends at its root before the others have come
  bool errors_return = false;  ///< a call that gets more than it takes fails, and its rank goes to its last call of all
  Fault fault = Fault::none;
  std::uint32_t culprit = 0;
  std::size_t at = 0;  ///< of the fault: a place in the culprit's calls
};

/// Runs a program until nobody can go on.
class Model {
 public:
  Model(const Program& program, std::uint64_t seed) : program_(program), random_(seed), ranks_(program.ranks) {
    for (std::uint32_t rank = 0; rank < program.ranks; ++rank) ranks_[rank].recording = empty_recording(rank);
  }

  std::vector<Recording> run() {
    std::vector<std::uint32_t> order(program_.ranks);
    for (std::uint32_t rank = 0; rank < program_.ranks; ++rank) order[rank] = rank;
    for (bool moves = true; moves;) {
      moves = false;
      std::ranges::shuffle(order, random_);
      for (const std::uint32_t rank : order) moves |= step(rank);
    }
    std::vector<Recording> all;
    for (std::uint32_t rank = 0; rank < program_.ranks; ++rank) all.push_back(finished(rank));
    return all;
  }

 private:
  struct Rank {
    Recording recording;
    std::size_t next = 0;
    std::deque<std::size_t> open;  ///< indices of calls
  };

  [[nodiscard]] Recording empty_recording(std::uint32_t rank) const {
    Recording recording;
    recording.rank = rank;
    recording.size = program_.ranks;
    recording.local_rank = rank % 4;
    recording.host = "node" + std::to_string(rank / 4);
    recording.source = "mpi";
    recording.writer = Writer::runs;
    for (std::size_t i = 0; i < program_.groups.size(); ++i) {
      const auto& group = program_.groups[i];
      const auto own = std::ranges::find(group, rank);
      if (own == group.end()) continue;
      recording.communicators.push_back({static_cast<std::uint32_t>(recording.communicators.size()), 100 + i,
                                         static_cast<std::uint32_t>(own - group.begin()),
                                         static_cast<std::uint32_t>(group.size()), 0, 0, false,
                                         i == 0 ? "world" : "group " + std::to_string(i), MemberRanks::of(group)});
    }
    for (std::size_t i = 0; i < program_.groups.size(); ++i) make_group(recording);
    return recording;
  }
  /// All of the world have made each group together before the first call.
  static void make_group(Recording& recording) {
    CallRecord call;
    call.ticket = recording.calls.size() + 1;
    call.sequence = ++recording.communicators.front().entered;
    call.state = recorder_format::State::completed;
    call.operation = recorder_format::other::create;
    call.type = calls::DataType{255};
    call.enqueued_ns = call.started_ns = call.ended_ns = 1'600'000'000'000'000'000;
    recording.calls.push_back(call);
  }

  [[nodiscard]] bool has_fault(std::uint32_t rank, Fault fault) const {
    return program_.fault == fault && rank == program_.culprit && ranks_[rank].next >= program_.at;
  }
  [[nodiscard]] bool stands_still(std::uint32_t rank) const {
    return has_fault(rank, Fault::exit) || has_fault(rank, Fault::abort) || has_fault(rank, Fault::busy) ||
           has_fault(rank, Fault::stop) || has_fault(rank, Fault::kill);
  }

  bool step(std::uint32_t rank) {
    Rank& own = ranks_[rank];
    while (!own.open.empty() && !own.recording.calls[own.open.front()].pending()) own.open.pop_front();
    const bool at_end = own.next == program_.calls[rank].size() || stands_still(rank);
    const bool waits = !own.open.empty() && (at_end || own.open.size() >= program_.posted);
    const bool is_held = program_.fault == Fault::stop || program_.fault == Fault::kill;
    if (waits && !(stands_still(rank) && !is_held)) wait_in(own);
    if (waits || at_end) return false;
    begin(rank, program_.calls[rank][own.next++]);
    return true;
  }

  void wait_in(Rank& own) {
    CallRecord& call = own.recording.calls[own.open.front()];
    if (call.state == recorder_format::State::started) return;
    call.state = recorder_format::State::started;
    call.started_ns = ++now_ns_;
  }

  void begin(std::uint32_t rank, const ModelCall& what) {
    Rank& own = ranks_[rank];
    auto& communicators = own.recording.communicators;
    auto& communicator = *std::ranges::find(communicators, 100 + what.group, &CommunicatorRecord::id);
    CallRecord call;
    call.ticket = own.recording.calls.size() + 1;
    call.sequence = what.is_message() ? 0 : ++communicator.entered;
    call.bytes = what.bytes;
    call.enqueued_ns = ++now_ns_;
    call.communicator = communicator.slot;
    call.peer = what.root;
    call.state = recorder_format::State::enqueued;
    call.operation = what.operation;
    call.type = calls::DataType::float32;
    own.recording.calls.push_back(call);
    own.open.push_back(own.recording.calls.size() - 1);
    const Made latest{rank, own.recording.calls.size() - 1, what};
    if (what.is_message()) return meet(latest, communicator.rank);
    auto& met = calls_[{what.group, call.sequence}];
    met.push_back(latest);
    const auto& group = program_.groups[what.group];
    if (program_.root_leaves && what.operation == calls::Operation::broadcast &&
        group[static_cast<std::size_t>(what.root)] == rank)
      end(met.back());
    const bool all_match =
        std::ranges::all_of(met, [&](const Made& made) { return made.what.matches(met.front().what); });
    if (met.size() == group.size() && all_match) std::ranges::for_each(met, [this](const Made& made) { end(made); });
    if (met.size() == group.size() && !all_match && program_.errors_return) fail_shorter(met);
  }

  struct Made {
    std::uint32_t rank;
    std::size_t call;
    ModelCall what;
  };
  /// Where only sizes differ: who has given the largest ends the call.
  void fail_shorter(const std::vector<Made>& met) {
    std::uint64_t most = 0;
    for (const Made& made : met) {
      const ModelCall& first = met.front().what;
      if (made.what.operation != first.operation || made.what.root != first.root) return;
      most = std::max(most, made.what.bytes);
    }
    for (const Made& made : met) made.what.bytes == most ? end(made) : fail(made);
  }
  void fail(const Made& made) {
    Rank& own = ranks_[made.rank];
    CallRecord& call = own.recording.calls[made.call];
    if (call.state == recorder_format::State::completed) return;  // a root that has left
    call.ended_ns = ++now_ns_;
    call.state = recorder_format::State::failed;
    call.status = recorder_format::too_long;
    const auto& calls = program_.calls[made.rank];
    const bool has_last = !calls.empty() && calls.back().operation == calls::Operation::finalize;
    own.next = std::max(own.next, has_last ? calls.size() - 1 : calls.size());
  }
  /// A message ends when both have come to it, in the order of their calls.
  void meet(const Made& made, std::uint32_t rank) {
    const auto peer = static_cast<std::uint32_t>(made.what.root);
    const bool is_send = made.what.operation == calls::Operation::send;
    const auto from = is_send ? rank : peer;
    const auto to = is_send ? peer : rank;
    auto& open = messages_[{made.what.group, from, to}];
    if (open.empty() || open.front().what.operation == made.what.operation) return open.push_back(made);
    end(open.front());
    end(made);
    open.pop_front();
  }
  void end(const Made& made) {
    CallRecord& call = ranks_[made.rank].recording.calls[made.call];
    if (call.state == recorder_format::State::completed) return;
    if (call.started_ns == 0) call.started_ns = call.enqueued_ns;
    call.ended_ns = ++now_ns_;
    call.state = recorder_format::State::completed;
  }

  Recording finished(std::uint32_t rank) {
    Rank& own = ranks_[rank];
    Recording& recording = own.recording;
    recording.recorded = recording.calls.size();
    const bool is_aborted = program_.fault == Fault::abort;
    const bool has_ended = own.next == program_.calls[rank].size() && own.open.empty();
    if (has_ended || has_fault(rank, Fault::exit)) {
      recording.writer = Writer::gone;
      // Where MPI_Finalize closes the recorder, exit() without it leaves it open.
      const bool is_closed = has_ended || program_.calls[rank].back().operation != calls::Operation::finalize;
      recording.ending = is_closed ? recorder_format::Ending::well : recorder_format::Ending::none;
      if (given_up_in(recording) != nullptr) recording.ending = recorder_format::Ending::failed;
    }
    if (has_fault(rank, Fault::stop)) recording.writer = Writer::stopped;
    if (has_fault(rank, Fault::kill)) recording.writer = Writer::gone;
    if (is_aborted && !has_ended) recording.writer = Writer::gone;  // it takes the others with it
    if (has_fault(rank, Fault::exit) || has_fault(rank, Fault::abort)) {
      for (const std::size_t call : own.open) recording.calls[call].state = recorder_format::State::completed;
    }
    return recording;
  }

  const Program& program_;
  std::mt19937_64 random_;
  std::vector<Rank> ranks_;
  std::map<std::pair<std::size_t, std::uint64_t>, std::vector<Made>> calls_;                    ///< by group and number
  std::map<std::tuple<std::size_t, std::uint32_t, std::uint32_t>, std::deque<Made>> messages_;  ///< by group, from, to
  std::int64_t now_ns_ = 1'700'000'000'000'000'000;
};

/// A program by its seed. Its groups are those of a grid, or splits, or overlap at will; its calls are a random
/// pattern, repeated as training steps and time steps are.
class ProgramGenerator {
 public:
  explicit ProgramGenerator(std::uint64_t seed) : random_(seed) {}

  Program make(Fault fault) {
    Program program;
    const bool is_grid = make_groups(program);
    const auto pattern = make_pattern(program);
    const std::size_t rounds = 5 + below(4);
    program.calls.resize(program.ranks);
    std::vector<std::vector<std::size_t>> starts(program.ranks);
    for (std::size_t round = 0; round < rounds; ++round) {
      for (std::uint32_t rank = 0; rank < program.ranks; ++rank) starts[rank].push_back(program.calls[rank].size());
      for (const ModelCall& call : pattern) add(program, call);
    }
    if (below(2) == 0) {
      for (auto& calls : program.calls) calls.push_back({0, calls::Operation::finalize, 0, -1});
    }
    program.posted = below(3) == 0 ? 1 + below(3) : 1;
    program.root_leaves = below(2) == 0;
    program.fault = fault;
    program.culprit = static_cast<std::uint32_t>(below(program.ranks));
    const auto& own = starts[program.culprit];
    // Where all ranks make the same calls in the same order, even the first round may fail; else a rank's own past, of
    // three rounds at least, must tell.
    const bool has_messages = std::ranges::any_of(pattern, &ModelCall::is_message);
    const std::size_t first = own[is_grid && !has_messages ? 0 : 3];
    const std::size_t end = own.back();
    program.at = first + below(std::max<std::size_t>(1, end - first));
    apply(program);
    program.errors_return = program.posted == 1 && below(3) == 0;
    return program;
  }

 private:
  /// A message is in the pattern as its send, with the sender in `bytes`.
  static void add(Program& program, const ModelCall& call) {
    const auto& group = program.groups[call.group];
    if (!call.is_message()) {
      for (const std::uint32_t rank : group) program.calls[rank].push_back(call);
      return;
    }
    const auto from = static_cast<std::size_t>(call.bytes);
    program.calls[group[from]].push_back({call.group, calls::Operation::send, 1024, call.root});
    program.calls[group[static_cast<std::size_t>(call.root)]].push_back(
        {call.group, calls::Operation::recv, 1024, static_cast<std::int32_t>(from)});
  }
  std::size_t below(std::size_t end) { return std::uniform_int_distribution<std::size_t>(0, end - 1)(random_); }

  bool make_groups(Program& program) {
    const std::size_t way = below(3);
    const std::uint32_t rows = 2 + static_cast<std::uint32_t>(below(3));
    const std::uint32_t columns = 2 + static_cast<std::uint32_t>(below(3));
    program.ranks = rows * columns;
    auto& groups = program.groups;
    groups.emplace_back();
    for (std::uint32_t rank = 0; rank < program.ranks; ++rank) groups.front().push_back(rank);
    if (way == 0) {
      for (std::uint32_t row = 0; row < rows; ++row) {
        groups.emplace_back();
        for (std::uint32_t column = 0; column < columns; ++column) groups.back().push_back(row * columns + column);
      }
      for (std::uint32_t column = 0; column < columns; ++column) {
        groups.emplace_back();
        for (std::uint32_t row = 0; row < rows; ++row) groups.back().push_back(row * columns + column);
      }
      rows_ = rows;
      columns_ = columns;
      return true;
    }
    const std::size_t more = 1 + below(4);
    for (std::size_t i = 0; i < more; ++i) {
      std::vector<std::uint32_t> all = groups.front();
      std::ranges::shuffle(all, random_);
      const std::size_t size = 2 + below(all.size() - 1);
      std::vector<std::uint32_t> part(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(size));
      std::ranges::sort(part);
      groups.push_back(part);
      std::vector<std::uint32_t> rest(all.begin() + static_cast<std::ptrdiff_t>(size), all.end());
      std::ranges::sort(rest);
      if (way == 1 && rest.size() > 1) groups.push_back(rest);  // both parts of a split
    }
    return false;
  }

  ModelCall make_call(const Program& program, std::size_t group) {
    constexpr std::array<calls::Operation, 4> operations = {calls::Operation::allreduce, calls::Operation::broadcast,
                                                            calls::Operation::barrier, calls::Operation::allgather};
    ModelCall call{group, operations.at(below(operations.size())), 1024 * (1 + below(3)), -1};
    if (call.operation == calls::Operation::barrier) call.bytes = 0;
    if (call.operation == calls::Operation::broadcast)
      call.root = static_cast<std::int32_t>(below(program.groups[group].size()));
    return call;
  }

  std::vector<ModelCall> make_pattern(const Program& program) {
    std::vector<ModelCall> pattern;
    const std::size_t length = 2 + below(5);
    const bool has_shifts = below(4) == 0;
    for (std::size_t i = 0; i < length; ++i) {
      if (has_shifts && below(4) == 0) {  // a shift: each sends to the next, and the last to nobody
        const std::size_t group = below(program.groups.size());
        for (std::size_t from = 0; from + 1 < program.groups[group].size(); ++from)
          pattern.push_back({group, calls::Operation::send, from, static_cast<std::int32_t>(from + 1)});
        continue;
      }
      if (rows_ == 0) {
        pattern.push_back(make_call(program, below(program.groups.size())));
        continue;
      }
      // All rows of a grid, all its columns, or the world.
      const std::size_t way = below(3);
      const std::size_t first = way == 0 ? 0 : way == 1 ? 1 : 1 + rows_;
      const std::size_t number = way == 0 ? 1 : way == 1 ? rows_ : columns_;
      const ModelCall call = make_call(program, first);
      for (std::size_t each = 0; each < number; ++each) {
        pattern.push_back(call);
        pattern.back().group = first + each;
      }
    }
    return pattern;
  }

  void apply(Program& program) {
    auto& own = program.calls[program.culprit];
    if (own.empty() || program.at >= own.size()) {
      if (program.fault <= Fault::count) program.fault = Fault::none;
      return;
    }
    const auto place = own.begin() + static_cast<std::ptrdiff_t>(program.at);
    ModelCall& call = *place;
    switch (program.fault) {
      case Fault::skip:
        own.erase(place);
        return;
      case Fault::extra:
        own.insert(place, ModelCall(own[below(std::max<std::size_t>(1, own.size() - 1))]));  // the last may be finalize
        return;
      case Fault::order:
        if (program.at + 1 == own.size() || call == own[program.at + 1]) program.fault = Fault::none;
        else std::swap(call, own[program.at + 1]);
        return;
      case Fault::root:
        if (call.root < 0 || call.is_message()) program.fault = Fault::none;
        else
          call.root =
              static_cast<std::int32_t>((static_cast<std::size_t>(call.root) + 1) % program.groups[call.group].size());
        return;
      case Fault::count:
        if (call.bytes == 0 || call.is_message()) program.fault = Fault::none;
        else call.bytes *= 2;
        return;
      case Fault::exception:  // MPI's programs then finalize, others exit
        own.erase(place, own.end());
        own.push_back({0, calls::Operation::finalize, 0, -1});
        return;
      default:
        return;
    }
  }

  std::mt19937_64 random_;
  std::size_t rows_ = 0;
  std::size_t columns_ = 0;
};

}  // namespace amldist::trace::testing
