// Parts of a communicator that work without other ranks.
#include <gtest/gtest.h>

#include <thread>

#include <array>
#include <map>
#include <string>

#include "collective/communicator/context/refused_calls.hpp"
#include "collective/communicator/host/host_backend.hpp"
#include "collective/communicator/host/pending_messages.hpp"
#include "collective/communicator/record_place.hpp"
#include "collective/communicator/split_requests.hpp"

namespace amldist::collective::communicator_parts_test {
namespace {

// ---- split ----
TEST(SplitRequests, TravelAsText) {
  for (const SplitRequest request : {SplitRequest{0, 0}, SplitRequest{-1, 7}, SplitRequest{INT32_MAX, INT32_MIN}}) {
    const auto read = parse_split_request(to_string(request));
    EXPECT_EQ(read.color, request.color);
    EXPECT_EQ(read.key, request.key);
  }
}

TEST(SplitRequests, OrderRanksByKeyAndThenByRank) {
  const std::vector<SplitRequest> requests = {{1, 5}, {0, 0}, {1, -2}, {1, 5}, {-1, 0}};
  EXPECT_EQ(ranks_of_color(requests, 1), (std::vector<std::uint32_t>{2, 0, 3}));
  EXPECT_EQ(ranks_of_color(requests, 0), (std::vector<std::uint32_t>{1}));
}

TEST(SplitRequests, GiveEachCommunicatorANumberOfItsOwn) {
  EXPECT_EQ(split_id(7, 1, 0), split_id(7, 1, 0));
  EXPECT_NE(split_id(7, 1, 0), split_id(7, 1, 1));
  EXPECT_NE(split_id(7, 1, 0), split_id(7, 2, 0));
  EXPECT_NE(split_id(7, 1, 0), split_id(8, 1, 0));
}

// ---- where calls are recorded ----
amldist::EnvironmentReader task(std::map<std::string, std::string, std::less<>> more) {
  more.insert({{"SLURM_JOB_ID", "42"}, {"SLURM_STEP_ID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_STEP_NUM_TASKS", "8"}});
  return [more](std::string_view name) -> std::optional<std::string> {
    const auto found = more.find(name);
    return found != more.end() ? std::optional(found->second) : std::nullopt;
  };
}

TEST(RecordPlace, OfAWorldFromAStoreIsTheStepThatItsProcessesAreIn) {
  const auto environment = task({{"SLURM_PROCID", "5"}, {"SLURM_LOCALID", "1"}});
  ASSERT_EQ(rank_in_step(environment), "42.0 5/8");
  const amldist::trace::RecorderOwner own = {"world-1", 1, 2, 0, "node2"};
  const auto place = shared_place({"42.0 7/8", "42.0 5/8"}, own, environment);
  ASSERT_TRUE(place);
  EXPECT_EQ(place->owner.job, "42.0");
  EXPECT_EQ(place->owner.rank, 5U);
  EXPECT_EQ(place->owner.size, 8U);
  EXPECT_EQ(place->owner.local_rank, 1U);
  EXPECT_EQ(place->owner.host, "node2");
  EXPECT_EQ(place->step_ranks, (std::vector<std::uint32_t>{7, 5}));
}

TEST(RecordPlace, IsOneOfItsOwnWhereItsProcessesHaveNoRanksInOneStep) {
  const auto environment = task({{"SLURM_PROCID", "5"}});
  const amldist::trace::RecorderOwner own = {"world-1", 1, 2, 0, "node2"};
  EXPECT_FALSE(shared_place({"42.0 5/8", "42.0 5/8"}, own, environment)) << "two processes of one task";
  EXPECT_FALSE(shared_place({"42.1 7/8", "42.0 5/8"}, own, environment)) << "two steps";
  EXPECT_FALSE(shared_place({"", "42.0 5/8"}, own, environment)) << "one of them is in none";
  EXPECT_FALSE(shared_place({"42.0 7/8", ""}, own, environment));
  for (const char* const wrong : {"42.0 8/8", "42.0 x/8", "42.0 7", "../x 7/8", "42.0 7/9", " "})
    EXPECT_FALSE(shared_place({wrong, "42.0 5/8"}, own, environment)) << wrong;
}

TEST(RecordPlace, IsCalledAsThePluginCallsATracedStep) {
  EXPECT_EQ(step_name(task({})), "42.0");
  EXPECT_EQ(step_name(task({{"AMLDIST_TRACE", "41.0"}})), "41.0") << "a component of a heterogeneous step";
  EXPECT_EQ(step_name(task({{"AMLDIST_TRACE", "../x"}})), "42.0");
  EXPECT_FALSE(step_name([](std::string_view) { return std::nullopt; }));
  const auto below_launcher = [](std::string_view name) {
    return name == "AMLDIST_TRACE" ? std::optional<std::string>("41.0") : std::nullopt;
  };
  EXPECT_EQ(step_name(below_launcher), "41.0") << "Slurm's variables are hidden there";
}

// ---- sequence numbers ----
calls::Call call_of(calls::Operation operation, int root = 0) {
  calls::Call call;
  call.operation = operation;
  call.root = root;
  return call;
}

TEST(SequenceNumbers, CountCollectivesAndMessagesApart) {
  SequenceNumbers numbers(3);
  EXPECT_EQ(numbers.next(call_of(calls::Operation::barrier), false), 1U);
  EXPECT_EQ(numbers.next(call_of(calls::Operation::send, 2), false), 1U);
  EXPECT_EQ(numbers.next(call_of(calls::Operation::recv, 1), false), 2U);
  EXPECT_EQ(numbers.next(call_of(calls::Operation::allreduce), false), 2U);
  EXPECT_EQ(numbers.next(call_of(calls::Operation::send, 2), true), 3U);  // on a device: not tallied
  EXPECT_EQ(numbers.peek(call_of(calls::Operation::barrier)), 3U);
  EXPECT_EQ(numbers.peek(call_of(calls::Operation::send)), 4U);
  EXPECT_EQ(std::vector(numbers.sent().begin(), numbers.sent().end()), (std::vector<std::uint64_t>{0, 0, 1}));
  EXPECT_EQ(numbers.received(), 1U);
}

// ---- observers ----
struct Seen : CallObserver {
  [[nodiscard]] Ticket begin(const calls::Call& call, std::uint64_t /*began*/) override {
    begun.push_back(call.sequence);
    return begun.size();
  }
  void complete(Ticket ticket) override { completed.push_back(ticket); }
  void record_ended(const calls::Call& call, std::uint64_t began, std::uint64_t ended) override {
    times = {began, ended};
    complete(begin(call, began));
  }
  void fail(Ticket ticket, const Error& error) override {
    failed.push_back(ticket);
    why = error.message;
  }
  std::vector<std::uint64_t> begun;
  std::vector<Ticket> completed;
  std::vector<Ticket> failed;
  std::string why;
  std::array<std::uint64_t, 2> times = {};  ///< beginning and end of the last one that was told when it had ended
};

TEST(RefusedCalls, TellTheObserverOfTheFirstOnly) {
  world::ControlChannel channel(world::single_process_world("node"), false);
  CommContext context(channel, std::make_shared<world::CommWatch>(1, std::vector<std::uint32_t>{0}, 0),
                      milliseconds(1000));
  SequenceNumbers numbers(1);
  static_cast<void>(numbers.next(call_of(calls::Operation::barrier), false));
  Seen seen;
  RefusedCalls refused(context, numbers, seen);
  context.watch().give_diagnosis({Errc::peer, "rank 3 has ended"});
  for (int i = 0; i < 2; ++i) {
    const Error refusal = refused.refuse(call_of(calls::Operation::allreduce), 0);
    EXPECT_EQ(refusal.code, Errc::aborted);
    EXPECT_EQ(refusal.message, "rank 3 has ended");
  }
  EXPECT_EQ(seen.begun, std::vector<std::uint64_t>{2});  // the number that it would have had
  EXPECT_EQ(seen.failed, std::vector<CallObserver::Ticket>{1});
  EXPECT_EQ(seen.why, "rank 3 has ended");
  EXPECT_TRUE(seen.completed.empty());
}

// ---- messages ----
/// One message, which arrives when the test says so.
class OneMessage final : public Transport {
 public:
  [[nodiscard]] std::string_view name() const noexcept override { return "test"; }
  [[nodiscard]] std::size_t part_bytes() const noexcept override { return 64; }
  [[nodiscard]] bool serves_any_thread() const noexcept override { return true; }
  [[nodiscard]] Result<void> post(const Message& /*message*/, Direction /*direction*/, std::size_t& left,
                                  calls::Watchdog& /*watchdog*/) override {
    if (is_broken) return Error{Errc::peer, "broken"};
    if (ends_at_once) return {};
    ++left;
    left_ = &left;
    return {};
  }
  [[nodiscard]] bool posts_at_once(int /*peer*/, int /*tag*/) const noexcept override { return true; }
  [[nodiscard]] bool move_at_once(const Message& /*message*/, Direction /*direction*/, Look /*look*/) override {
    return moves_at_once;
  }
  [[nodiscard]] std::optional<VainLooks> vain_looks(const Message& /*moved*/) const noexcept override { return looks; }
  [[nodiscard]] Result<bool> progress(calls::Watchdog& /*watchdog*/) override {
    if (!has_arrived) return moves_others;
    --*left_;
    return true;
  }
  bool rest(int /*idle*/) override { return rests; }
  [[nodiscard]] int awaited() const noexcept override { return 0; }
  void give_up() noexcept override {}

