// The agreement of the ranks that are left, played over a network without sockets: messages take random times and
// overtake each other, processes end between any two of their messages, each of the others hears of that at a time of
// its own, and some processes are stopped and go on. Whatever happens, nobody may return another result.
#include "world/control/agreement.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <random>

#include "world/test/table_fixture.hpp"

namespace amldist::world::agreement_test {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds patience(1000);
constexpr milliseconds tick(5);
/// How many of `all` seeds are tried: an eighth with a sanitizer, whose run stands beside one that tries them all.
constexpr std::uint64_t seeds(std::uint64_t all) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return (all + 7) / 8;
#else
  return all;
#endif
}
constexpr std::uint32_t first_world_rank = 10;  // ranks of the communicator are not those of the world

class Network;

/// One rank with its program, which makes one call after the other.
class Rank final : public FailureDetectorHost {
 public:
  Rank(Network& network, std::uint32_t own);

  [[nodiscard]] std::uint32_t rank() const noexcept override { return first_world_rank + own_; }
  [[nodiscard]] std::uint32_t size() const noexcept override { return first_world_rank + 100; }
  [[nodiscard]] const RankTable& table() const noexcept override;
  [[nodiscard]] std::optional<Liveness> end_of(std::uint32_t world_rank) const noexcept override {
    return ends_[world_rank - first_world_rank];
  }
  [[nodiscard]] std::span<const std::uint32_t> ended() const noexcept override { return ended_; }
  void send_to(std::uint32_t world_rank, const std::string& frame) override;
  void say(const std::string& /*sentence*/) override {}

  void hear_of_end(std::uint32_t rank) {
    ends_[rank] = Liveness::dead;
    ended_.push_back(first_world_rank + rank);
  }

  bool is_dead = false;
  bool is_stopped = false;
  bool never_calls = false;
  int sends_left = -1;  ///< it ends with the one that follows; negative: it does not
  std::uint64_t round = 0;
  Clock::time_point calls_at;
  std::map<std::uint64_t, Decision> returned;
  std::uint64_t sent = 0;

 private:
  Network& network_;
  const std::uint32_t own_;
  std::vector<std::optional<Liveness>> ends_;
  std::vector<std::uint32_t> ended_;

 public:
  Agreement agreement;
};

class Network {
 public:
  /// `each`: ranks of a node; 0: one, two or three.
  Network(std::uint32_t size, std::uint64_t seed, std::uint64_t rounds = 2, std::uint32_t each = 0)
      : table(testing::table_of(first_world_rank + 100, each != 0 ? each : 1 + static_cast<std::uint32_t>(seed % 3))),
        random_(seed),
        rounds_(rounds) {
    for (std::uint32_t r = 0; r < size; ++r) members.push_back(first_world_rank + r);
    tree = std::make_shared<const CommTree>(table, members);
    for (std::uint32_t r = 0; r < size; ++r) {
      ranks.push_back(std::make_unique<Rank>(*this, r));
      ranks.back()->calls_at = now + milliseconds(below(60));
    }
  }

  std::uint64_t below(std::uint64_t most) { return std::uniform_int_distribution<std::uint64_t>(0, most - 1)(random_); }

  void post(std::uint32_t from, std::uint32_t to, const std::string& frame) {
    ++ranks[from]->sent;
    if (loss_percent > 0 && below(100) < loss_percent) return;
    const milliseconds takes(below(10) == 0 ? below(120) : below(20));
    mail_.push_back({now + takes, from, to, frame});
  }

  void kill(std::uint32_t rank) {
    ranks[rank]->is_dead = true;
    for (std::uint32_t other = 0; other < ranks.size(); ++other)
      news_.push_back({now + milliseconds(below(100)), rank, other, {}});
    // What it sent last may not have left its node.
    std::erase_if(mail_, [&](const Mail& mail) { return mail.from == rank && below(2) == 0; });
  }

  void run_for(milliseconds time) {
    for (const auto end = now + time; now < end && !is_over(); now += tick) step();
  }

