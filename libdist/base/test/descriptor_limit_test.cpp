#include "base/os/descriptor_limit.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cerrno>
#include <vector>

#include "base/net/socket.hpp"

namespace amldist {
namespace {

/// The process's limit is as before when the test ends.
struct KeptLimit {
  KeptLimit() { ::getrlimit(RLIMIT_NOFILE, &before); }
  ~KeptLimit() { ::setrlimit(RLIMIT_NOFILE, &before); }
  KeptLimit(const KeptLimit&) = delete;
  KeptLimit& operator=(const KeptLimit&) = delete;
  static void set(rlim_t soft) {
    rlimit limit = {};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = soft;
    ::setrlimit(RLIMIT_NOFILE, &limit);
  }
  rlimit before = {};
};

TEST(DescriptorLimit, IsRaisedAsFarAsItIsNeeded) {
  const KeptLimit kept;
  KeptLimit::set(64);
  make_room_for_descriptors(10);
  rlimit limit = {};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  EXPECT_EQ(limit.rlim_cur, 64U) << "there was room";
  make_room_for_descriptors(100);
  ::getrlimit(RLIMIT_NOFILE, &limit);
  EXPECT_GT(limit.rlim_cur, 100U);
  make_room_for_descriptors(std::size_t{1} << 40);
  ::getrlimit(RLIMIT_NOFILE, &limit);
  EXPECT_EQ(limit.rlim_cur, limit.rlim_max);
}

TEST(DescriptorLimit, IsNamedWhenItIsReached) {
  const KeptLimit kept;
  KeptLimit::set(40);
  std::vector<FileDescriptor> open;
  Result<FileDescriptor> last = listen_on(0);
  for (int i = 0; i < 60 && last; ++i) {
    open.push_back(std::move(*last));
    last = listen_on(0);
  }
  ASSERT_FALSE(last);
  EXPECT_EQ(last.error().code, Errc::limit);
  EXPECT_EQ(last.error().message,
            "cannot create a socket: this process has as many files open as it may: 40 (ulimit -n); each connection "
            "takes one");
}

}  // namespace
}  // namespace amldist
