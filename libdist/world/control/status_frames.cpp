#include "world/control/status_frames.hpp"

#include "base/text/printable.hpp"
#include "world/wireup/frame.hpp"
#include "world/wireup/limits.hpp"

namespace amldist::world {
namespace {

/// Up to so many ranks, an answer tells for whom each waits in a collective.
constexpr std::size_t few_ranks = 16;

void write_call(FrameWriter& writer, const calls::Call& call) {
  writer.number(static_cast<std::uint64_t>(call.operation))
      .number(static_cast<std::uint64_t>(call.type))
      .number(static_cast<std::uint64_t>(call.redop))
      .number(static_cast<std::uint32_t>(call.root))
      .number(call.count)
      .number(call.sequence);
}

calls::Call read_call(Frame& frame) {
  calls::Call call;
  call.operation = static_cast<calls::Operation>(frame.number());
  call.type = static_cast<calls::DataType>(frame.number());
  call.redop = static_cast<calls::ReduceOp>(frame.number());
  call.root = static_cast<int>(static_cast<std::uint32_t>(frame.number()));
  call.count = frame.number();
  call.sequence = frame.number();
  return call;
}

}  // namespace

std::string state_bytes(const CommWatch* watch) {
  if (watch == nullptr) return {};
  FrameWriter writer(FrameKind::status);
  const Activity activity = watch->activity();
  const bool tells = is_point_to_point(activity.call.operation) || watch->members().size() <= few_ranks;
  writer.number(activity.sequence)
      .number(activity.inside ? 1 : 0)
      .number(static_cast<std::uint32_t>(tells ? activity.waits_for : calls::Watchdog::anyone));
  write_call(writer, activity.call);
  const auto past = watch->past();
  writer.number(past.size());
  for (const PastCall& one : past) {
    write_call(writer, one.call);
    writer.number(one.lists);
  }
  writer.text(watch->trouble());
  return writer.take().substr(world::frame_head);
}

RankState read_state(const std::string& bytes) {
  RankState state;
  state.standing = bytes.empty() ? Liveness::unaware : Liveness::here;
  Frame frame(bytes);
  state.activity.sequence = frame.number();
  state.activity.inside = frame.number() != 0;
  state.activity.waits_for = static_cast<int>(static_cast<std::uint32_t>(frame.number()));
  state.activity.call = read_call(frame);
  const std::uint64_t calls = frame.number();
  while (state.past.size() < calls && !frame.is_short()) {
    const calls::Call call = read_call(frame);
    state.past.push_back({call, static_cast<std::uint32_t>(frame.number())});
  }
  state.trouble = text::printable(frame.text(), world::limits.sentence_characters);
  return state;
}

void write_trigger(FrameWriter& writer, const DiagnosisTrigger& trigger) {
  writer.number(trigger.reporter)
      .number(static_cast<std::uint64_t>(static_cast<std::int64_t>(trigger.waits_for)))
      .number(trigger.differs ? 1 : 0)
      .text(trigger.detail);
}

DiagnosisTrigger read_trigger(Frame& frame) {
  DiagnosisTrigger trigger;
  trigger.reporter = static_cast<std::uint32_t>(frame.number());
  trigger.waits_for = static_cast<int>(static_cast<std::int64_t>(frame.number()));
  trigger.differs = frame.number() != 0;
  trigger.detail = frame.text();
  return trigger;
}

void write_pair_counts(FrameWriter& writer, const PairCounts& pairs, const std::vector<std::uint32_t>& witnesses) {
  const auto at = [](const std::vector<std::uint64_t>& list, std::uint32_t rank) {
    return rank < list.size() ? list[rank] : 0;
  };
  writer.number(pairs.sequence);
  for (const std::uint32_t rank : witnesses) writer.number(at(pairs.gives, rank)).number(at(pairs.takes, rank));
}

PairCounts read_pair_counts(Frame& frame, const std::vector<std::uint32_t>& witnesses, std::size_t size) {
  PairCounts pairs;
  pairs.sequence = frame.number();
  pairs.gives.resize(size);
  pairs.takes.resize(size);
  for (const std::uint32_t rank : witnesses) {
    pairs.gives[rank] = frame.number();
    pairs.takes[rank] = frame.number();
  }
  return pairs;
}

}  // namespace amldist::world