  /// Whether every rank that can return has done so.
  [[nodiscard]] bool is_over() const {
    return std::ranges::all_of(ranks, [this](const auto& each) {
      const bool out = each->agreement.own_exclusion().has_value();
      return each->is_dead || each->is_stopped || each->never_calls || out || each->returned.contains(rounds_);
    });
  }

  void step() {
    for (auto& each : std::exchange(news_, {})) {
      if (each.at > now) news_.push_back(each);
      else ranks[each.to]->hear_of_end(each.from);
    }
    std::vector<Mail> due;
    for (auto& each : std::exchange(mail_, {})) {
      const bool waits = each.at > now || ranks[each.to]->is_stopped;
      (waits ? mail_ : due).push_back(std::move(each));
    }
    std::ranges::shuffle(due, random_);
    for (const Mail& each : due) deliver(each);
    for (auto& each : ranks) {
      if (!each->is_dead && !each->is_stopped) act(*each);
    }
  }

  const RankTable table;
  std::vector<std::uint32_t> members;
  std::shared_ptr<const CommTree> tree;
  std::vector<std::unique_ptr<Rank>> ranks;
  Clock::time_point now{std::chrono::hours(1)};
  std::uint64_t loss_percent = 0;
  milliseconds deadline{std::chrono::seconds(30)};

 private:
  struct Mail {
    Clock::time_point at;
    std::uint32_t from;
    std::uint32_t to;
    std::string frame;
  };

  void deliver(const Mail& mail) {
    Rank& rank = *ranks[mail.to];
    if (rank.is_dead) return;
    Frame frame(mail.frame.substr(world::frame_head));
    const auto message = read_agreement_message(frame);
    ASSERT_TRUE(message);
    rank.agreement.take(mail.from, *message);
    note_return(rank);
  }

  void act(Rank& rank) {
    if (!rank.never_calls && now >= rank.calls_at && rank.round < rounds_ &&
        (rank.round == 0 || rank.returned.contains(rank.round))) {
      rank.agreement.open(++rank.round, now, {patience, deadline});
      rank.calls_at = now + milliseconds(below(60));  // the next call
      rank.agreement.arrive(rank.round, ~(std::uint64_t{1} << (rank.rank() - first_world_rank)), 1);
    }
    if (rank.agreement.next_poll() <= now) rank.agreement.poll(now);
    note_return(rank);
  }

  void note_return(Rank& rank) {
    const Decision* const decision = rank.agreement.decision(rank.round);
    if (rank.is_dead || decision == nullptr || decision->excluded.contains(rank.rank() - first_world_rank)) return;
    rank.returned.emplace(rank.round, *decision);
  }

  std::mt19937_64 random_;
  const std::uint64_t rounds_;
  std::vector<Mail> mail_;
  std::vector<Mail> news_;
};

Rank::Rank(Network& network, std::uint32_t own)
    : network_(network),
      own_(own),
      ends_(network.members.size()),
      agreement(*this, 99, network.members, network.tree, own) {}

const RankTable& Rank::table() const noexcept { return network_.table; }

void Rank::send_to(std::uint32_t world_rank, const std::string& frame) {
  if (is_dead) return;
  if (sends_left == 0) return network_.kill(own_);
  if (sends_left > 0) --sends_left;
  network_.post(own_, world_rank - first_world_rank, frame);
}

/// What nobody may ever see: two results of a round, or flags of others than those who have a part.
void expect_uniform(const Network& network) {
  std::map<std::uint64_t, Decision> first;
  for (const auto& rank : network.ranks) {
    for (const auto& [round, decision] : rank->returned) {
      EXPECT_EQ(first.try_emplace(round, decision).first->second, decision)
          << "rank " << rank->rank() - first_world_rank << ", round " << round;
      for (std::uint32_t r = 0; r < network.ranks.size(); ++r)
        EXPECT_EQ((decision.flags >> r & 1) != 0, decision.excluded.contains(r));
    }
  }
}

