// The table of libdist/collective/algorithms/README.md, as a specification: which algorithm runs for which sizes.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <vector>

#include "collective/algorithms/peer/block_tree.hpp"
#include "collective/tuning/algorithm_choice.hpp"

namespace amldist::collective::tuning {
namespace {

struct AllreduceCase {
  std::size_t bytes;
  std::size_t ranks;
  PeerAllreduce expected;
};

TEST(AlgorithmChoice, AllReduceAmongPeers) {
  const AllreduceCase cases[] = {
      {4, 2, PeerAllreduce::recursive_doubling},
      {4, 3, PeerAllreduce::direct},
      {16 * kib, 3, PeerAllreduce::direct},  // 32 KiB to both others
      {16 * kib + 4, 3, PeerAllreduce::ring},
      {4, 9, PeerAllreduce::recursive_doubling},  // more ranks than a direct exchange is for
      {kib, 64, PeerAllreduce::recursive_doubling},
      {16 * mib, 4, PeerAllreduce::rabenseifner},
      {2 * mib, 2, PeerAllreduce::rabenseifner},  // over a segment: never all data at once
      {16 * mib, 6, PeerAllreduce::ring},
      {mib, 5, PeerAllreduce::ring},
  };
  for (const auto& [bytes, ranks, expected] : cases) {
    EXPECT_EQ(choose_peer_allreduce(bytes, ranks), expected) << bytes << " bytes, " << ranks << " ranks";
  }
}

TEST(AlgorithmChoice, LongerAllReducesNeverGoBackToFewerSteps) {
  for (std::size_t ranks = 2; ranks <= 130; ++ranks) {
    bool sliced = false;
    for (std::size_t bytes = 4; bytes <= 64 * mib; bytes *= 2) {
      const auto choice = choose_peer_allreduce(bytes, ranks);
      const bool is_sliced = choice == PeerAllreduce::rabenseifner || choice == PeerAllreduce::ring;
      EXPECT_FALSE(sliced && !is_sliced) << bytes << " bytes, " << ranks << " ranks";
      sliced = is_sliced;
    }
    EXPECT_TRUE(sliced) << ranks;
  }
}

TEST(AlgorithmChoice, RabenseifnerNeedsAPowerOfTwo) {
  for (std::size_t ranks = 2; ranks <= 130; ++ranks) {
    EXPECT_EQ(choose_peer_allreduce(64 * mib, ranks) == PeerAllreduce::rabenseifner, std::has_single_bit(ranks))
        << ranks;
  }
}

TEST(AlgorithmChoice, AllGatherAmongPeers) {
  EXPECT_EQ(choose_peer_allgather(allgather_doubling_up_to, 8, true), PeerAllgather::recursive_doubling);
  EXPECT_EQ(choose_peer_allgather(allgather_doubling_up_to + 1, 8, true), PeerAllgather::ring);
  EXPECT_EQ(choose_peer_allgather(64, 8, false), PeerAllgather::ring) << "blocks that are not contiguous";
  EXPECT_EQ(choose_peer_allgather(64, 6, true), PeerAllgather::ring) << "no power of two";
}

TEST(AlgorithmChoice, ScatterAmongPeers) {
  EXPECT_TRUE(is_scatter_tree_faster(4, 16));
  EXPECT_FALSE(is_scatter_tree_faster(4, 15));
  EXPECT_TRUE(is_scatter_tree_faster(4 * kib, 1000));
  EXPECT_FALSE(is_scatter_tree_faster(4 * kib + 4, 1000));
}

/// Each rank but the root is the child of one other rank, and gets from it its own block and those of its children.
TEST(BlockTree, HasEachRankOnce) {
  for (std::size_t ranks = 2; ranks <= 70; ++ranks) {
    const std::size_t root = ranks * 2 / 3;
    std::vector<std::size_t> parents(ranks, ranks);  // by place
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const BlockTree tree(ranks, rank, root);
      std::size_t given = 1;
      for (std::size_t distance = std::bit_ceil(tree.blocks) / 2; distance != 0; distance /= 2) {
        const std::size_t child = tree.own + distance;
        ASSERT_LT(child, ranks);
        EXPECT_EQ(parents[child], ranks) << "a child of two";
        parents[child] = tree.own;
        const BlockTree theirs(ranks, (child + root) % ranks, root);
        EXPECT_EQ(theirs.parent, tree.own);
        EXPECT_EQ(theirs.blocks, tree.blocks_of_child(distance));
        given += theirs.blocks;
      }
      EXPECT_EQ(given, tree.blocks) << ranks << " ranks, rank " << rank;
    }
    EXPECT_EQ(std::ranges::count(parents, ranks), 1) << "only the root has no parent";
  }
}

TEST(AlgorithmChoice, StagedReductionsInsideANode) {
  EXPECT_TRUE(is_whole_faster(128 * kib, 2, false));
  EXPECT_FALSE(is_whole_faster(128 * kib + 1, 2, false));
  EXPECT_TRUE(is_whole_faster(16 * kib - 1, 2, true));
  EXPECT_FALSE(is_whole_faster(16 * kib, 2, true)) << "a trial has shown that slices pay";
  for (const bool slices : {false, true}) {
    EXPECT_TRUE(is_whole_faster(8 * kib, 3, slices));
    EXPECT_FALSE(is_whole_faster(8 * kib + 1, 3, slices)) << "slices pay earlier with more ranks";
  }
}

TEST(AlgorithmChoice, SeveralRanksOnSeveralNodes) {
  EXPECT_EQ(choose_allreduce(4 * kib, 2), Hierarchy::leaders);
  EXPECT_EQ(choose_allreduce(4 * kib + 1, 2), Hierarchy::rails);
  EXPECT_EQ(choose_allreduce(64 * mib, 1), Hierarchy::leaders) << "a node with one rank has no rails";
  EXPECT_EQ(choose_reduce_scatter(32 * kib), Hierarchy::leaders);
  EXPECT_EQ(choose_reduce_scatter(32 * kib + 1), Hierarchy::rails);
  EXPECT_EQ(choose_allgather(64 * kib), Hierarchy::leaders);
  EXPECT_EQ(choose_allgather(64 * kib + 1), Hierarchy::rails);
  EXPECT_EQ(choose_alltoall(4 * kib, 8, 2), Hierarchy::leaders);
  EXPECT_EQ(choose_alltoall(4 * kib, 1024, 8), Hierarchy::rails) << "a bundle over 1 MiB";
  EXPECT_EQ(choose_alltoall(SIZE_MAX, 8, 2), Hierarchy::rails) << "uneven blocks";
}

}  // namespace
}  // namespace amldist::collective::tuning
