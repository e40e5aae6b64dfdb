#include "step/messages/server_release.hpp"

#include <csignal>

#include "launch/frameworks/tensorflow_roles.hpp"
#include "step/messages/control_message.hpp"
#include "step/messages/datagram.hpp"
#include "support.hpp"

namespace amldist::step::server_release_test {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t token = 0x00c0ffee00c0ffee;
constexpr ServerRelease::Clock::time_point start{};

WorkerEnd chief(std::uint32_t status = 0, std::uint32_t workers = 2) { return {true, 0, status, 1, workers}; }
WorkerEnd worker(std::uint32_t rank, std::uint32_t status = 0, std::uint32_t chiefs = 0, std::uint32_t workers = 2) {
  return {false, rank, status, chiefs, workers};
}

TEST(Words, ReadBackWhatTheyWrite) {
  EXPECT_EQ(to_datagram(MessageType::may_i_end, token), "aml-dist;1;00c0ffee00c0ffee;may-i-end");
  for (const MessageType word : {MessageType::may_i_end, MessageType::not_yet, MessageType::end, MessageType::heard,
                                 MessageType::which_record, MessageType::which_address, MessageType::no_address}) {
    EXPECT_EQ(parse_message_type(to_datagram(word, token), token), word);
    EXPECT_FALSE(parse_message_type(to_datagram(word, token), token + 1));
    EXPECT_FALSE(parse_message_type(to_datagram(word, token) + ";", token));
  }
}

TEST(Words, RefuseEverythingElse) {
  const std::string good = to_datagram(MessageType::end, token);
  for (std::size_t length = 0; length < good.size(); ++length)
    EXPECT_FALSE(parse_message_type(good.substr(0, length), token));
  for (const std::string& bad : {std::string("end"), good + "\n", std::string(70000, ';'), encode(token, {""}),
                                 encode(token, {"ended", "worker", "1", "0", "0", "2"})}) {
    EXPECT_FALSE(parse_message_type(bad, token)) << bad.substr(0, 60);
  }
}

TEST(WorkerEnd, ReadsBackWhatItWrites) {
  EXPECT_EQ(worker(1).to_datagram(token), "aml-dist;1;00c0ffee00c0ffee;ended;worker;1;0;0;2");
  EXPECT_EQ(WorkerEnd::parse(worker(1).to_datagram(token), token), worker(1));
  EXPECT_EQ(WorkerEnd::parse(chief(SIGKILL).to_datagram(token), token), chief(SIGKILL));
  EXPECT_FALSE(WorkerEnd::parse(worker(1).to_datagram(token), token + 1));
}

TEST(WorkerEnd, RefusesEverythingElse) {
  const auto bad = [](std::initializer_list<std::string_view> fields) {
    EXPECT_FALSE(WorkerEnd::parse(encode(token, fields), token)) << encode(token, fields);
  };
  bad({"ended", "ps", "1", "0", "0", "2"});
  bad({"ended", "worker", "2", "0", "0", "2"});  // a rank beyond the workers
  bad({"ended", "worker", "-1", "0", "0", "2"});
  bad({"ended", "worker", "1", "65536", "0", "2"});
  bad({"ended", "worker", "1", "0", "2", "2"});
  bad({"ended", "worker", "1", "0", "0", "99999999999"});
  bad({"ended", "worker", "1", "0", "0"});
  bad({"ended", "worker", "1", "0", "0", "2", ""});
}

TEST(ServerRelease, WithoutAChiefAllWorkersMustEndWell) {
  ServerRelease release;
  EXPECT_FALSE(release.due(start));
  release.take(worker(0), start);
  release.take(worker(0), start);
  EXPECT_FALSE(release.due(start + 1h)) << "the same report twice is one worker";
  release.take(worker(1), start);
  EXPECT_TRUE(release.due(start));
}

TEST(ServerRelease, AFailedWorkerReleasesNobody) {
  ServerRelease release;
  release.take(worker(0), start);
  release.take(worker(1, SIGKILL), start);
  EXPECT_FALSE(release.due(start + 1h));
}

TEST(ServerRelease, WorkersMayGoOnAfterTheirChiefForAWhile) {
  ServerRelease release;
  release.take(worker(1, 0, 1), start);
  release.take(chief(), start + 5s);
  EXPECT_FALSE(release.due(start + 5s));
  EXPECT_FALSE(release.due(start + 14s));
  release.take(chief(), start + 14s);
  EXPECT_TRUE(release.due(start + 15s)) << "a report that comes twice does not begin the time anew";
}

TEST(ServerRelease, NobodyWaitsForWorkersThatAreGone) {
  ServerRelease release;
  release.take(worker(1, 0, 1), start);
  release.take(worker(2, SIGTERM, 1), start);
  EXPECT_FALSE(release.due(start + 1h)) << "the chief decides";
  release.take(chief(), start + 2h);
  EXPECT_TRUE(release.due(start + 2h));
}

TEST(ServerRelease, AChiefAloneDecides) {
  ServerRelease release;
  release.take(chief(0, 0), start);
  EXPECT_TRUE(release.due(start));
  ServerRelease failed;
  failed.take(chief(SIGKILL, 0), start);
  EXPECT_FALSE(failed.due(start + 1h));
}

TEST(TensorflowRoles, RanksTakeThemInOrder) {
  launch::CountAssertions counts;
  counts.chiefs = 1;
  counts.parameter_servers = 2;
  counts.evaluators = 1;
  const launch::TensorflowRoles roles(counts, 7);
  EXPECT_EQ(roles.count(launch::TensorflowRole::worker), 3U) << "the remaining tasks";
  std::string words;
  for (std::uint32_t rank = 0; rank < 7; ++rank) words += std::string(to_string(roles.role_of(rank))) + " ";
  EXPECT_EQ(words, "chief worker worker worker ps ps evaluator ");
}

TEST(TensorflowRoles, RolesNobodyPlaysAreSkipped) {
  const launch::TensorflowRoles all_workers(launch::CountAssertions{}, 2);
  EXPECT_EQ(all_workers.role_of(0), launch::TensorflowRole::worker);
  EXPECT_EQ(all_workers.role_of(1), launch::TensorflowRole::worker);
  launch::CountAssertions counts;
  counts.parameter_servers = 1;
  EXPECT_EQ(launch::TensorflowRoles(counts, 2).role_of(1), launch::TensorflowRole::server);
}

}  // namespace
}  // namespace amldist::step::server_release_test