/// Every process that was never stopped has the result, and is part of it.
void expect_end(const Network& network, std::uint64_t rounds) {
  EXPECT_TRUE(network.is_over());
  for (const auto& rank : network.ranks) {
    if (rank->is_dead || rank->is_stopped || rank->never_calls) continue;
    EXPECT_TRUE(rank->returned.contains(rounds)) << "rank " << rank->rank() - first_world_rank;
  }
}

void expect_only_dead_excluded(const Network& network) {
  for (const auto& rank : network.ranks) {
    for (const auto& [round, decision] : rank->returned) {
      for (const auto& [excluded, why] : decision.excluded) EXPECT_TRUE(network.ranks[excluded]->is_dead);
    }
  }
}

TEST(Agreement, OfHealthyRanksHasAllOfThem) {
  for (std::uint32_t size = 1; size <= 7; ++size) {
    Network network(size, size);
    network.run_for(std::chrono::seconds(20));
    expect_end(network, 2);
    expect_uniform(network);
    for (const auto& rank : network.ranks) EXPECT_TRUE(rank->returned.at(1).excluded.empty());
  }
}

/// Each rank ends before each message that it sends, and with it, in every second run, another one before each of its.
TEST(Agreement, HoldsWhenARankEndsBeforeAnyOfItsMessages) {
  std::uint64_t schedules = 0;
  for (std::uint32_t size = 2; size <= 7; ++size) {
    for (std::uint32_t victim = 0; victim < size; ++victim) {
      for (int sends = 0; sends < 4 * static_cast<int>(size); ++sends) {
        for (std::uint64_t seed = 1; seed <= seeds(3); ++seed) {
          Network network(size, seed * 1000 + static_cast<std::uint64_t>(sends));
          network.ranks[victim]->sends_left = sends;
          network.run_for(std::chrono::seconds(20));
          expect_end(network, 2);
          expect_uniform(network);
          expect_only_dead_excluded(network);
          ++schedules;
          if (HasFailure()) FAIL() << size << " ranks, " << victim << " ends after " << sends << ", seed " << seed;
        }
      }
    }
  }
  EXPECT_GT(schedules, seeds(1000));
}

TEST(Agreement, HoldsWhenCoordinatorsEndOneAfterTheOther) {
  for (std::uint64_t seed = 1; seed <= seeds(1500); ++seed) {
    const auto size = static_cast<std::uint32_t>(2 + seed % 6);
    Network network(size, seed);
    const auto deaths = network.below(size);
    for (std::uint32_t rank = 0; rank < deaths; ++rank)
      network.ranks[rank]->sends_left = static_cast<int>(network.below(3 * size));
    network.run_for(std::chrono::seconds(20));
    expect_end(network, 2);
    expect_uniform(network);
    expect_only_dead_excluded(network);
    if (HasFailure()) FAIL() << "seed " << seed;
  }
}

TEST(Agreement, HoldsWhenAnyRanksEndAndMessagesAreLost) {
  for (std::uint64_t seed = 1; seed <= seeds(1500); ++seed) {
    const auto size = static_cast<std::uint32_t>(2 + seed % 6);
    Network network(size, seed);
    network.loss_percent = seed % 3 == 0 ? 10 : 0;
    for (std::uint64_t i = network.below(size); i > 0; --i)
      network.ranks[network.below(size)]->sends_left = static_cast<int>(network.below(3 * size));
    network.run_for(std::chrono::seconds(20));
    if (network.loss_percent == 0) expect_end(network, 2);
    EXPECT_TRUE(network.is_over());
    expect_uniform(network);
    if (HasFailure()) FAIL() << "seed " << seed;
  }
}

