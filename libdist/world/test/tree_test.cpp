// The tree of a world without sockets: places, the rank table, the way between ranks, gathers.
#include <gtest/gtest.h>

#include <deque>
#include <set>

#include "calls/pieces.hpp"
#include "world/bootstrap/joined_ranks.hpp"
#include "world/bootstrap/tree_shape.hpp"
#include "world/control/comm_tree.hpp"
#include "world/control/tree_gather.hpp"
#include "world/test/table_fixture.hpp"
#include "world/wireup/limits.hpp"

namespace amldist::world {
namespace {

const Ipv4 root_address = *Ipv4::parse("10.0.0.9");

RankTable table_of(std::uint32_t nodes, std::uint32_t each) { return testing::table_of(nodes, each, root_address); }

std::vector<std::uint32_t> all(std::uint32_t size) { return testing::all_ranks(size); }

CommTree::IsOut without(std::set<std::uint32_t> lost) {
  return [lost = std::move(lost)](std::uint32_t rank) { return lost.contains(rank); };
}

// ---- shape ----
TEST(TreeShape, ChildrenKnowTheirParent) {
  constexpr std::uint32_t size = 10'240;
  std::uint32_t children = 0;
  for (std::uint32_t index = 0; index < size; ++index) {
    const auto [first, end] = tree_children(index, size);
    for (std::uint32_t child = first; child < end; ++child) EXPECT_EQ(tree_parent(child), index);
    children += end - first;
    EXPECT_LE(end - first, tree_arity);
  }
  EXPECT_EQ(children, size - 1);
  EXPECT_EQ(tree_depth(size - 1), 4U);
}

TEST(TreeShape, OfTheLargestWorldDoesNotOverflow) {
  const auto [first, end] = tree_children(UINT32_MAX - 1, UINT32_MAX);
  EXPECT_EQ(first, end);
}

// ---- the rank table ----
TEST(RankTable, ReadsWhatIsWritten) {
  const TableNode nodes[] = {
      {"n0", "n0", 1, {}}, {"n1", "rack/n1", 2, *Ipv4::parse("10.0.0.1")}, {"n1", "rack/n1", 3, {}}};
  const TableRank ranks[] = {{0, 1}, {0, 2}, {1, 65535}, {2, 4}};
  const auto table = RankTable::read(table_bytes(42, nodes, ranks), 4, root_address);
  ASSERT_TRUE(table);
  EXPECT_EQ(table->nonce(), 42U);
  EXPECT_EQ(table->size(), 4U);
  EXPECT_EQ(table->vertices(), 3U);
  EXPECT_EQ(table->leader_of(0), 1U);
  EXPECT_EQ(table->address_of(0), root_address) << "rank 0's, as the reader reaches it";
  EXPECT_EQ(table->address_of(2), *Ipv4::parse("10.0.0.1"));
  EXPECT_EQ(table->port_of(2), 65535);
  EXPECT_EQ(table->host_of(2), "n1");
  EXPECT_EQ(table->node_of(2), table->node_of(3)) << "two leaders on one node share memory";
  EXPECT_NE(table->node_of(1), table->node_of(2));
}

TEST(RankTable, OfAnotherSizeOrCutOffIsNone) {
  const TableNode node = {"n0", "n0", 0, {}};
  const TableRank ranks[] = {{0, 1}, {0, 2}};
  const std::string bytes = table_bytes(1, {&node, 1}, ranks);
  EXPECT_TRUE(RankTable::read(bytes, 2, {}));
  for (const std::uint32_t size : {1U, 3U, 0xffffffffU}) EXPECT_FALSE(RankTable::read(bytes, size, {}));
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_FALSE(RankTable::read(bytes.substr(0, length), 2, {})) << length;
  }
}

TEST(RankTable, ThatPointsOutsideItselfIsNone) {
  const TableNode nodes[] = {{"n0", "n0", 0, {}}, {"n1", "n1", 1, {}}};
  const TableRank ranks[] = {{0, 1}, {1, 2}};
  const std::string bytes = table_bytes(1, nodes, ranks);
  std::size_t refused = 0;
  for (std::size_t at = 32; at < bytes.size() - 4; ++at) {  // behind the head: entries, then vertices by rank
    std::string changed = bytes;
    changed[at] = static_cast<char>(0xff);
    const auto table = RankTable::read(changed, 2, {});
    refused += table ? 0 : 1;
    if (!table) continue;
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      EXPECT_LT(table->vertex_of(rank), 2U);
      EXPECT_LT(table->leader_of(table->vertex_of(rank)), 2U);
    }
  }
  EXPECT_GT(refused, 32U);
}

