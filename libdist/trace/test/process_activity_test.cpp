// Real processes: what is seen of one that computes, reads, waits for a lock, or writes where nobody reads.
#include "trace/record/process_activity.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <functional>
#include <thread>
#include <utility>

#include "base/os/file_descriptor.hpp"

namespace amldist::trace {
namespace {

using namespace std::chrono_literals;

class Child {
 public:
  explicit Child(const std::function<void()>& work) : id_(::fork()) {
    if (id_ != 0) return;
    work();
    for (;;) ::pause();
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    ::kill(id_, SIGKILL);
    ::waitpid(id_, nullptr, 0);
  }
  [[nodiscard]] pid_t id() const noexcept { return id_; }
  [[nodiscard]] ActivityTotals totals() const { return totals_of(id_, ProcessTable::read()); }

  /// The first activity of half a second that `is_expected`, or the last one of thirty seconds.
  [[nodiscard]] Activity activity(const std::function<bool(const Activity&)>& is_expected) const {
    Activity found;
    for (int i = 0; i < 60; ++i) {
      const ActivityTotals before = totals();
      std::this_thread::sleep_for(500ms);
      found = activity_between(before, totals());
      if (is_expected(found)) break;
    }
    return found;
  }

 private:
  pid_t id_;
};

void compute() {
  while (::getppid() != 0) {
  }
}

TEST(ProcessActivity, AnIdleProcessDoesNothing) {
  const Child child([] {
    for (;;) std::this_thread::sleep_for(10ms);  // as one that polls
  });
  const Activity activity = child.activity([](const Activity& each) { return !each.is_busy(); });
  EXPECT_FALSE(activity.is_busy()) << describe(activity);
  EXPECT_EQ(describe(activity), "");
}

TEST(ProcessActivity, ChildrenComputeForTheirParent) {
  const Child child([] {
    if (::fork() != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    compute();
  });
  const Activity activity = child.activity([](const Activity& each) { return each.processor_tenths >= 1; });
  EXPECT_TRUE(activity.is_busy());
  EXPECT_EQ(activity.children, 1U);
  EXPECT_TRUE(describe(activity).starts_with("it computes (1 child, ")) << describe(activity);
}

TEST(ProcessActivity, SaysWhatAProcessWaitsFor) {
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  const FileDescriptor reads(pipe[0]);
  const FileDescriptor writes(pipe[1]);
  const Child pager([&] {
    for (char block[4096] = {};;) static_cast<void>(::write(writes.get(), block, sizeof block) < 0);
  });
  EXPECT_EQ(describe(pager.activity([](const Activity& each) { return each.obstacle == Obstacle::output; })),
            "nobody reads its output");

  char name[] = "/tmp/aml-dist-lock-XXXXXX";
  const FileDescriptor held(::mkstemp(name));
  ASSERT_EQ(::flock(held.get(), LOCK_EX), 0);
  const Child waits([&] {
    const FileDescriptor wanted(::open(name, O_RDWR | O_CLOEXEC));
    ::flock(wanted.get(), LOCK_EX);
  });
  EXPECT_EQ(describe(waits.activity([](const Activity& each) { return each.obstacle == Obstacle::file_lock; })),
            "it waits for a lock on a file");
  ::unlink(name);
}

/// A child that reads from a TCP connection, and its other end.
class Download {
 public:
  [[nodiscard]] const Child& child() const { return child_; }
  /// A byte; false if the child has gone.
  [[nodiscard]] bool send() const { return ::send(sends_.get(), "x", 1, MSG_NOSIGNAL) == 1; }

 private:
  [[nodiscard]] FileDescriptor listener() {
    FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address_;
    if (::bind(socket.get(), general(), length) + ::listen(socket.get(), 1) != 0) return {};
    return ::getsockname(socket.get(), general(), &length) == 0 ? std::move(socket) : FileDescriptor();
  }
  void receive() {
    const FileDescriptor own(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(own.get(), general(), sizeof address_) != 0) return;
    for (char byte = 0; ::recv(own.get(), &byte, 1, 0) == 1;) continue;
  }
  [[nodiscard]] sockaddr* general() { return reinterpret_cast<sockaddr*>(&address_); }

  sockaddr_in address_ = {};
  FileDescriptor listens_ = listener();
  Child child_{[this] { receive(); }};
  FileDescriptor sends_{::accept4(listens_.get(), nullptr, nullptr, SOCK_CLOEXEC)};
};

bool waits_for_input(const Activity& activity) { return activity.obstacle == Obstacle::input; }

TEST(ProcessActivity, SaysThatAProcessWaitsForDataFromASocket) {
  const Download download;
  EXPECT_EQ(describe(download.child().activity(waits_for_input)), "it waits for data from a socket");
}

TEST(ProcessActivity, OneThatReceivesInSmallPiecesIsBusyAtNearlyEveryMoment) {
  const Download download;
  ASSERT_TRUE(waits_for_input(download.child().activity(waits_for_input)));
  std::atomic<bool> is_over = false;
  std::thread sender([&] {
    while (!is_over && download.send()) std::this_thread::sleep_for(100us);
  });
  // /proc was read a while ago: what slept then may run now.
  const ProcessTable earlier({{download.child().id(), ::getpid(), 'S'}});
  constexpr int looks = 3000;
  int idle = 0;
  for (int look = 0; look < looks; ++look)
    idle += totals_of(download.child().id(), earlier).obstacle == Obstacle::none ? 1 : 0;
  is_over = true;
  sender.join();
  EXPECT_LT(idle, looks / 50) << "where others want its processor, some are";
}

TEST(ProcessActivity, OneThatGetsFewTurnsIsBusyAllTheSame) {
  const Activity activity = activity_between({1000, 500, 0, 0}, {2000, 540, 0, 0, Obstacle::processor});
  EXPECT_TRUE(activity.is_busy());
  EXPECT_EQ(describe(activity), "it waits for a processor");
  EXPECT_TRUE(activity_between({1000, 500, 0, 0, Obstacle::processor}, {2000, 540, 0, 0}).is_busy());
}

TEST(ProcessActivity, OneThatReceivedALookAgoIsBusyAllTheSame) {
  EXPECT_EQ(describe(activity_between({1000, 500, 0, 0, Obstacle::input}, {2000, 540, 0, 0})),
            "it waits for data from a socket");
  EXPECT_FALSE(activity_between({1000, 500, 0, 0}, {2000, 540, 0, 0}).is_busy());
}

TEST(ProcessActivity, OneThatGetsNoTurnsIsBusyAllTheSame) {
  const auto starved = [](std::uint64_t ms) {
    return activity_between({.at_ms = 1000, .starved_ms = 700}, {.at_ms = 2000, .starved_ms = 700 + ms});
  };
  EXPECT_EQ(describe(starved(900)), "it waits for a processor");
  EXPECT_FALSE(starved(200).is_busy()) << "a poll waits for a processor, too";
}

TEST(ProcessActivity, OneWhoseThreadsCouldRunAtBothLooksIsBusyAllTheSame) {
  const auto could_run = [](std::uint32_t before, std::uint32_t after) {
    // A thread has ended: its waits are not counted any more.
    return activity_between({.at_ms = 1000, .starved_ms = 9000, .runnable = before},
                            {.at_ms = 3000, .starved_ms = 7000, .runnable = after});
  };
  EXPECT_EQ(describe(could_run(6, 1)), "it waits for a processor");
  EXPECT_FALSE(could_run(6, 0).is_busy()) << "all of them sleep by now";
  EXPECT_FALSE(could_run(0, 1).is_busy()) << "a poll is seen now and then";
}

TEST(ProcessActivity, ThreadsThatCanRunAreCounted) {
  const auto is_seen = [](const Child& child, std::uint32_t runnable) {
    for (int look = 0; look < 3000; ++look) {
      if (child.totals().runnable == runnable) return true;
      std::this_thread::sleep_for(10ms);
    }
    return false;
  };
  const Child computes([] {
    for (int i = 0; i < 3; ++i) std::thread(compute).detach();
    ::pause();
  });
  EXPECT_TRUE(is_seen(computes, 3));
  const Child sleeps([] { ::pause(); });
  EXPECT_TRUE(is_seen(sleeps, 0));
}

TEST(ProcessActivity, ThreadsThatShareAProcessorWaitForIt) {
  const Child child([] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<std::size_t>(::sched_getcpu()), &one);
    ::sched_setaffinity(0, sizeof one, &one);
    constexpr int many = 16;  // of which each gets few turns
    for (int i = 0; i < many; ++i) std::thread(compute).detach();
    ::pause();
  });
  const auto is_starved = [](const Activity& each) { return each.starved_tenths >= 50; };
  EXPECT_TRUE(is_starved(child.activity(is_starved)));
}

TEST(ProcessActivity, TotalsMayShrink) {
  const ActivityTotals earlier{1000, 500, 900, 2};
  const ActivityTotals later{2000, 400, 100, 1};
  EXPECT_EQ(activity_between(earlier, later), (Activity{0, 0, 1}));
  EXPECT_EQ(activity_between(earlier, earlier), (Activity{0, 0, 2})) << "no time between them";
}

TEST(ProcessActivity, OfAProcessThatIsGoneNothingIsSeen) {
  const ActivityTotals totals = totals_of(0x7ffffff0, ProcessTable::read());
  EXPECT_EQ(totals.cpu_ms + totals.io_bytes + totals.children, 0U);
}

}  // namespace
}  // namespace amldist::trace