/// A process is stopped for longer than the others wait for it, at any moment.
TEST(Agreement, LeavesOutAStoppedRankWhichLearnsOfIt) {
  std::uint64_t left_out = 0;
  for (std::uint64_t seed = 1; seed <= seeds(2000); ++seed) {
    const auto size = static_cast<std::uint32_t>(2 + seed % 6);
    Network network(size, seed);
    const auto victim = static_cast<std::uint32_t>(network.below(size));
    network.run_for(milliseconds(network.below(200)));
    network.ranks[victim]->is_stopped = true;
    network.run_for(patience * 6);
    expect_end(network, 2);
    network.ranks[victim]->is_stopped = false;
    network.run_for(std::chrono::seconds(20));
    EXPECT_TRUE(network.is_over());
    expect_uniform(network);
    const Rank& woken = *network.ranks[victim];
    EXPECT_TRUE(woken.agreement.own_exclusion() || woken.returned.contains(2));
    left_out += woken.agreement.own_exclusion() ? 1U : 0U;
    if (HasFailure()) FAIL() << "seed " << seed << ", rank " << victim << " of " << size;
  }
  EXPECT_GT(left_out, seeds(500));
}

/// One is stopped, others end meanwhile; at least one that was never touched is left.
TEST(Agreement, HoldsWhenRanksAreStoppedAndOthersEnd) {
  for (std::uint64_t seed = 1; seed <= seeds(1500); ++seed) {
    const auto size = static_cast<std::uint32_t>(3 + seed % 5);
    Network network(size, seed);
    const auto stopped = static_cast<std::uint32_t>(network.below(size));
    const auto healthy = static_cast<std::uint32_t>((stopped + 1 + network.below(size - 1)) % size);
    for (std::uint64_t i = network.below(size); i > 0; --i) {
      const auto rank = static_cast<std::uint32_t>(network.below(size));
      if (rank != stopped && rank != healthy)
        network.ranks[rank]->sends_left = static_cast<int>(network.below(4 * size));
    }
    network.run_for(milliseconds(network.below(200)));
    network.ranks[stopped]->is_stopped = true;
    network.run_for(patience * (1 + static_cast<int>(network.below(12))) / 2);
    network.ranks[stopped]->is_stopped = false;
    network.run_for(std::chrono::seconds(20));
    EXPECT_TRUE(network.is_over());
    expect_uniform(network);
    if (HasFailure()) FAIL() << "seed " << seed << ", rank " << stopped << " of " << size << " stopped";
  }
}

/// All processes of a step are stopped and go on, as by scontrol suspend: none holds the time against another.
TEST(Agreement, DoesNotMindThatAllWereStopped) {
  for (std::uint64_t seed = 1; seed <= seeds(200); ++seed) {
    Network network(5, seed);
    network.run_for(milliseconds(network.below(200)));
    for (auto& rank : network.ranks) rank->is_stopped = true;
    for (int i = 0; i < 1000; ++i, network.now += tick) network.step();
    for (auto& rank : network.ranks) rank->is_stopped = false;
    network.run_for(std::chrono::seconds(20));
    expect_end(network, 2);
    expect_uniform(network);
    expect_only_dead_excluded(network);
    if (HasFailure()) FAIL() << "seed " << seed;
  }
}

TEST(Agreement, LeavesOutWhoDoesNotComeBeforeTheDeadline) {
  for (std::uint32_t late = 0; late < 4; ++late) {
    Network network(4, late, 1);
    network.deadline = milliseconds(2000);
    network.ranks[late]->never_calls = true;
    network.run_for(std::chrono::seconds(20));
    expect_end(network, 1);
    expect_uniform(network);
    const auto& some = network.ranks[(late + 1) % 4]->returned.at(1);
    EXPECT_EQ(some.excluded, (Exclusions{{late, Exclusion::late}}));
    for (int i = 0; i < 300; ++i, network.now += tick) network.step();
    EXPECT_EQ(network.ranks[late]->agreement.own_exclusion(), Exclusion::late);
  }
}

TEST(Agreement, LeavesOutFromTheStartWhomTheDiagnosisFoundSilent) {
  Network network(3, 1, 1);
  network.ranks[1]->is_stopped = true;
  for (const std::uint32_t rank : {0U, 2U}) network.ranks[rank]->agreement.exclude({{1, Exclusion::silent}});
  network.run_for(patience / 2);
  expect_end(network, 1);
  EXPECT_EQ(network.ranks[2]->returned.at(1).excluded, (Exclusions{{1, Exclusion::silent}}));
}

