// The library's own tree for worlds of up to 10,240 nodes with 8 ranks each, in one process: what rank 0 keeps and
// sends at the start, and what a gather and an agreement cost a rank, with and without a loss. Frames go through one
// queue; nothing is timed. Prints CSV.
#include <algorithm>
#include <cstdio>
#include <deque>
#include <memory>
#include <numeric>
#include <vector>

#include "world/bootstrap/joined_ranks.hpp"
#include "world/bootstrap/tree_shape.hpp"
#include "world/control/agreement.hpp"
#include "world/control/tree_gather.hpp"

namespace amldist::collective {
namespace {

constexpr std::uint32_t each = 8;

/// Rank 0's list, when leaders come in the order of their ranks.
std::string joined_table(std::uint32_t nodes) {
  world::JoinedRanks joined_ranks({"group", 0, nodes * each});
  for (std::uint32_t node = 0; node < nodes; ++node) {
    const std::string host = "node" + std::to_string(node);
    const world::JoinRequest join_request = {"group", node * each, nodes * each, node * each + 1U, host, {}};
    const world::TreePosition position =
        joined_ranks.add_leader(join_request, {host, host, 0, Ipv4{0x0a000000 + node}}, 20000);
    for (std::uint32_t i = 1; i < each; ++i) {
      joined_ranks.add(
          {node * each + i, position.index, static_cast<std::uint16_t>(20000 + i), node * each + i + 1U, nodes * each});
    }
  }
  return joined_ranks.is_complete() ? joined_ranks.table(42) : std::string();
}

struct Cost {
  std::vector<std::size_t> sent;
  std::vector<std::size_t> bytes;
  std::size_t hops = 0;  ///< the longest chain of messages, each of which waits for the one before
  std::size_t done = 0;
};

/// Every rank says the same in a gather: "all is well".
Cost gather(const world::RankTable& table) {
  struct Mail {
    std::uint32_t to;
    std::size_t hop;
    std::string frame;
  };
  const std::uint32_t size = table.size();
  std::vector<std::uint32_t> members(size);
  std::iota(members.begin(), members.end(), 0U);
  const world::CommTree tree(table, members);
  Cost cost = {std::vector<std::size_t>(size), std::vector<std::size_t>(size), 0, 0};
  std::deque<Mail> queue;
  std::vector<std::size_t> hop_of_rank(size);
  std::vector<std::unique_ptr<world::TreeGather>> ranks;
  for (std::uint32_t rank = 0; rank < size; ++rank) {
    ranks.push_back(std::make_unique<world::TreeGather>(
        world::TreeGather::Outside{[&, rank](std::uint32_t to, const std::string& frame) {
                                     ++cost.sent[rank];
                                     cost.bytes[rank] += frame.size();
                                     queue.push_back({to, hop_of_rank[rank] + 1, frame});
                                   },
                                   [&](const world::GatherKey& /*key*/, const calls::Pieces& pieces) {
                                     cost.done += pieces.size() == size ? 1U : 0U;
                                   }}));
  }
  for (std::uint32_t rank = 0; rank < size; ++rank)
    ranks[rank]->begin({1, 1}, rank, "", neighbours_in_tree(tree, rank));
  for (; !queue.empty(); queue.pop_front()) {
    const Mail& mail = queue.front();
    hop_of_rank[mail.to] = std::max(hop_of_rank[mail.to], mail.hop);
    cost.hops = std::max(cost.hops, mail.hop);
    world::Frame frame(mail.frame.substr(world::frame_head));
    if (frame.kind<world::FrameKind>() == world::FrameKind::piece) ranks[mail.to]->on_piece(frame);
    else ranks[mail.to]->on_pieces(frame);
  }
  return cost;
}

/// The ranks of one communicator that agree.
class Agreeing {
 public:
  explicit Agreeing(const world::RankTable& table) : table_(table), members_(table.size()), hop_(table.size()) {
    std::iota(members_.begin(), members_.end(), 0U);
    cost_ = {std::vector<std::size_t>(table.size()), std::vector<std::size_t>(table.size()), 0, 0};
    const auto tree = std::make_shared<const world::CommTree>(table, members_);
    ranks_.reserve(table.size());
    for (std::uint32_t rank = 0; rank < table.size(); ++rank)
      ranks_.push_back(std::make_unique<Rank>(*this, tree, rank));
  }

  /// A rank ends before it has sent anything; the others hear of it when they have all come.
  Cost run(std::optional<std::uint32_t> lost) {
    constexpr std::chrono::seconds limit(1);
    lost_ = lost;
    for (auto& rank : ranks_) {
      if (rank->own == lost_) continue;
      rank->agreement.open(1, Clock::time_point(limit), {limit, limit});
      rank->agreement.arrive(1, rank->own, 1);
    }
    drain();
    for (auto& rank : ranks_) {
      if (!lost_ || rank->own == lost_) continue;
      rank->hears_of_it = true;
      rank->agreement.poll(Clock::time_point(limit));
    }
    drain();
    for (const auto& rank : ranks_) {
      const world::Decision* const decision = rank->agreement.decision(1);
      const bool is_right = decision != nullptr && decision->excluded.size() == (lost_ ? 1U : 0U);
      cost_.done += rank->own == lost_ || is_right ? 1U : 0U;
    }
    return cost_;
  }

