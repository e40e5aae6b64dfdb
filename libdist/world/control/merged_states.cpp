#include "world/control/merged_states.hpp"

#include <algorithm>
#include <utility>

namespace amldist::world {
namespace {

using Run = MergedStates::Run;

std::vector<Run> joined(std::vector<Run> runs) {
  std::ranges::sort(runs, {}, &Run::first);
  std::vector<Run> out;
  for (const Run& run : runs) {
    if (!out.empty() && run.first <= out.back().first + out.back().count) {
      const std::uint32_t end = std::max(out.back().first + out.back().count, run.first + run.count);
      out.back().count = end - out.back().first;
    } else {
      out.push_back(run);
    }
  }
  return out;
}

void write_runs(FrameWriter& writer, const std::vector<Run>& runs) {
  writer.number(runs.size());
  for (const Run& run : runs) writer.number(run.first).number(run.count);
}

std::vector<Run> read_runs(Frame& frame, std::uint32_t size) {
  std::vector<Run> runs;
  for (std::uint64_t left = frame.number(); left > 0; --left) {
    const std::uint64_t first = frame.number();
    const std::uint64_t count = frame.number();
    if (frame.is_short()) break;
    if (first >= size) continue;
    runs.push_back(
        {static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(std::min<std::uint64_t>(count, size - first))});
  }
  return runs;
}

}  // namespace

void MergedStates::add(const MergedStates& others) {
  for (const auto& [state, runs] : others.states_) {
    auto& own = states_[state];
    own.insert(own.end(), runs.begin(), runs.end());
  }
}

void MergedStates::merge() {
  for (auto& [state, runs] : states_) runs = joined(std::move(runs));
}

void MergedStates::write(FrameWriter& writer) const {
  writer.number(states_.size());
  for (const auto& [state, runs] : states_) {
    writer.text(state);
    write_runs(writer, joined(runs));
  }
}

MergedStates MergedStates::read(Frame& frame, std::uint32_t size) {
  MergedStates out;
  for (std::uint64_t left = frame.number(); left > 0 && !frame.is_short(); --left) {
    std::string state = frame.text();
    auto runs = read_runs(frame, size);
    if (frame.is_short()) break;
    auto& own = out.states_[std::move(state)];
    own.insert(own.end(), runs.begin(), runs.end());
  }
  return out;
}

void write_ranks(FrameWriter& writer, const std::vector<std::uint32_t>& ranks) {
  std::vector<Run> runs;
  for (const std::uint32_t rank : ranks) runs.push_back({rank, 1});
  write_runs(writer, joined(std::move(runs)));
}

std::vector<std::uint32_t> read_ranks(Frame& frame, std::uint32_t size) {
  std::vector<std::uint32_t> ranks;
  for (const Run& run : read_runs(frame, size)) {
    for (std::uint32_t i = 0; i < run.count; ++i) ranks.push_back(run.first + i);
  }
  return ranks;
}

}  // namespace amldist::world