/// Sixty ranks on twenty nodes of three: a root, sixteen leaders below it, three below these, and their nodes.
TEST(Agreement, HoldsInADeepTreeWhateverEnds) {
  for (std::uint64_t seed = 1; seed <= seeds(60); ++seed) {
    Network network(60, seed, 2, 3);
    for (std::uint64_t i = network.below(20); i > 0; --i)
      network.ranks[network.below(60)]->sends_left = static_cast<int>(network.below(40));
    network.run_for(std::chrono::seconds(20));
    expect_end(network, 2);
    expect_uniform(network);
    expect_only_dead_excluded(network);
    if (HasFailure()) FAIL() << "seed " << seed;
  }
}

TEST(Agreement, HoldsInADeepTreeWhenRanksAreStopped) {
  for (std::uint64_t seed = 1; seed <= seeds(40); ++seed) {
    Network network(60, seed, 2, 3);
    network.run_for(milliseconds(network.below(200)));
    std::vector<std::uint32_t> stopped;
    for (std::uint64_t i = network.below(6); i > 0; --i) {
      stopped.push_back(static_cast<std::uint32_t>(network.below(60)));
      network.ranks[stopped.back()]->is_stopped = true;
    }
    network.run_for(patience * (1 + static_cast<int>(network.below(12))) / 2);
    for (const std::uint32_t rank : stopped) network.ranks[rank]->is_stopped = false;
    network.run_for(std::chrono::seconds(20));
    EXPECT_TRUE(network.is_over());
    expect_uniform(network);
    if (HasFailure()) FAIL() << "seed " << seed;
  }
}

/// Ten nodes of six. A rank has at most nine leaders below it, five ranks of its node, and one above.
TEST(Agreement, CostsARankMessagesForItsNeighboursOnly) {
  Network network(60, 1, 1, 6);
  network.run_for(std::chrono::seconds(20));
  expect_end(network, 1);
  for (const auto& rank : network.ranks) EXPECT_LE(rank->sent, 2 * (9 + 5) + 2);
  EXPECT_LE(network.ranks[59]->sent, 3U) << "of a rank that leads nobody";
}

/// The ranks of a node are found silent together, not one after the other as each takes the lead.
TEST(Agreement, LeavesOutAStoppedNodeAtOnce) {
  for (const std::uint32_t first : {0U, 6U, 12U}) {
    Network network(18, first, 1, 6);
    network.run_for(milliseconds(10));
    for (std::uint32_t r = 0; r < 18; ++r) {
      const bool is_there = (first_world_rank + r) / 6 == (first_world_rank + first) / 6;
      network.ranks[r]->is_stopped = is_there;
    }
    network.run_for(patience * 2 + patience / 2);
    expect_end(network, 1);
    expect_uniform(network);
  }
}

TEST(Agreement, LeavesOutAllWhoAreLateInADeepTree) {
  Network network(60, 1, 1, 3);
  network.deadline = milliseconds(2000);
  Exclusions late;
  for (const std::uint32_t rank : {0U, 1U, 5U, 6U, 7U, 59U}) {
    network.ranks[rank]->never_calls = true;
    late.emplace(rank, Exclusion::late);
  }
  network.run_for(std::chrono::seconds(20));
  expect_end(network, 1);
  expect_uniform(network);
  EXPECT_EQ(network.ranks[2]->returned.at(1).excluded, late);
}

TEST(AgreementMessage, IsRefusedWhenItIsCutShort) {
  AgreementMessage message;
  message.kind = AgreementMessage::Kind::decide;
  message.excluded = {{3, Exclusion::dead}};
  message.proposal = {1, {5, 1, {{2, Exclusion::late}}}};
  const std::string whole = message.to_frame().substr(world::frame_head);
  for (std::size_t length = 0; length < whole.size(); ++length) {
    Frame frame(whole.substr(0, length));
    EXPECT_FALSE(read_agreement_message(frame)) << length;
  }
  Frame frame(whole);
  const auto read = read_agreement_message(frame);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->excluded, message.excluded);
  EXPECT_EQ(read->proposal->value, message.proposal->value);
}

}  // namespace
}  // namespace amldist::world::agreement_test
