// Who answers a step's nodes: what of anybody's datagrams is taken, and that the stand-in always ends.
#include "spank/server/step_server.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/memory/shared_atomic.hpp"
#include "base/net/datagram_socket.hpp"
#include "base/text/text.hpp"
#include "spank/server/message_server.hpp"
#include "spank/slurm/output.hpp"
#include "spank/slurm/slurm_api.hpp"
#include "step/messages/datagram.hpp"
#include "step/messages/srun_link.hpp"

namespace amldist::spank {
namespace {

constexpr step::Token token{0x00c0ffee00c0ffee, 0x5ca1ab1e5ca1ab1e};
const Clock::time_point now{};

/// A free UDP port: tests run beside each other.
std::uint16_t free_port() {
  const auto socket = DatagramSocket::for_all();
  return socket.bind(0) ? socket.port() : std::uint16_t{0};
}

const std::uint16_t own_port = free_port();

std::vector<std::string>& lines() {
  static std::vector<std::string> told;
  return told;
}

std::mutex& telling() {
  static std::mutex mutex;
  return mutex;
}

/// SIGKILLs that were sent to a step, by processes of the server's.
const SharedAtomic<int>& kills() {
  static const auto count = SharedAtomic<int>::make();
  return count;
}

MessageServer server_of(std::uint32_t tasks, std::uint32_t nodes) {
  return MessageServer({.token = token, .tasks = tasks, .nodes = nodes, .most_notices = 4096, .tell = tell_step});
}

step::FailureReport failed(std::uint32_t rank) {
  step::FailureReport report;
  report.rank = rank;
  report.wait_status = 7 << 8;
  report.host = "node2";
  return report;
}

ServedStep step() { return {.job_id = 1, .tasks = 4, .nodes = 2, .rights = UserRights{::getuid(), ::getgid()}}; }
Result<std::unique_ptr<StepServer>> open_stand_in() { return StepServer::open({own_port, own_port}, token); }

step::SrunLink link_here() { return {*IpAddress::parse("127.0.0.1"), {own_port, token}}; }

}  // namespace

// What the plugin has from Slurm.
void tell_step(std::string_view sentence) noexcept {
  const std::lock_guard lock(telling());
  lines().emplace_back(sentence);
}
void tell_user(std::string_view sentence) noexcept { tell_step(sentence); }
void log_for_administrator(std::string_view sentence) noexcept { tell_step(sentence); }
std::optional<JobEnd> end_of_job(std::uint32_t job_id) {
  return job_id == 2 ? std::optional(JobEnd::cancelled) : std::nullopt;
}
StepLimit limit_of_step(std::uint32_t /*job_id*/, std::uint32_t /*step_id*/) { return {}; }
/// Job 3 has a time limit; nobody answers for job 4.
StepLimit time_left(std::uint32_t job_id, std::uint32_t /*step_id*/) {
  if (job_id == 3) return {.left = std::chrono::seconds(61)};
  return {.answered = job_id != 4};
}
bool kills_on_bad_exit_by_default() { return false; }
step::NodePresence presence_of_step(std::uint32_t /*job_id*/, std::uint32_t /*step_id*/, std::uint32_t /*component*/,
                                    const std::string& /*node*/) {
  return step::NodePresence::has_started;
}
std::chrono::seconds kill_wait() { return std::chrono::seconds(1); }
Result<void> end_step(std::uint32_t /*job_id*/, std::uint32_t /*step_id*/) { return {}; }
Result<void> signal_step(std::uint32_t /*job_id*/, std::uint32_t /*step_id*/, int signal) {
  if (signal == SIGKILL) kills().store(kills().load() + 1);
  return {};
}
Result<std::string> comment_of_job(std::uint32_t /*job_id*/) { return std::string(); }
Result<void> set_comment_of_job(std::uint32_t /*job_id*/, std::string /*comment*/) { return {}; }

TEST(MessageServer, AnswersNobodyWithoutTheToken) {
  MessageServer server = server_of(4, 2);
  for (const auto& datagram : {failed(0).to_datagram(token ^ 1), to_datagram(step::MessageType::may_i_end, token ^ 1),
                               std::string("x"), std::string(4096, ';'), std::string()}) {
    EXPECT_FALSE(server.take(datagram, now)) << datagram;
  }
  EXPECT_FALSE(server.failure().stands());
}

TEST(MessageServer, DropsWhatDoesNotFitTheStep) {
  MessageServer server = server_of(4, 2);
  EXPECT_FALSE(server.take(step::WorkerEnd{false, 4, 0, 0, 5}.to_datagram(token), now))
      << "a rank that the step does not have";
  EXPECT_FALSE(
      server.take(step::FabricVote{0, 3, launch::RdmaPolicy::prefer, true, "", "node1"}.to_datagram(token), now));
  EXPECT_FALSE(server.take(step::Notice{{0, 2, 0}, 1, "text"}.to_datagram(token), now))
      << "a node that the step does not have";
  static_cast<void>(server.take(failed(4).to_datagram(token), now));
  EXPECT_FALSE(server.failure().stands());
}

TEST(MessageServer, KeepsNoMoreNoticesThanItMay) {
  MessageServer server = server_of(4, 2);
  for (std::uint32_t round = 0; round < 100; ++round) {
    EXPECT_TRUE(server.take(step::Notice{{round, 1, 0}, 1, std::string(400, 'x')}.to_datagram(token), now));
  }
  const auto answer = [&server](std::uint32_t round) {
    return server.take(step::NoticeKey{round, 1, 0}.to_datagram(token), now);
  };
  EXPECT_NE(answer(0), to_datagram(step::MessageType::not_yet, token));
  EXPECT_EQ(answer(99), to_datagram(step::MessageType::not_yet, token));
}

/// A thousand nodes of a hundred tasks, all of which end at once: work that is linear in the tasks, and one line.
TEST(MessageServer, TakesAHundredThousandFailuresAtOnce) {
  constexpr std::uint32_t nodes = 1000;
  constexpr std::uint32_t tasks_of_node = 100;
  MessageServer server = server_of(nodes * tasks_of_node, nodes);
  std::uint32_t heard = 0;
  for (std::uint32_t task = 0; task < tasks_of_node; ++task) {
    for (std::uint32_t node = 0; node < nodes; ++node) {
      step::FailureReport report = failed(node * tasks_of_node + task);
      report.host = "node" + std::to_string(node);
      report.elapsed_ms = 5000;
      heard += server.take(report.to_datagram(token), now) == to_datagram(step::MessageType::heard, token) ? 1U : 0U;
    }
  }
  EXPECT_EQ(heard, nodes * tasks_of_node);
  ASSERT_TRUE(server.failure().stands());
  EXPECT_EQ(server.failure().record({}).evidence,
            "rank 0 (local 0) on node0: exit status 7, 5.0 s after the start; all 100000 tasks ended this way");
}

/// A task that ends before its node has voted would let the others wait for its vote.
TEST(MessageServer, ATaskThatEndsBeforeAllNodesHaveVotedDecidesForThem) {
  MessageServer server = server_of(4, 2);
  const auto vote = [&server] {
    const step::FabricVote good{0, 2, launch::RdmaPolicy::require, true, "", "node1"};
    return server.take(good.to_datagram(token), now);
  };
  EXPECT_EQ(vote(), to_datagram(step::MessageType::not_yet, token));
  static_cast<void>(server.take(failed(2).to_datagram(token), now));
  lines().clear();
  EXPECT_EQ(vote(), to_datagram(step::MessageType::refuse_step, token));
  ASSERT_EQ(lines().size(), 1U);
  EXPECT_NE(lines()[0].find("a task has ended before all nodes were verified"), std::string::npos) << lines()[0];
}

/// What the nodes tell and ask before they write to each other.
class NodesThatWait : public ::testing::Test {
 protected:
  NodesThatWait() { lines().clear(); }
  void comes(std::uint32_t node, Clock::time_point at = now) {
    const step::Notice presence{{fabric::presence_round, node, 0}, 1, "require 3"};
    EXPECT_EQ(server.take(presence.to_datagram(token), at), to_datagram(step::MessageType::heard, token));
  }
  /// The answer to a node that asks for its own notice.
  [[nodiscard]] std::string about(std::uint32_t node, Clock::time_point at = now) {
    return server.take(step::NoticeKey{fabric::presence_round, node, 0}.to_datagram(token), at).value_or("nothing");
  }
  const std::string not_yet = to_datagram(step::MessageType::not_yet, token);
  MessageServer server = server_of(6, 0);  // as in srun, which does not know the step's size at first
};

TEST_F(NodesThatWait, AreToldOfNoneUntilAllHaveCome) {
  comes(0);
  comes(1);
  EXPECT_EQ(about(0), not_yet);
  EXPECT_EQ(about(1), not_yet) << "it would wait for node 2, and its partner for it";
  comes(2);
  for (std::uint32_t node = 0; node < 3; ++node) EXPECT_NE(about(node).find(";require 3"), std::string::npos) << node;
}

TEST_F(NodesThatWait, AreNoneThatTheStepDoesNotHave) {
  comes(0);
  comes(1);
  comes(7);
  EXPECT_EQ(about(0), not_yet);
}

/// Its rdma_pairs= may be off.
TEST_F(NodesThatWait, DoNotWaitForANodeThatHasVoted) {
  const step::FabricVote good{2, 3, launch::RdmaPolicy::require, true, "", "node3"};
  const auto later = now + std::chrono::hours(1);
  EXPECT_EQ(server.take(good.to_datagram(token), later), not_yet);
  comes(0, later);
  EXPECT_EQ(about(0, later), not_yet);
  EXPECT_TRUE(lines().empty()) << "node 0 has just come";
  comes(1, later);
  for (std::uint32_t node = 0; node < 2; ++node) EXPECT_NE(about(node, later).find(";require 3"), std::string::npos);
}

TEST_F(NodesThatWait, AreMentionedOnceAfterAWhile) {
  comes(1);
  EXPECT_EQ(about(0), not_yet);
  EXPECT_TRUE(lines().empty());
  for (int i = 0; i < 2; ++i) EXPECT_EQ(about(0, now + std::chrono::minutes(1)), not_yet);
  ASSERT_EQ(lines().size(), 1U);
  EXPECT_TRUE(lines()[0].starts_with("1 of 3 nodes wait to write to each other")) << lines()[0];
}

TEST_F(NodesThatWait, AreToldOfATaskThatHasEnded) {
  comes(0);
  static_cast<void>(server.take(failed(2).to_datagram(token), now));
  EXPECT_EQ(about(1), to_datagram(step::MessageType::refuse_step, token));
  ASSERT_EQ(lines().size(), 1U);
  EXPECT_NE(lines()[0].find("rdma=require"), std::string::npos) << lines()[0];
}

TEST(MessageServer, ATaskThatEndsAfterAllNodesHaveVotedChangesNothing) {
  MessageServer server = server_of(4, 2);
  const auto vote = [&server](std::uint32_t node) {
    const step::FabricVote good{node, 2, launch::RdmaPolicy::require, true, "", "node"};
    return server.take(good.to_datagram(token), now);
  };
  static_cast<void>(vote(0));
  EXPECT_EQ(vote(1), to_datagram(step::MessageType::use_fabric, token));
  static_cast<void>(server.take(failed(2).to_datagram(token), now));
  EXPECT_EQ(vote(0), to_datagram(step::MessageType::use_fabric, token));
}

TEST(MessageServer, ReleasesServersWhenTheWorkersHaveEnded) {
  MessageServer server = server_of(4, 2);
  const auto may_end = [&server] { return server.take(to_datagram(step::MessageType::may_i_end, token), now); };
  EXPECT_EQ(may_end(), to_datagram(step::MessageType::not_yet, token));
  for (const std::uint32_t rank : {0U, 1U}) {
    EXPECT_EQ(server.take(step::WorkerEnd{false, rank, 0, 0, 2}.to_datagram(token), now),
              to_datagram(step::MessageType::heard, token));
  }
  EXPECT_EQ(may_end(), to_datagram(step::MessageType::end, token));
}

TEST(StandIn, SaysTheFirstFailureWhenItsNodeHasEnded) {
  lines().clear();
  {
    auto own = open_stand_in();
    ASSERT_TRUE(own) << own.error().message;
    (*own)->serve(step());
    EXPECT_TRUE(tell(link_here(), failed(2).to_datagram(token)));
    send_without_reply(link_here(), failed(1).to_datagram(token));
    EXPECT_TRUE(tell(link_here(), step::WorkerEnd{false, 0, 0, 0, 2}.to_datagram(token)));
  }
  ASSERT_EQ(lines().size(), 1U);
  EXPECT_TRUE(lines()[0].starts_with("first failure: rank 2 (local 0) on node2: exit status 7")) << lines()[0];
}

TEST(StandIn, SaysThatSlurmEndedTheJobAndBlamesNoRank) {
  lines().clear();
  {
    auto own = open_stand_in();
    ASSERT_TRUE(own) << own.error().message;
    ServedStep cancelled = step();
    cancelled.job_id = 2;
    (*own)->serve(cancelled);
    EXPECT_TRUE(tell(link_here(), failed(2).to_datagram(token)));
  }
  EXPECT_EQ(lines(), std::vector<std::string>{"ended by Slurm: the job was cancelled (scancel, or Ctrl-C in srun)"});
}

/// slurmctld may be away, or lose a request: a step that is to end would hold its nodes.
TEST(StandIn, SendsSigkillAgainWhileItsStepHasNotEnded) {
  auto own = open_stand_in();
  ASSERT_TRUE(own) << own.error().message;
  (*own)->serve(step());
  kills().store(0);
  step::FailureReport refused = failed(2);
  refused.kind = step::FailureReport::Kind::refused;
  EXPECT_TRUE(tell(link_here(), refused.to_datagram(token)));
  for (int tenth = 0; tenth < 300 && kills().load() < 2; ++tenth)
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(kills().load(), 2);
}

TEST(StandIn, EndsUnderAFloodOfItsOwnUsers) {
  std::atomic<bool> stop = false;
  std::thread flood([&stop] {
    step::NodeSocket socket(link_here());
    while (!stop) socket.send(to_datagram(step::MessageType::may_i_end, token));
  });
  {
    auto own = open_stand_in();
    ASSERT_TRUE(own) << own.error().message;
    (*own)->serve(step());
  }  // a flood that could hold it would hold this test to its time limit
  stop = true;
  flood.join();
}

TEST(StandIn, AnswersOverBothFamilies) {
  auto own = open_stand_in();
  ASSERT_TRUE(own) << own.error().message;
  (*own)->serve(step());
  for (const char* const address : {"127.0.0.1", "::1"}) {
    if (!DatagramSocket::towards(*IpAddress::parse(address))) continue;  // the system has no IPv6
    const step::SrunLink link{*IpAddress::parse(address), {own_port, token}};
    EXPECT_TRUE(tell(link, step::WorkerEnd{false, 0, 0, 0, 2}.to_datagram(token))) << address;
  }
}

TEST(StandIn, ARepetitionOfARecordedDatagramChangesNothingAndIsCounted) {
  lines().clear();
  {
    auto own = open_stand_in();
    ASSERT_TRUE(own) << own.error().message;
    (*own)->serve(step());
    EXPECT_TRUE(tell(link_here(), step::WorkerEnd{false, 0, 0, 0, 2}.to_datagram(token)));
    const step::Stamp stamp{7, 1};
    const std::string recorded =
        seal(token, step::Direction::to_srun, stamp, to_datagram(step::MessageType::may_i_end, token));
    const auto socket = DatagramSocket::towards(link_here().address);
    for (const std::string& datagram : {recorded, recorded, recorded, std::string("x")})
      EXPECT_TRUE(socket.send(datagram, {link_here().address, own_port}));
  }
  ASSERT_EQ(lines().size(), 1U);
  EXPECT_EQ(lines()[0],
            "3 datagrams that came to the port of step 1.0 were dropped: 1 without the step's code, 2 repeated, "
            "0 too late");
}

std::string when_stop() {
  return step::ask(link_here(), step::MessageType::when_stop, step::Subject::stop_in, 20).value_or("no answer");
}

std::vector<std::string> told_of_stop(std::uint32_t job_id, std::string& first_answer, std::string& last_answer) {
  lines().clear();
  auto own = open_stand_in();
  if (!own) return {own.error().message};
  ServedStep stops = step();
  stops.job_id = job_id;
  stops.stop = launch::StopWish{60, 0};
  (*own)->serve(stops);
  constexpr std::chrono::milliseconds for_slurmctld(500);
  std::this_thread::sleep_for(for_slurmctld);
  first_answer = when_stop();
  std::this_thread::sleep_for(std::chrono::milliseconds(1000));
  last_answer = when_stop();
  own->reset();
  return lines();
}

TEST(Stop, IsToldSoLongBeforeTheTimeLimit) {
  std::string first;
  std::string last;
  const auto told = told_of_stop(3, first, last);
  const auto left = text::to_number(first, 1000);
  EXPECT_TRUE(left && *left > 0) << first;
  EXPECT_EQ(last, "0");
  ASSERT_EQ(told.size(), 1U);
  EXPECT_TRUE(told[0].starts_with("stop: the ranks are asked to stop, 61 s before the time limit: by the file"))
      << told[0];
}

TEST(Stop, WithoutATimeLimitIsNeverAndSaidOnce) {
  std::string first;
  std::string last;
  const auto told = told_of_stop(1, first, last);
  EXPECT_EQ(first, "never");
  EXPECT_EQ(last, "never");
  ASSERT_EQ(told.size(), 1U);
  EXPECT_NE(told[0].find("stop=60: there is no time limit"), std::string::npos) << told[0];
}

TEST(Stop, ASlurmctldThatDoesNotAnswerIsNoStop) {
  std::string first;
  std::string last;
  EXPECT_TRUE(told_of_stop(4, first, last).empty());
  EXPECT_EQ(last, "never");
}

TEST(StandIn, SaysNothingBeforeTheStepsOutputIsThere) {
  lines().clear();
  const auto told = [] {
    const std::lock_guard lock(telling());
    return lines().size();
  };
  auto own = open_stand_in();
  ASSERT_TRUE(own) << own.error().message;
  const step::FabricVote sick{1, 2, launch::RdmaPolicy::prefer, false, "", "node2: ib.state: port 1 is down"};
  const std::string vote = sick.to_datagram(token);
  EXPECT_FALSE(tell(link_here(), vote));
  EXPECT_EQ(told(), 0U);
  (*own)->serve(step());
  while (told() == 0) std::this_thread::yield();  // the vote was kept
  own->reset();
  EXPECT_EQ(told(), 1U) << "once, however often the node votes";
}

TEST(StandIn, AForkThatEndsLeavesItAlone) {
  auto own = open_stand_in();
  ASSERT_TRUE(own) << own.error().message;
  (*own)->serve(step());
  EXPECT_EXIT(
      {
        own->reset();
        std::_Exit(0);
      },
      ::testing::ExitedWithCode(0), "");
  EXPECT_TRUE(tell(link_here(), step::WorkerEnd{false, 0, 0, 0, 2}.to_datagram(token)));
}

TEST(StandIn, APortThatIsTakenIsNamed) {
  auto first = open_stand_in();
  ASSERT_TRUE(first);
  auto second = open_stand_in();
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().message, text::concat({"UDP port ", std::to_string(own_port), ": Address already in use"}));
}

}  // namespace amldist::spank