 private:
  struct Rank final : world::FailureDetectorHost {
    Rank(Agreeing& in, const std::shared_ptr<const world::CommTree>& tree, std::uint32_t number)
        : all(in), own(number), agreement(*this, 1, in.members_, tree, number) {}
    [[nodiscard]] std::uint32_t rank() const noexcept override { return own; }
    [[nodiscard]] std::uint32_t size() const noexcept override { return all.table_.size(); }
    [[nodiscard]] const world::RankTable& table() const noexcept override { return all.table_; }
    [[nodiscard]] const std::string& host_of(std::uint32_t world_rank) const override {
      return all.table_.host_of(world_rank);
    }
    [[nodiscard]] std::optional<world::Liveness> end_of(std::uint32_t world_rank) const noexcept override {
      return hears_of_it && world_rank == all.lost_ ? std::optional(world::Liveness::dead) : std::nullopt;
    }
    [[nodiscard]] std::span<const std::uint32_t> ended() const noexcept override {
      return hears_of_it ? std::span(&*all.lost_, 1) : std::span<const std::uint32_t>();
    }
    void send_to(std::uint32_t to, const std::string& frame) override {
      ++all.cost_.sent[own];
      all.cost_.bytes[own] += frame.size();
      all.queue_.push_back({own, to, all.hop_[own] + 1, frame});
    }
    void say(const std::string& /*sentence*/) override {}

    Agreeing& all;
    const std::uint32_t own;
    bool hears_of_it = false;
    world::Agreement agreement;
  };
  struct Mail {
    std::uint32_t from;
    std::uint32_t to;
    std::size_t hop;
    std::string frame;
  };

  void drain() {
    for (; !queue_.empty(); queue_.pop_front()) {
      const Mail& mail = queue_.front();
      if (mail.to == lost_) continue;
      hop_[mail.to] = std::max(hop_[mail.to], mail.hop);
      cost_.hops = std::max(cost_.hops, mail.hop);
      world::Frame frame(mail.frame.substr(world::frame_head));
      if (const auto message = read_agreement_message(frame)) ranks_[mail.to]->agreement.take(mail.from, *message);
    }
  }

  const world::RankTable& table_;
  std::vector<std::uint32_t> members_;
  std::vector<std::size_t> hop_;
  Cost cost_;
  std::optional<std::uint32_t> lost_;
  std::deque<Mail> queue_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

std::size_t sum_of(const std::vector<std::size_t>& each_rank) {
  return std::accumulate(each_rank.begin(), each_rank.end(), std::size_t{0});
}

int run() {
  std::puts(
      "nodes,ranks,levels,table_bytes,star_table_bytes,root_sends_bytes,most_sent,most_bytes,all_messages,hops,"
      "agree_most_sent,agree_messages,agree_hops,lost_most_sent,lost_most_bytes,lost_messages,lost_hops,complete");
  for (const std::uint32_t nodes : {16U, 64U, 256U, 1024U, 4096U, 10240U}) {
    const std::string bytes = joined_table(nodes);
    const auto table = world::RankTable::read(bytes, nodes * each, {});
    if (!table) return 1;
    const Cost cost = gather(*table);
    const Cost agreed = Agreeing(*table).run({});
    const Cost after_loss = Agreeing(*table).run(each);  // the first leader below the root
    const bool is_complete =
        cost.done == table->size() && agreed.done == table->size() && after_loss.done == table->size();
    constexpr double star_entry = 195;  // bytes that rank 0 sent for each pair of ranks before there was a tree
    const double ranks = nodes * each;
    std::printf("%u,%u,%u,%zu,%.0f,%zu,%zu,%zu,%zu,%zu,%zu,%zu,%zu,%zu,%zu,%zu,%zu,%s\n", nodes, nodes * each,
                tree_depth(nodes - 1) + 1, bytes.size(), star_entry * ranks * ranks,
                bytes.size() * std::min(nodes - 1, tree_arity), *std::ranges::max_element(cost.sent),
                *std::ranges::max_element(cost.bytes), sum_of(cost.sent), cost.hops,
                *std::ranges::max_element(agreed.sent), sum_of(agreed.sent), agreed.hops,
                *std::ranges::max_element(after_loss.sent), *std::ranges::max_element(after_loss.bytes),
                sum_of(after_loss.sent), after_loss.hops, is_complete ? "yes" : "no");
    if (!is_complete) return 1;
  }
  return 0;
}

}  // namespace
}  // namespace amldist::collective

int main() { return amldist::collective::run(); }
