// The algorithm of a TCP connection: the system's, another, or Reno in place of BBR.
#include "base/net/congestion_control.hpp"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>

namespace amldist::congestion_control {
namespace {

FileDescriptor tcp_socket() { return FileDescriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)); }

TEST(CongestionControl, TheSystemsStaysWhereItIsAskedFor) {
  const FileDescriptor socket = tcp_socket();
  const std::string before = name_of(socket);
  ASSERT_NE(before, "");
  choose(socket, of_system);
  EXPECT_EQ(name_of(socket), before);
}

TEST(CongestionControl, AnAlgorithmIsTakenByItsName) {
  const FileDescriptor socket = tcp_socket();
  choose(socket, "reno");
  EXPECT_EQ(name_of(socket), "reno");
}

TEST(CongestionControl, RenoTakesThePlaceOfBbrAndOfNoOther) {
  const FileDescriptor socket = tcp_socket();
  if (is_valid("cubic")) {
    choose(socket, "cubic");
    choose(socket, automatic);
    EXPECT_EQ(name_of(socket), "cubic");
  }
  if (!is_valid("bbr")) GTEST_SKIP() << "this kernel has no BBR";
  choose(socket, "bbr");
  ASSERT_EQ(name_of(socket), "bbr");
  choose(socket, automatic);
  EXPECT_EQ(name_of(socket), "reno");
}

TEST(CongestionControl, AConnectionKeepsItsOwnIfTheKernelRefusesAnother) {
  const FileDescriptor socket = tcp_socket();
  choose(socket, "reno");
  choose(socket, "carrier-pigeon");
  EXPECT_EQ(name_of(socket), "reno");
  const FileDescriptor none;
  choose(none, automatic);
  EXPECT_EQ(name_of(none), "");
}

TEST(CongestionControl, ValidChoicesAreNamed) {
  const auto valid = choices();
  for (const std::string& each : valid) EXPECT_TRUE(is_valid(each)) << each;
  for (const char* each : {"auto", "system", "reno"}) EXPECT_EQ(std::ranges::count(valid, each), 1) << each;
  EXPECT_FALSE(is_valid("carrier-pigeon"));
  EXPECT_FALSE(is_valid("a name that is longer than those of the kernel"));
  EXPECT_FALSE(is_valid(""));
}

}  // namespace
}  // namespace amldist::congestion_control
