#include "launch/rendezvous/port_claim.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "support.hpp"

namespace amldist::launch {
namespace {

/// A server on a port that the kernel chose, on all addresses.
class Server {
 public:
  explicit Server(int family) : socket_(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in6 address = {};
    address.sin6_family = static_cast<sa_family_t>(family);
    socklen_t length = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    ready_ = socket_ && ::bind(socket_.get(), generic, length) == 0 && ::listen(socket_.get(), 1) == 0 &&
             ::getsockname(socket_.get(), generic, &length) == 0;
    port_ = ntohs(address.sin6_port);  // the port lies at the same place in both families
  }
  [[nodiscard]] bool ready() const { return ready_; }
  [[nodiscard]] std::uint16_t port() const { return port_; }

 private:
  FileDescriptor socket_;
  bool ready_ = false;
  std::uint16_t port_ = 0;
};

std::uint16_t free_port() {
  const Server passing(AF_INET);
  return passing.port();
}

class PortClaims : public ::testing::Test {
 protected:
  PortClaims() {
    char name[] = "/tmp/amldist-lease-XXXXXX";
    if (::mkdtemp(name) != nullptr) folder_ = std::string(name) + "/ports";
  }
  ~PortClaims() override { std::filesystem::remove_all(std::filesystem::path(folder_).parent_path()); }
  [[nodiscard]] std::size_t files() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder_), {}));
  }
  std::string folder_;
};

TEST_F(PortClaims, AFreePortIsOursUntilItIsGivenBack) {
  const std::uint16_t port = free_port();
  {
    const auto claim = PortClaim::take(port, "n1", folder_);
    ASSERT_TRUE(claim) << claim.error().message;
    EXPECT_EQ(files(), 1U);
    const auto second = PortClaim::take(port, "n1", folder_);
    ASSERT_FALSE(second);
    testing::expect_sentence(second.error().message);
    EXPECT_NE(second.error().message.find("another step that uses aml-dist"), std::string::npos);
    EXPECT_TRUE(port_is_free(port)) << "a lease does not occupy the port itself";
  }
  EXPECT_EQ(files(), 0U);
  EXPECT_TRUE(PortClaim::take(port, "n1", folder_));
}

TEST_F(PortClaims, APortInUseIsRefusedWithPortHostAndRemedy) {
  for (const int family : {AF_INET, AF_INET6}) {
    const Server server(family);
    if (!server.ready()) continue;  // no IPv6 here
    const auto claim = PortClaim::take(server.port(), "node7", folder_);
    ASSERT_FALSE(claim);
    for (const std::string& word :
         {std::to_string(server.port()), std::string("node7"), std::string("master_port=N")}) {
      EXPECT_NE(claim.error().message.find(word), std::string::npos) << word;
    }
    EXPECT_EQ(files(), 0U);
  }
}

TEST_F(PortClaims, ALeaseEndsWithItsHolderHoweverItDies) {
  const std::uint16_t port = free_port();
  const pid_t child = ::fork();
  if (child == 0) {
    const auto claim = PortClaim::take(port, "n1", folder_);
    std::abort();  // without a destructor
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_TRUE(PortClaim::take(port, "n1", folder_));
}

/// Another step looks whether the lease is stale.
TEST_F(PortClaims, ALeaseThatIsLookedAtIsNotTaken) {
  const std::uint16_t port = free_port();
  std::string path;
  {
    const auto claim = PortClaim::take(port, "n1", folder_);
    ASSERT_TRUE(claim);
    path = std::filesystem::directory_iterator(folder_)->path();
  }
  const FileDescriptor lock(::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
  ASSERT_EQ(::flock(lock.get(), LOCK_EX | LOCK_NB), 0);
  std::thread looks([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    ::flock(lock.get(), LOCK_UN);
  });
  EXPECT_TRUE(PortClaim::take(port, "n1", folder_));
  looks.join();
}

TEST_F(PortClaims, OnlyLeasesThatNobodyHoldsAreStale) {
  const auto held = PortClaim::take(free_port(), "n1", folder_);
  std::ofstream(folder_ + "/1234.5");
  EXPECT_EQ(files(), 2U);
  remove_stale_leases(folder_);
  EXPECT_EQ(files(), 1U);
  EXPECT_TRUE(std::filesystem::exists(folder_)) << "held is " << held.ok();
  remove_stale_leases(folder_ + "/no/such");
}

TEST_F(PortClaims, WithoutAFolderThePortIsStillTried) {
  EXPECT_TRUE(PortClaim::take(free_port(), "n1", "/proc/no/such"));
  const Server server(AF_INET);
  ASSERT_TRUE(server.ready());
  EXPECT_FALSE(PortClaim::take(server.port(), "n1", "/proc/no/such"));
}

TEST(MayListen, APortOfRootsIsRefusedToOthers) {
  constexpr std::uint32_t usual = 1024;
  EXPECT_TRUE(may_listen(0, 22, "n1", usual));
  EXPECT_TRUE(may_listen(1000, 1024, "n1", usual));
  EXPECT_TRUE(may_listen(1000, 1, "n1", 0)) << "the administrator may open all of them";
  const auto refused = may_listen(1000, 1023, "node7", usual);
  ASSERT_FALSE(refused);
  testing::expect_sentence(refused.error().message);
  for (const std::string word : {"1023", "node7", "1024", "master_port=N"}) {
    EXPECT_NE(refused.error().message.find(word), std::string::npos) << word;
  }
  EXPECT_LE(first_port_for_all(), 65536U);
}

}  // namespace
}  // namespace amldist::launch
