// The library's own tree for worlds of up to 10,240 nodes with 8 ranks each, in one process: what rank 0 keeps and
// sends at the start, and what a gather costs a rank. Frames go through one queue; nothing is timed. Prints CSV.
#include <algorithm>
#include <cstdio>
#include <deque>
#include <memory>
#include <numeric>
#include <vector>

#include "collective/bootstrap/roster.hpp"
#include "collective/bootstrap/tree_shape.hpp"
#include "collective/control/tree_gather.hpp"

namespace amldist::collective {
namespace {

constexpr std::uint32_t each = 8;

/// Rank 0's list, when leaders come in the order of their ranks.
std::string joined_table(std::uint32_t nodes) {
  Roster roster({"group", 0, nodes * each});
  for (std::uint32_t node = 0; node < nodes; ++node) {
    const std::string host = "node" + std::to_string(node);
    const wireup::Greeting greeting = {"group", node * each, nodes * each, node * each + 1U, host, {}};
    const Place place = roster.add_leader(greeting, {host, host, 0, Ipv4{0x0a000000 + node}}, 20000);
    for (std::uint32_t i = 1; i < each; ++i) {
      roster.add(
          {node * each + i, place.index, static_cast<std::uint16_t>(20000 + i), node * each + i + 1U, nodes * each});
    }
  }
  return roster.is_complete() ? roster.table(42) : std::string();
}

struct Cost {
  std::vector<std::size_t> sent;
  std::vector<std::size_t> bytes;
  std::size_t hops = 0;  ///< the longest chain of messages, each of which waits for the one before
  std::size_t done = 0;
};

/// Every rank says the same in a gather: "all is well".
Cost gather(const RankTable& table) {
  struct Mail {
    std::uint32_t to;
    std::size_t hop;
    std::string frame;
  };
  const std::uint32_t size = table.size();
  std::vector<std::uint32_t> members(size);
  std::iota(members.begin(), members.end(), 0U);
  const CommTree tree(table, members);
  Cost cost = {std::vector<std::size_t>(size), std::vector<std::size_t>(size), 0, 0};
  std::deque<Mail> queue;
  std::vector<std::size_t> hop_of_rank(size);
  std::vector<std::unique_ptr<TreeGather>> ranks;
  for (std::uint32_t rank = 0; rank < size; ++rank) {
    ranks.push_back(std::make_unique<TreeGather>(TreeGather::Outside{
        [&, rank](std::uint32_t to, const std::string& frame) {
          ++cost.sent[rank];
          cost.bytes[rank] += frame.size();
          queue.push_back({to, hop_of_rank[rank] + 1, frame});
        },
        [&](const GatherKey& /*key*/, const Pieces& pieces) { cost.done += pieces.size() == size ? 1U : 0U; }}));
  }
  for (std::uint32_t rank = 0; rank < size; ++rank) ranks[rank]->begin({1, 1}, rank, "", place_in_tree(tree, rank));
  for (; !queue.empty(); queue.pop_front()) {
    const Mail& mail = queue.front();
    hop_of_rank[mail.to] = std::max(hop_of_rank[mail.to], mail.hop);
    cost.hops = std::max(cost.hops, mail.hop);
    Frame frame(mail.frame.substr(wireup::frame_head));
    if (frame.kind<FrameKind>() == FrameKind::piece) ranks[mail.to]->on_piece(frame);
    else ranks[mail.to]->on_pieces(frame);
  }
  return cost;
}

int run() {
  std::puts(
      "nodes,ranks,levels,table_bytes,star_table_bytes,root_sends_bytes,most_sent,most_bytes,all_messages,hops,"
      "complete");
  for (const std::uint32_t nodes : {16U, 64U, 256U, 1024U, 4096U, 10240U}) {
    const std::string bytes = joined_table(nodes);
    const auto table = RankTable::read(bytes, nodes * each, {});
    if (!table) return 1;
    const Cost cost = gather(*table);
    const std::size_t messages = std::accumulate(cost.sent.begin(), cost.sent.end(), std::size_t{0});
    constexpr double star_entry = 195;  // bytes that rank 0 sent for each pair of ranks before there was a tree
    const double ranks = nodes * each;
    std::printf("%u,%u,%u,%zu,%.0f,%zu,%zu,%zu,%zu,%zu,%s\n", nodes, nodes * each, tree_depth(nodes - 1) + 1,
                bytes.size(), star_entry * ranks * ranks, bytes.size() * std::min(nodes - 1, tree_arity),
                *std::ranges::max_element(cost.sent), *std::ranges::max_element(cost.bytes), messages, cost.hops,
                cost.done == table->size() ? "yes" : "no");
    if (cost.done != table->size()) return 1;
  }
  return 0;
}

}  // namespace
}  // namespace amldist::collective

int main() { return amldist::collective::run(); }