TEST(RankTable, HostNamesArePrintable) {
  const TableNode nodes[] = {{"\x1b[31mred\n", "", 0, {}}, {std::string(9000, 'h'), "", 1, {}}};
  const TableRank ranks[] = {{0, 1}, {1, 1}};
  const auto table = RankTable::read(table_bytes(1, nodes, ranks), 2, {});
  ASSERT_TRUE(table);
  EXPECT_EQ(table->host_of(0), "\\x1b[31mred\\x0a");
  EXPECT_EQ(table->host_of(1).size(), world::limits.host_characters + 3);
}

// ---- rank 0's list ----
world::JoinRequest join_request_of(std::uint32_t rank, std::uint64_t process, std::uint64_t size = 40) {
  return {"group", rank, size, process, "host" + std::to_string(rank), {}};
}

TableNode node_of(std::uint32_t rank) {
  return {"host" + std::to_string(rank), "host" + std::to_string(rank), 0, Ipv4{rank}};
}

TEST(JoinedRanks, GivesPlacesInTheOrderOfArrival) {
  JoinedRanks joined_ranks({"group", 0, 40});
  for (std::uint32_t i = 0; i < 40; ++i) {
    const std::uint32_t rank = i == 0 ? 0 : 40 - i;
    const TreePosition place =
        joined_ranks.add_leader(join_request_of(rank, 100 + rank), node_of(rank), static_cast<std::uint16_t>(rank));
    EXPECT_EQ(place.index, i);
    EXPECT_EQ(place.is_below_root(), i <= tree_arity);
    if (i <= tree_arity) continue;
    const std::uint32_t parent = 40 - tree_parent(i);
    EXPECT_EQ(place.parent_rank, parent);
    EXPECT_EQ(place.parent_address, Ipv4{parent});
    EXPECT_EQ(place.parent_port, parent);
  }
  EXPECT_TRUE(joined_ranks.is_complete());
  EXPECT_TRUE(joined_ranks.missing().empty());
}

TEST(JoinedRanks, AProcessThatAsksAgainKeepsItsPlace) {
  JoinedRanks joined_ranks({"group", 0, 40});
  static_cast<void>(joined_ranks.add_leader(join_request_of(0, 7), node_of(0), 1));
  EXPECT_EQ(joined_ranks.add_leader(join_request_of(5, 8), node_of(5), 1).index, 1U);
  EXPECT_EQ(joined_ranks.add_leader(join_request_of(6, 9), node_of(6), 1).index, 2U);
  EXPECT_EQ(joined_ranks.add_leader(join_request_of(5, 8), node_of(5), 1).index, 1U);
  EXPECT_EQ(joined_ranks.contradiction(), "");
  EXPECT_EQ(joined_ranks.present(), 3U);
}

