#include "base/net/name_lookup.hpp"

#include <gtest/gtest.h>

#include <latch>

namespace amldist::name_lookup_test {
namespace {

using std::chrono::milliseconds;

const auto later = [] { return Clock::now() + std::chrono::minutes(1); };

TEST(NameLookup, TakesAnAddressAsItIs) {
  const auto addresses = addresses_of("10.1.2.3", Clock::now(), [](const std::string&) {
    return Result<std::vector<IpAddress>>(Error{Errc::internal, "it was asked"});
  });
  ASSERT_TRUE(addresses);
  EXPECT_EQ(addresses->front(), *Ipv4::parse("10.1.2.3"));
}

TEST(NameLookup, HandsOnWhatTheResolverSays) {
  const auto none = addresses_of("node1", later(), [](const std::string& host) {
    return Result<std::vector<IpAddress>>(Error{Errc::unavailable, host + " is not known"});
  });
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().message, "node1 is not known");
  const auto local = addresses_of("localhost", later());
  ASSERT_TRUE(local);
  EXPECT_TRUE(local->front().is_loopback());
}

TEST(NameLookup, LeavesAResolverBehindThatDoesNotAnswer) {
  const auto released = std::make_shared<std::latch>(1);
  const auto addresses = addresses_of("node1", Clock::now() + milliseconds(1), [released](const std::string&) {
    released->wait();
    return Result<std::vector<IpAddress>>(std::vector<IpAddress>());
  });
  ASSERT_FALSE(addresses);
  EXPECT_EQ(addresses.error().code, Errc::timeout);
  EXPECT_EQ(addresses.error().message, "the name server did not answer for the host name 'node1'");
  released->count_down();
}

}  // namespace
}  // namespace amldist::name_lookup_test
