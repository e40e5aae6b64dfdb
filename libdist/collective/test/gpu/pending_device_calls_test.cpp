// Calls that were enqueued on a stream, over a driver and an NCCL without a GPU.
#include "collective/communicator/device/pending_device_calls.hpp"

#include <gtest/gtest.h>

#include <mutex>
#include <thread>

#include "fake_cuda.hpp"
#include "fake_nccl.hpp"
#include "ranks.hpp"

namespace amldist::collective::pending_device_calls_test {
namespace {

using namespace std::chrono_literals;
using amldist::testing::fake_cuda_driver;
using amldist::testing::FakeStream;
using amldist::testing::MeetingRoom;
using amldist::testing::ThreadExchange;

class Seen final : public CallObserver {
 public:
  [[nodiscard]] Ticket begin(const calls::Call& /*call*/, std::uint64_t /*began*/) override { return 0; }
  void complete(Ticket /*ticket*/) override {}
  void fail(Ticket ticket, const Error& /*error*/) override {
    const std::scoped_lock lock(mutex_);
    failed_.push_back(ticket);
  }
  [[nodiscard]] std::vector<Ticket> failed() const {
    const std::scoped_lock lock(mutex_);
    return failed_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<Ticket> failed_;
};

/// Events that never pass until the stream fails, which it does while the event after the second call is recorded: the
/// watching thread gives the first call up, and the second is not in the ring yet.
struct Events {
  static inline std::atomic<int> recorded = 0;
  static inline std::atomic<bool> stream_fails = false;
  static inline Seen* seen = nullptr;

  static int record(void* /*event*/, void* /*stream*/) {
    if (++recorded < 2) return 0;
    stream_fails = true;
    for (const auto end = Clock::now() + 10s; seen->failed().empty() && Clock::now() < end;)
      std::this_thread::sleep_for(1ms);
    std::this_thread::sleep_for(50ms);
    return 0;
  }
  static CudaDriver driver() {
    constexpr int not_ready = 600;
    constexpr int illegal_address = 700;
    CudaDriver driver = fake_cuda_driver();
    driver.stream_is_capturing = [](void* /*stream*/, int* status) { return *status = 0; };
    driver.event_create = [](void** event, unsigned /*flags*/) {
      *event = &recorded;
      return 0;
    };
    driver.event_record = record;
    driver.event_query = [](void* /*event*/) { return stream_fails ? illegal_address : not_ready; };
    driver.event_destroy = [](void* /*event*/) { return 0; };
    return driver;
  }
};

TEST(PendingDeviceCalls, ACallThatIsAddedWhileTheOthersAreGivenUpFailsToo) {
  Seen seen;
  Events::seen = &seen;
  const CudaDriver driver = Events::driver();
  MeetingRoom room(1);
  ThreadExchange exchange(room, 0);
  const auto backend = NcclBackend::create(load_nccl(FAKE_NCCL_2_28), driver, 0, exchange, Clock::now() + 10s);
  ASSERT_TRUE(backend) << backend.error().message;
  world::ControlChannel channel(world::single_process_world("node"), false);
  CommContext context(channel, std::make_shared<world::CommWatch>(1, std::vector<std::uint32_t>{0}, 0), 60s);
  PendingDeviceCalls pending(context, seen, driver, **backend);
  FakeStream stream;
  calls::Call call;
  call.operation = calls::Operation::allreduce;
  call.stream = &stream;
  for (const CallObserver::Ticket ticket : {1U, 2U}) {
    call.sequence = ticket;
    pending.add(call, ticket);
  }
  EXPECT_EQ(seen.failed(), (std::vector<CallObserver::Ticket>{1, 2}));
  pending.add(call, 3);
  EXPECT_EQ(seen.failed(), (std::vector<CallObserver::Ticket>{1, 2, 3}));
}

}  // namespace
}  // namespace amldist::collective::pending_device_calls_test