TEST(JoinedRanks, NamesWhatContradicts) {
  JoinedRanks twice({"group", 0, 40});
  static_cast<void>(twice.add_leader(join_request_of(0, 7), node_of(0), 1));
  twice.add({3, 0, 1, 11, 40});
  twice.add({3, 0, 1, 11, 40});  // reported again
  EXPECT_EQ(twice.contradiction(), "");
  twice.add({3, 0, 1, 12, 40});
  EXPECT_EQ(twice.contradiction(), "two processes came as rank 3: one from host0, one from host0");
  EXPECT_FALSE(twice.is_complete());

  JoinedRanks sizes({"group", 0, 2});
  static_cast<void>(sizes.add_leader(join_request_of(0, 7, 2), node_of(0), 1));
  sizes.add({1, 0, 1, 11, 3});
  EXPECT_EQ(sizes.contradiction(), "rank 1 (host0) was started as one of 3 processes, rank 0 as one of 2");
  EXPECT_TRUE(sizes.have_all_been_seen());
  EXPECT_EQ(sizes.missing(), std::vector<std::uint32_t>{1});
}

// ---- a communicator's tree ----
TEST(CommTree, OfTheWorldIsThatOfBootstrap) {
  const RankTable table = table_of(40, 3);
  const CommTree tree(table, all(120));
  EXPECT_EQ(tree.root(without({})), 0U);
  EXPECT_EQ(tree.parent_of(0, without({})), std::nullopt);
  EXPECT_EQ(tree.parent_of(2, without({})), 0U);
  EXPECT_EQ(tree.parent_of(3, without({})), 0U);
  EXPECT_EQ(tree.parent_of(5, without({})), 3U);
  EXPECT_EQ(tree.parent_of(17 * 3, without({})), 3U);
  EXPECT_EQ(tree.children_of(0, without({})).size(), 2 + tree_arity);
  EXPECT_EQ(tree.subtree_size(0), 120U);
  EXPECT_EQ(tree.subtree_size(3), 3U * 17);
  EXPECT_EQ(tree.subtree_size(4), 1U);
}

/// Whoever is left can be reached from the root, once, and knows its parent.
void expect_whole(const CommTree& tree, std::uint32_t size, const std::set<std::uint32_t>& lost) {
  const auto is_out = without(lost);
  std::set<std::uint32_t> reached;
  std::deque<std::uint32_t> waiting = {*tree.root(is_out)};
  EXPECT_EQ(tree.parent_of(waiting.front(), is_out), std::nullopt);
  while (!waiting.empty()) {
    const std::uint32_t rank = waiting.front();
    waiting.pop_front();
    EXPECT_TRUE(reached.insert(rank).second) << rank << " is reached twice";
    for (const std::uint32_t child : tree.children_of(rank, is_out)) {
      EXPECT_EQ(tree.parent_of(child, is_out), rank);
      waiting.push_back(child);
    }
  }
  EXPECT_EQ(reached.size(), size - lost.size());
}

TEST(CommTree, StaysWholeWhoeverIsLost) {
  const RankTable table = table_of(60, 3);
  const CommTree tree(table, all(180));
  expect_whole(tree, 180, {});
  expect_whole(tree, 180, {0});
  expect_whole(tree, 180, {0, 1, 2});              // the whole node of the root
  expect_whole(tree, 180, {0, 1, 2, 3, 4, 5, 6});  // the next one too, and a leader
  expect_whole(tree, 180, {3, 4, 5, 100});
  std::set<std::uint32_t> most;
  for (std::uint32_t rank = 0; rank < 180; ++rank) {
    if (rank % 7 != 3) most.insert(rank);
  }
  expect_whole(tree, 180, most);
}

TEST(CommTree, OfSomeRanksHasTheirNodesOnly) {
  const RankTable table = table_of(60, 3);
  std::vector<std::uint32_t> members;
  for (std::uint32_t rank = 4; rank < 180; rank += 2) members.push_back(rank);
  const CommTree tree(table, members);
  EXPECT_EQ(tree.root(without({})), 4U);
  EXPECT_EQ(tree.subtree_size(4), members.size());
  expect_whole(tree, static_cast<std::uint32_t>(members.size()), {});
}

