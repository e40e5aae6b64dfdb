// Files that no kernel writes, and devices that disappear while they are read: always a verdict, never a crash.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "fabric/between_nodes/node_exchange.hpp"
#include "fabric/checks/checks.hpp"

namespace amldist::fabric {
namespace {

namespace fs = std::filesystem;

class Tree : public ::testing::Test {
 protected:
  Tree() {
    std::string pattern = (fs::temp_directory_path() / "aml-dist-fabric-XXXXXX").string();
    root_ = ::mkdtemp(pattern.data());
  }
  ~Tree() override { fs::remove_all(root_); }

  [[nodiscard]] fs::path port(int device) const {
    return root_ / "class/infiniband" / ("mlx5_" + std::to_string(device)) / "ports/1";
  }

  void write(const fs::path& path, std::string_view text) const {
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
  }

  void write_device(int device) const {
    write(port(device) / "state", "4: ACTIVE\n");
    write(port(device) / "phys_state", "5: LinkUp\n");
    write(port(device) / "link_layer", "InfiniBand\n");
    write(port(device) / "rate", "400 Gb/sec (4X NDR)\n");
    write(port(device) / "lid", "0x1\n");
    write(port(device) / "sm_lid", "0x2\n");
    write(port(device) / "pkeys/0", "0xffff\n");
    write(port(device) / "gids/0", "fe80:0000:0000:0000:0000:0000:0000:0001\n");
  }

  [[nodiscard]] Report verify() const {
    CheckRequest request;
    request.policy = launch::RdmaPolicy::require;
    const NodeFacts node = read_node(Roots::from_options(root_.string(), ""));
    Evidence evidence;
    evidence.process = read_process(node);
    return verify_node(node, request, evidence);
  }

