// How the processes of a node find their leader, beside other users of the node.
#include "world/bootstrap/node_leader.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

namespace amldist::world {
namespace {

using std::chrono::milliseconds;

Clock::time_point in_a_while() { return Clock::now() + std::chrono::seconds(20); }

std::string own_name(const char* of) { return std::string("amldist-test-") + of + std::to_string(::getpid()); }

/// A socket of that abstract name, bound by another user, until the end of the scope.
class Squatter {
 public:
  Squatter(const std::string& name, bool listens) {
    int ready[2] = {};
    if (::pipe(ready) != 0) return;
    process_ = ::fork();
    if (process_ == 0) squat(name, listens, ready[1]);
    char byte = 0;
    is_there_ = ::close(ready[1]) == 0 && ::read(ready[0], &byte, 1) == 1;
    ::close(ready[0]);
  }
  ~Squatter() {
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }
  Squatter(const Squatter&) = delete;
  Squatter& operator=(const Squatter&) = delete;

  [[nodiscard]] bool is_there() const noexcept { return is_there_; }

 private:
  [[noreturn]] static void squat(const std::string& name, bool listens, int ready) {
    constexpr uid_t nobody = 65534;
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
    const bool done = ::setresuid(nobody, nobody, nobody) == 0 &&
                      ::bind(socket, reinterpret_cast<sockaddr*>(&address), length) == 0 &&
                      (!listens || ::listen(socket, 8) == 0);
    if (!done || ::write(ready, "r", 1) != 1) ::_exit(1);
    for (;;) ::pause();
  }

  pid_t process_ = -1;
  bool is_there_ = false;
};

TEST(NodeLeader, TheFirstIsTheLeaderOfTheOthers) {
  const std::string name = own_name("first");
  const NodeLeader first = find_node_leader(name, milliseconds(0), in_a_while());
  ASSERT_TRUE(first.listener);
  const NodeLeader second = find_node_leader(name, milliseconds(0), in_a_while());
  EXPECT_TRUE(second.leader);
  EXPECT_TRUE(accept_on_node(first.listener));
}

TEST(NodeLeader, AnotherUsersSocketIsNoLeader) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can play another user";
  const std::string name = own_name("squatted");
  const Squatter other(name, true);
  ASSERT_TRUE(other.is_there());
  const NodeLeader alone = find_node_leader(name, milliseconds(0), in_a_while());
  EXPECT_FALSE(alone.leader);
  EXPECT_FALSE(alone.listener);
}

TEST(NodeLeader, ANameThatSomebodyHoldsWithoutListeningHoldsUpNobody) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can play another user";
  const std::string name = own_name("held");
  const Squatter other(name, false);
  ASSERT_TRUE(other.is_there());
  const auto deadline = in_a_while();
  const NodeLeader alone = find_node_leader(name, milliseconds(0), deadline);
  EXPECT_FALSE(alone.leader);
  EXPECT_FALSE(alone.listener);
  EXPECT_LT(Clock::now(), deadline);
}

TEST(NodeLeader, TheNameNeedsTheSecret) {
  const auto one = world::Key::from_secret("one");
  const auto other = world::Key::from_secret("other");
  EXPECT_EQ(node_leader_name(one, "group", "node"), node_leader_name(one, "group", "node"));
  EXPECT_NE(node_leader_name(one, "group", "node"), node_leader_name(other, "group", "node"));
  EXPECT_NE(node_leader_name(one, "group", "node"), node_leader_name(one, "group", "node2"));
}

}  // namespace
}  // namespace amldist::world