// ---- gathers ----
TEST(Pieces, EqualNeighboursShareOneEntry) {
  calls::Pieces pieces;
  for (const std::uint32_t rank : {5U, 0U, 1U, 3U, 2U, 4U}) pieces.add({rank, 1, rank < 3 ? "a" : "b"});
  pieces.merge();
  EXPECT_EQ(pieces.runs(), (std::vector<calls::Pieces::Run>{{0, 3, "a"}, {3, 3, "b"}}));
  EXPECT_EQ(pieces.size(), 6U);
  EXPECT_EQ(pieces[2], "a");
  EXPECT_EQ(pieces[5], "b");
  EXPECT_EQ(pieces[6], "");
  EXPECT_EQ(pieces.by_rank(), (std::vector<std::string>{"a", "a", "a", "b", "b", "b"}));
}

/// Ranks of one world whose frames go through one queue.
struct GatherWorld {
  explicit GatherWorld(const RankTable& table) : sent(table.size()), results(table.size()) {
    for (std::uint32_t rank = 0; rank < table.size(); ++rank) {
      ranks.push_back(std::make_unique<TreeGather>(TreeGather::Outside{
          [this, rank](std::uint32_t to, const std::string& frame) {
            ++sent[rank];
            bytes += frame.size();
            queue.emplace_back(to, frame);
          },
          [this, rank](const GatherKey& /*key*/, calls::Pieces pieces) { results[rank] = std::move(pieces); }}));
    }
  }
  void run() {
    for (; !queue.empty(); queue.pop_front()) {
      Frame frame(queue.front().second.substr(world::frame_head));
      TreeGather& rank = *ranks[queue.front().first];
      if (frame.kind<FrameKind>() == FrameKind::piece) rank.on_piece(frame);
      else rank.on_pieces(frame);
    }
  }
  std::vector<std::unique_ptr<TreeGather>> ranks;
  std::deque<std::pair<std::uint32_t, std::string>> queue;
  std::vector<std::size_t> sent;
  std::vector<calls::Pieces> results;
  std::size_t bytes = 0;
};

TEST(TreeGather, EverybodyGetsEveryPiece) {
  const RankTable table = table_of(40, 3);
  const CommTree tree(table, all(120));
  GatherWorld world(table);
  for (std::uint32_t rank = 120; rank-- > 0;) {
    world.ranks[rank]->begin({1, 2}, rank, "of " + std::to_string(rank), neighbours_in_tree(tree, rank));
    if (rank % 5 == 0) world.run();  // some hear of others before they begin
  }
  world.run();
  for (const calls::Pieces& pieces : world.results) {
    ASSERT_EQ(pieces.size(), 120U);
    for (std::uint32_t rank = 0; rank < 120; ++rank) EXPECT_EQ(pieces[rank], "of " + std::to_string(rank));
  }
  EXPECT_LE(*std::ranges::max_element(world.sent), tree_arity + 3);
}

TEST(TreeGather, ANodesPiecesStayInTheNode) {
  const RankTable table = table_of(4, 3);
  GatherWorld world(table);
  for (std::uint32_t rank = 0; rank < 12; ++rank) {
    world.ranks[rank]->begin({1, 2}, rank, std::to_string(rank), neighbours_in_node(table, all(12), rank));
  }
  world.run();
  for (std::uint32_t rank = 0; rank < 12; ++rank) {
    EXPECT_EQ(world.results[rank].size(), 3U);
    for (std::uint32_t other = 0; other < 12; ++other) {
      EXPECT_EQ(world.results[rank][other], other / 3 == rank / 3 ? std::to_string(other) : "");
    }
  }
}

TEST(TreeGather, EqualPiecesTakeTheRoomOfOne) {
  const RankTable table = table_of(1024, 8);
  const CommTree tree(table, all(8192));
  GatherWorld world(table);
  for (std::uint32_t rank = 0; rank < 8192; ++rank)
    world.ranks[rank]->begin({1, 2}, rank, "", neighbours_in_tree(tree, rank));
  world.run();
  for (const calls::Pieces& pieces : world.results) ASSERT_EQ(pieces.runs().size(), 1U);
  EXPECT_LT(world.bytes, 8192U * 2 * 80);
}

}  // namespace
}  // namespace amldist::world
