// Whom a leader lets into the tree of the world.
#include "world/bootstrap/tree_builder.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "pair.hpp"
#include "world/wireup/joiner.hpp"

namespace amldist::world::tree_builder_test {
namespace {

const IpAddress here = *Ipv4::parse("127.0.0.1");

OwnPlace place_of(std::uint32_t rank, std::uint32_t size) {
  OwnPlace place(GroupKey(secret_of("step 42.0"), "42.0"));
  place.group = "42.0";
  place.node_group = "42.0 on this node";
  place.rank = rank;
  place.size = size;
  place.process = 100 + rank;
  place.node = place.host = "node" + std::to_string(rank);
  return place;
}

/// A process that has been let in.
FileDescriptor join_as(const OwnPlace& place, JoinPurpose purpose, std::uint16_t port) {
  const auto deadline = Clock::now() + std::chrono::seconds(20);
  auto connection = connect_to(here, port, deadline);
  if (!connection) return {};
  const auto accepted = introduce(*connection, place.join_request(purpose), place.key, deadline);
  return accepted && *accepted ? std::move(*connection) : FileDescriptor();
}

TEST(TreeBuilder, HandsOnNoRankThatTheWorldDoesNotHave) {
  constexpr std::uint32_t size = 2;
  auto listener = listen_on(0, here);
  ASSERT_TRUE(listener);
  const std::uint16_t port = local_port(*listener);
  std::vector<FileDescriptor> joined;
  std::thread others([&] {
    static_cast<void>(join_as(place_of(7, size), JoinPurpose::child, port));  // and ends at once
    joined.push_back(join_as(place_of(8, size), JoinPurpose::child, port));
    static_cast<void>(
        send_all(joined[0], FrameWriter(BootstrapKind::table_file).take(), Clock::now() + std::chrono::seconds(20)));
    joined.push_back(join_as(place_of(1, size), JoinPurpose::leader, port));
  });
  const OwnPlace own = place_of(0, size);
  const auto root = root_address_at({{"127.0.0.1", port}, ""});
  const FileDescriptor none;
  TreeBuilder builder(own, *listener, none);
  const auto built = builder.serve_as_root(*listener, *root, Clock::now() + std::chrono::seconds(20));
  others.join();
  ASSERT_TRUE(built) << built.error().message;
  ASSERT_TRUE(joined[0]) << "the one that there is not must get as far as the tree";
  EXPECT_TRUE(built->ended.empty());
  EXPECT_TRUE(built->early.empty());
  ASSERT_EQ(built->links.size(), 1U);
  EXPECT_EQ(built->links[0]->rank, 1U);
}

}  // namespace
}  // namespace amldist::world::tree_builder_test