  fs::path root_;
};

TEST_F(Tree, AHealthyOnePasses) {
  write_device(0);
  const Report report = verify();
  EXPECT_EQ(report.verdict(), Verdict::pass);
}

TEST_F(Tree, RandomBytesInEveryFileNeverPassAndNeverCrash) {
  std::mt19937 random(20261121);
  for (int turn = 0; turn < 100; ++turn) {
    write_device(0);
    write_device(1);
    std::vector<fs::path> files;
    for (const auto& entry : fs::recursive_directory_iterator(root_)) {
      if (entry.is_regular_file()) files.push_back(entry.path());
    }
    const fs::path victim = port(1) / (turn % 2 == 0 ? "state" : "lid");
    std::string bytes(random() % 6000, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    write(files.at(random() % files.size()), bytes);
    write(victim, bytes.empty() ? "\xff" : bytes);
    EXPECT_EQ(verify().verdict(), Verdict::fail) << turn;
  }
}

TEST_F(Tree, EvidenceIsPrintableWhateverTheFilesHold) {
  write_device(0);
  write(port(0) / "state", "4: ACTIVE \x1b[31m\x07");
  write(port(0) / "rate", std::string(4000, 'x'));
  for (const Check& check : verify().checks) {
    for (const char c : check.evidence + check.remedy) EXPECT_TRUE(c >= ' ' && c < 0x7f) << check.id;
    EXPECT_LT(check.evidence.size(), 1000U) << check.id;
  }
}

TEST_F(Tree, DevicesThatVanishBetweenTwoReads) {
  for (int device = 0; device < 4; ++device) write_device(device);
  std::atomic<bool> stop = false;
  std::thread remover([&] {
    while (!stop) {
      std::error_code ignored;
      fs::remove_all(root_ / "class/infiniband/mlx5_2", ignored);
      write_device(2);
    }
  });
  for (int i = 0; i < 60; ++i) EXPECT_FALSE(verify().checks.empty());
  stop = true;
  remover.join();
}

TEST_F(Tree, LoopsPipesAndFoldersInTheWay) {
  write_device(0);
  write_device(1);
  fs::remove(port(1) / "state");
  fs::create_symlink("state", port(1) / "state");
  fs::remove(port(1) / "rate");
  ASSERT_EQ(::mkfifo((port(1) / "rate").c_str(), 0644), 0);
  fs::remove(port(1) / "lid");
  fs::create_directory(port(1) / "lid");
  fs::create_symlink("mlx5_9", root_ / "class/infiniband/mlx5_9");
  const Report report = verify();
  EXPECT_EQ(report.verdict(), Verdict::fail);
  EXPECT_EQ(report.find("ib.state")->verdict, Verdict::fail);
  EXPECT_EQ(report.find("ib.sysfs")->verdict, Verdict::fail);
}

TEST_F(Tree, TooManyDevicesAreAFailureNotALongWait) {
  for (int device = 0; device < 300; ++device) fs::create_directories(port(device));
  EXPECT_EQ(verify().find("ib.sysfs")->verdict, Verdict::fail);
}

TEST_F(Tree, ATableOfAThousandUnusedEntriesIsFine) {
  write_device(0);
  for (int i = 1; i < 1024; ++i)
    write(port(0) / "gids" / std::to_string(i), "0000:0000:0000:0000:0000:0000:0000:0000\n");
  EXPECT_EQ(verify().find("ib.gid")->verdict, Verdict::pass);
}

// ---- the nodes of a step ----

NodePlace place(std::uint16_t port, std::uint32_t node, std::uint32_t nodes) {
  return {"127.0.0.1", port, "1.0", node, nodes};
}

struct Service {
  std::uint16_t port = 0;
  std::unique_ptr<NodeExchangeServer> server;
};

/// The side of node 0, on the first of some ports that nobody else has: tests run beside each other.
Service open_service(NodePlace own, std::chrono::milliseconds patience = std::chrono::seconds(20)) {
  std::random_device random;
  for (int attempt = 0; attempt < 20; ++attempt) {
    own.port = static_cast<std::uint16_t>(20000 + random() % 12000);
    if (auto server = NodeExchangeServer::open(own, patience)) return {own.port, std::move(*server)};
  }
  ADD_FAILURE() << "no free port was found";
  return {};
}

TEST(NodeExchange, EveryNodeGetsTheTextsItAskedFor) {
  constexpr std::uint32_t nodes = 16;
  const Service service = open_service(place(0, 0, nodes));
  const std::uint16_t port = service.port;
  std::vector<std::thread> threads;
  std::atomic<int> right = 0;
  for (std::uint32_t node = 0; node < nodes; ++node) {
    threads.emplace_back([&, node] {
      auto exchange = NodeExchange::join(place(port, node, nodes), std::chrono::seconds(20));
      if (!exchange) return;
      for (int turn = 0; turn < 3; ++turn) {
        const std::uint32_t next = (node + 1) % nodes;
        auto texts = exchange->round({false, {next}}, "I am " + std::to_string(node));
        if (texts && texts->size() == 1 && texts->at(next) == "I am " + std::to_string(next)) ++right;
      }
      auto all = exchange->round({node == 0, {}}, "end");
      if (all && all->size() == (node == 0 ? nodes : 0)) ++right;
    });
  }
  for (std::thread& each : threads) each.join();
  EXPECT_EQ(right, static_cast<int>(nodes) * 4);
}

TEST(NodeExchange, LongTextsOfAllNodesArriveWhole) {
  const auto [port, server] = open_service(place(0, 0, 2));
  auto zero = NodeExchange::join(place(port, 0, 2), std::chrono::seconds(20));
  auto one = NodeExchange::join(place(port, 1, 2), std::chrono::seconds(20));
  ASSERT_TRUE(zero && one);
  const std::string text(world::limits.text_bytes, 'x');
  std::thread other([&] { EXPECT_TRUE(one->round({true, {}}, text)); });
  const auto texts = zero->round({true, {}}, text + "cut off");
  other.join();
  ASSERT_TRUE(texts) << texts.error().message;
  EXPECT_EQ(*texts, (std::map<std::uint32_t, std::string>{{0, text}, {1, text}}));
}

TEST(NodeExchange, ANodeThatDoesNotComeIsNamed) {
  const auto [port, server] = open_service(place(0, 0, 3), std::chrono::milliseconds(300));
  auto zero = NodeExchange::join(place(port, 0, 3), std::chrono::seconds(5));
  auto one = NodeExchange::join(place(port, 1, 3), std::chrono::seconds(5));
  ASSERT_TRUE(zero && one);
  std::thread other([&] { EXPECT_FALSE(one->round({}, "")); });
  const auto texts = zero->round({}, "");
  other.join();
  ASSERT_FALSE(texts);
  EXPECT_NE(texts.error().message.find("node 2"), std::string::npos) << texts.error().message;
}

TEST(NodeExchange, ANodeThatLeavesIsNamed) {
  const auto [port, server] = open_service(place(0, 0, 2));
  auto zero = NodeExchange::join(place(port, 0, 2), std::chrono::seconds(20));
  ASSERT_TRUE(zero);
  ASSERT_TRUE(NodeExchange::join(place(port, 1, 2), std::chrono::seconds(20)));
  const auto texts = zero->round({}, "");
  ASSERT_FALSE(texts);
  EXPECT_EQ(texts.error().message, "node 1 left before the end");
}

TEST(NodeExchange, ANodeWithoutTheSecretIsNotLetIn) {
  NodePlace own = place(0, 0, 1);
  own.credentials = {world::Key::from_secret("of the step"), world::Trust::authenticated};
  const Service service = open_service(own);
  own.port = service.port;
  const world::Credentials of_others = {world::Key::from_secret("of another step"), world::Trust::authenticated};
  for (const world::Credentials& each : {world::Credentials(), of_others}) {
    NodePlace stranger = own;
    stranger.credentials = each;
    const auto wrong = NodeExchange::join(stranger, std::chrono::milliseconds(300));
    ASSERT_FALSE(wrong);
    EXPECT_NE(wrong.error().message.find("does not belong to this step"), std::string::npos) << wrong.error().message;
  }
  auto right = NodeExchange::join(own, std::chrono::seconds(20));
  ASSERT_TRUE(right);
  EXPECT_TRUE(right->round({}, "hello"));
}

TEST(NodeExchange, ANodeOfAnotherStepIsNotLetIn) {
  const auto [port, server] = open_service(place(0, 0, 1));
  NodePlace stranger = place(port, 0, 1);
  stranger.step = "2.0";
  const auto wrong = NodeExchange::join(stranger, std::chrono::milliseconds(500));
  ASSERT_FALSE(wrong);
  EXPECT_NE(wrong.error().message.find("does not belong to this step"), std::string::npos) << wrong.error().message;
  auto right = NodeExchange::join(place(port, 0, 1), std::chrono::seconds(20));
  ASSERT_TRUE(right);
  EXPECT_TRUE(right->round({}, "hello"));
}

}  // namespace
}  // namespace amldist::fabric