  bool has_arrived = false;
  bool is_broken = false;
  bool ends_at_once = false;
  bool moves_at_once = false;
  bool rests = true;
  bool moves_others = false;
  std::optional<VainLooks> looks;

 private:
  std::size_t* left_ = nullptr;
};

struct NoDriver final : RequestDriver {
  void progress_for(const Request& /*request*/, ProgressUntil /*until*/) override {}
  [[nodiscard]] bool is_here() const noexcept override { return true; }
};

struct PendingMessagesTest : ::testing::Test {
  static calls::Call numbered(calls::Operation operation, std::uint64_t number) {
    calls::Call call = call_of(operation);
    call.sequence = number;
    return call;
  }

  world::ControlChannel channel{world::single_process_world("node"), false};
  CommContext context{channel, std::make_shared<world::CommWatch>(1, std::vector<std::uint32_t>{0}, 0),
                      milliseconds(1000)};
  SequenceNumbers numbers{1};
  Seen seen;
  RefusedCalls refused{context, numbers, seen};
  MpiProgress mpi{nullptr, true};
  TickClock ticks;
  OneMessage transport;
  NoDriver driver;
  PendingMessages messages{{context, numbers, refused, seen, mpi, ticks}, transport};
};

TEST_F(PendingMessagesTest, TheLastOneEndsInsideACollectiveThatGoesOn) {
  const auto request = RequestPtr(new Request(call_of(calls::Operation::recv), driver));
  messages.submit(request);
  messages.take_up();
  context.watch().enter(numbered(calls::Operation::allreduce, 1));
  transport.has_arrived = true;
  CallProgress(messages, mpi).drive();  // while the collective waits
  EXPECT_TRUE(request->is_done());
  EXPECT_TRUE(context.watch().activity().inside);
  EXPECT_EQ(context.watch().activity().call.operation, calls::Operation::allreduce);
  context.watch().leave();
  EXPECT_FALSE(context.watch().activity().inside);
}

TEST_F(PendingMessagesTest, TheLastOneIsNotInProgressWhenItHasEnded) {
  messages.submit(RequestPtr(new Request(call_of(calls::Operation::recv), driver)));
  messages.take_up();
  messages.back_off(1);
  EXPECT_TRUE(context.watch().activity().inside);
  transport.has_arrived = true;
  EXPECT_TRUE(messages.progress());
  EXPECT_FALSE(context.watch().activity().inside);
}

TEST_F(PendingMessagesTest, OneThatEndsAtOnceIsObservedAndDone) {
  const auto request = RequestPtr(new Request(call_of(calls::Operation::send), driver));
  transport.ends_at_once = true;
  EXPECT_TRUE(messages.can_begin(request->first()));
  messages.begin(request, HostBackend::message_of(request->first()), 0);
  EXPECT_TRUE(request->is_done());
  EXPECT_TRUE(request->result());
  EXPECT_TRUE(messages.is_empty());
  EXPECT_EQ(seen.completed.size(), 1U);
}

TEST_F(PendingMessagesTest, OneThatWasSubmittedComesBeforeOneThatBegins) {
  messages.submit(RequestPtr(new Request(call_of(calls::Operation::recv), driver)));
  EXPECT_FALSE(messages.can_begin(call_of(calls::Operation::send)));
  messages.take_up();
  EXPECT_TRUE(messages.can_begin(call_of(calls::Operation::send)));
}

TEST_F(PendingMessagesTest, OneThatIsMovedAtOnceIsNumberedAndObserved) {
  calls::Call call = call_of(calls::Operation::send);
  EXPECT_FALSE(messages.try_at_once(call, HostBackend::message_of(call), 0));
  EXPECT_TRUE(seen.begun.empty());
  transport.moves_at_once = true;
  EXPECT_TRUE(messages.try_at_once(call, HostBackend::message_of(call), 0));
  EXPECT_EQ(call.sequence, 1U);
  EXPECT_EQ(seen.begun, std::vector<std::uint64_t>{1});
  EXPECT_EQ(seen.completed.size(), 1U);
  EXPECT_EQ(numbers.sent().front(), 1U);
  EXPECT_TRUE(messages.is_empty());
}

TEST_F(PendingMessagesTest, OneThatIsMovedAtOnceIsTimedByItsLooks) {
  using Times = std::array<std::uint64_t, 2>;
  using Look = Transport::Look;
  calls::Call call = call_of(calls::Operation::recv);
  transport.moves_at_once = true;
  const auto times = [&](Look look) {
    EXPECT_TRUE(messages.try_at_once(call, HostBackend::message_of(call), 5, look));
    return seen.times;
  };
  EXPECT_EQ(times(Look::once), (Times{5, 5}));
  transport.looks = VainLooks{};
  EXPECT_EQ(times(Look::briefly), (Times{5, 5})) << "it was there at the first look";
  transport.looks = VainLooks{6, 9};
  EXPECT_EQ(times(Look::briefly), (Times{6, 9})) << "it has waited";
  const std::uint64_t before = ticks.now();
  transport.looks = VainLooks{6, 0};
  EXPECT_EQ(times(Look::briefly)[0], 6U);
  EXPECT_LE(before, seen.times[1]) << "it has waited in another way at the end";
  transport.looks = std::nullopt;
  EXPECT_EQ(times(Look::briefly)[0], 5U);
  EXPECT_LE(before, seen.times[1]) << "how it has waited is not known";
}

TEST_F(PendingMessagesTest, NoneIsMovedBeforeOneThatWasSubmittedOrOnALostCommunicator) {
  transport.moves_at_once = true;
  calls::Call call = call_of(calls::Operation::send);
  messages.submit(RequestPtr(new Request(call_of(calls::Operation::recv), driver)));
  EXPECT_FALSE(messages.try_at_once(call, HostBackend::message_of(call), 0));
  messages.take_up();
  EXPECT_TRUE(messages.try_at_once(call, HostBackend::message_of(call), 0));
  context.watch().give_diagnosis({Errc::peer, "rank 3 has ended"});
  EXPECT_FALSE(messages.try_at_once(call, HostBackend::message_of(call), 0));
}

/// The thread that begins one must not run the functions of other requests.
TEST_F(PendingMessagesTest, AFailureReachesAllInTheNextRoundOfProgress) {
  const auto first = RequestPtr(new Request(call_of(calls::Operation::recv), driver));
  int told = 0;
  EXPECT_TRUE(first->on_complete([&](const Result<void>& result) { told += result ? 0 : 1; }));
  messages.begin(first, HostBackend::message_of(first->first()), 0);
  transport.is_broken = true;
  const auto second = RequestPtr(new Request(call_of(calls::Operation::send), driver));
  messages.begin(second, HostBackend::message_of(second->first()), 0);
  const auto third = RequestPtr(new Request(call_of(calls::Operation::send), driver));
  messages.begin(third, HostBackend::message_of(third->first()), 0);
  EXPECT_FALSE(first->is_done() || second->is_done() || third->is_done());
  EXPECT_EQ(told, 0);
  EXPECT_TRUE(messages.progress());
  EXPECT_EQ(told, 1);
  for (const auto& each : {first, second, third}) {
    ASSERT_TRUE(each->is_done());
    EXPECT_EQ(each->result().error().message, "broken");
  }
  EXPECT_TRUE(messages.is_empty());
}

/// What moves may be other messages alone.
TEST_F(PendingMessagesTest, TheWatchdogsAreAskedThoughSomethingMovesInEachRound) {
  const auto request = RequestPtr(new Request(call_of(calls::Operation::recv), driver));
  messages.begin(request, HostBackend::message_of(request->first()), 0);
  context.watch().give_diagnosis({Errc::peer, "rank 3 has ended"});
  for (int round = 1; round < Transport::most_rounds_unasked; ++round) messages.back_off(0);
  EXPECT_FALSE(request->is_done());
  messages.back_off(0);
  ASSERT_TRUE(request->is_done());
  EXPECT_EQ(request->result().error().message, "rank 3 has ended");
}

TEST_F(PendingMessagesTest, AnExchangeAsksThoughSomethingMovesInEachRound) {
  transport.moves_others = true;
  CallWatchdog watchdog(context);
  context.watch().give_diagnosis({Errc::peer, "rank 3 has ended"});
  const std::array<Message, 1> receives{};
  const auto done = transport.exchange({}, receives, watchdog);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().message, "rank 3 has ended");
}

TEST_F(PendingMessagesTest, TheWatchdogsAreAskedWhereTheProgramOnlyTests) {
  transport.rests = false;
  const auto request = RequestPtr(new Request(call_of(calls::Operation::recv), driver));
  messages.begin(request, HostBackend::message_of(request->first()), 0);
  context.watch().give_diagnosis({Errc::peer, "rank 3 has ended"});
  messages.back_off(1);
  EXPECT_FALSE(request->is_done());
  messages.ask_at_intervals();
  ASSERT_TRUE(request->is_done());
  EXPECT_EQ(request->result().error().message, "rank 3 has ended");
}

// ---- requests ----
TEST_F(PendingMessagesTest, AFunctionIsCalledOnceWhetherTheRequestIsDoneOrNot) {
  for (const bool is_done : {false, true}) {
    Request request(call_of(calls::Operation::send), driver);
    int told = 0;
    if (is_done) request.complete({});
    EXPECT_TRUE(request.on_complete([&](const Result<void>& /*result*/) { ++told; }));
    EXPECT_FALSE(request.on_complete([&](const Result<void>& /*result*/) { told += 10; }));
    if (!is_done) request.complete({});
    EXPECT_EQ(told, 1);
    EXPECT_TRUE(request.is_done());
  }
}

TEST_F(PendingMessagesTest, ARequestKeepsCopiesOfItsCallsLists) {
  std::vector<std::size_t> counts = {1, 2};
  std::vector<std::size_t> offsets = {0, 1};
  const calls::CallLists lists = {counts, offsets, counts, offsets};
  calls::Call call = call_of(calls::Operation::alltoallv);
  call.lists = &lists;
  const Request request(call, driver);
  counts.assign(2, 77);
  offsets.assign(2, 78);
  EXPECT_EQ(request.first().lists->send_counts[1], 2U);
  EXPECT_EQ(request.first().lists->recv_offsets[1], 1U);
}

TEST_F(PendingMessagesTest, AThreadThatSleepsIsWokenWhenTheRequestIsDone) {
  Request request(call_of(calls::Operation::send), driver);
  std::thread completes([&] { request.complete(Error{Errc::peer, "gone"}); });
  request.wait();
  EXPECT_EQ(request.result().error().message, "gone");
  completes.join();
}

// ---- what the control thread reads ----
/// The number of the last collective is written after the call itself.
TEST(CommWatch, ReadsACallThatIsBeingWritten) {
  world::CommWatch watch(1, {0, 1}, 0);
  for (const std::uint64_t number : {8U, 9U, 8U}) {
    calls::Call call = call_of(calls::Operation::allreduce);
    call.sequence = number;
    watch.enter(call);
  }
  std::vector<std::uint64_t> read;
  for (const world::PastCall& one : watch.past()) read.push_back(one.call.sequence);
  EXPECT_EQ(read, (std::vector<std::uint64_t>{8, 9}));
}

}  // namespace
}  // namespace amldist::collective::communicator_parts_test
