// What the control thread believes of what the other ranks send.
#include "world/control/control_channel.hpp"

#include <gtest/gtest.h>

#include <initializer_list>
#include <thread>

#include "table_fixture.hpp"

namespace amldist::world::control_channel_test {
namespace {

/// As it comes over a connection, without the length in front.
Frame received(FrameWriter& writer) { return Frame(writer.take().substr(frame_head)); }

Frame lost(std::uint32_t rank, std::uint64_t standing) {
  FrameWriter writer(FrameKind::lost);
  return received(writer.number(1).number(rank).number(1).number(standing));
}

/// All ranks leave together, so that this one tells nobody.
Frame last_goodbye() {
  FrameWriter writer(FrameKind::bye);
  return received(writer.number(1));
}

bool comes_true(const std::function<bool()>& condition) {
  const auto end = Clock::now() + std::chrono::seconds(10);
  while (!condition() && Clock::now() < end) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return condition();
}

/// Rank 0's world, in which rank 1 has said goodbye.
World world_of(std::uint32_t size) {
  World world;
  world.size = size;
  world.table = testing::table_of(1, size);
  world.early.emplace_back(1, last_goodbye());
  return world;
}

TEST(ControlChannel, TakesNoNumberForTheEndOfARankButThatOfAnEnd) {
  World world = world_of(4);
  for (const std::uint64_t standing : {0ULL, 1ULL, 4ULL, 5ULL, 256ULL, 258ULL, ~0ULL})
    world.early.emplace_back(1, lost(2, standing));
  world.early.emplace_back(1, lost(3, static_cast<std::uint64_t>(Liveness::left)));
  ControlChannel channel(std::move(world), false);
  ASSERT_TRUE(comes_true([&] { return channel.is_gone(3); }));
  EXPECT_FALSE(channel.is_gone(2)) << "it was said to be here, silent, or something that there is not";
}

TEST(ControlChannel, HasNoPlaceForARankThatTheWorldDoesNotHave) {
  constexpr std::uint32_t size = 2;
  World world = world_of(size);
  world.ended = {size, 0x7fffffff, UINT32_MAX, 1};
  ControlChannel channel(std::move(world), false);
  ASSERT_TRUE(comes_true([&] { return channel.is_gone(1); }));
}

}  // namespace
}  // namespace amldist::world::control_channel_test
