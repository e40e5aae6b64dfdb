// What a process and the children that it forks share, and what a child lets go.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "base/memory/shared_atomic.hpp"
#include "base/os/file_descriptor.hpp"
#include "base/os/inherited_descriptors.hpp"

namespace amldist {
namespace {

/// Exit status of a child that does this.
int status_of_child(const std::function<int()>& work) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(work());
  int status = 0;
  return ::waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(SharedAtomic, IsTheSameInAChild) {
  const auto value = SharedAtomic<int>::make();
  EXPECT_EQ(value.load(), 0);
  value.store(3);
  EXPECT_EQ(status_of_child([&] { return value.exchange(7); }), 3);
  EXPECT_EQ(value.load(), 7);
}

TEST(SharedAtomic, MovesItsMemory) {
  auto first = SharedAtomic<int>::make();
  first.store(5);
  const SharedAtomic<int> second = std::move(first);
  EXPECT_EQ(second.load(), 5);
}

TEST(SharedAtomic, LosesWhatIsStoredWithoutMemory) {
  const SharedAtomic<bool> none;
  none.store(true);
  EXPECT_FALSE(none.load());
  EXPECT_FALSE(none.exchange(true));
  EXPECT_FALSE(none.exchange(true)) << "everybody is the first";
}

TEST(InheritedDescriptors, AreClosedButForTwo) {
  FileDescriptor files[4];
  for (FileDescriptor& each : files) each = FileDescriptor(::open("/dev/null", O_RDONLY));
  const auto mask_of_open = [&] {
    int mask = 0;
    for (int i = 0; i < 4; ++i) mask |= ::fcntl(files[i].get(), F_GETFD) >= 0 ? 1 << i : 0;
    return mask | (::fcntl(STDERR_FILENO, F_GETFD) >= 0 ? 16 : 0);
  };
  const auto after = [&](int one, int other) {
    return status_of_child([&, one, other] {
      close_all_but(one, other);
      return mask_of_open();
    });
  };
  constexpr int none = -1;
  EXPECT_EQ(mask_of_open(), 31);
  EXPECT_EQ(after(files[0].get(), files[2].get()), 5);
  EXPECT_EQ(after(files[3].get(), files[1].get()), 10);
  EXPECT_EQ(after(files[1].get(), none), 2);
  EXPECT_EQ(after(none, STDERR_FILENO), 16);
  EXPECT_EQ(after(none, none), 0);
}

}  // namespace
}  // namespace amldist
