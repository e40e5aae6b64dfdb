// Is a pointer on a device? Asked without CUDA, and of a driver that answers by heart.
#include "collective/gpu/cuda_driver.hpp"

#include <array>

#include "collective/communicator/device/device_calls.hpp"
#include "fake_cuda.hpp"
#include "support.hpp"

namespace amldist::collective {
namespace {

using amldist::testing::expect_sentence;
using amldist::testing::fake_cuda_driver;
using amldist::testing::FakeCuda;

TEST(CudaDriver, TellsDeviceMemoryFromAllOther) {
  const CudaDriver driver = fake_cuda_driver();
  int plain = 0, device = 0, managed = 0, pinned = 0;
  auto& cuda = FakeCuda::instance();
  const auto put = [&](const int& place, unsigned type, int ordinal) {
    cuda.types[reinterpret_cast<std::uintptr_t>(&place)] = type;
    cuda.devices[reinterpret_cast<std::uintptr_t>(&place)] = ordinal;
  };
  put(device, 2, 3);
  put(managed, 4, 1);
  put(pinned, 1, 0);
  EXPECT_EQ(device_of(driver, &device), 3);
  EXPECT_EQ(device_of(driver, &managed), 1);
  EXPECT_EQ(device_of(driver, &pinned), std::nullopt);
  EXPECT_EQ(device_of(driver, &plain), std::nullopt);
  EXPECT_EQ(device_of(driver, nullptr), std::nullopt);
}

TEST(DeviceCalls, LookAtACallsBufferWhereverItMovesData) {
  int in = 0, out = 0;
  const std::array<std::size_t, 2> counts = {1, 2};
  calls::Call call;
  call.send = &in;
  call.recv = &out;
  EXPECT_EQ(DeviceCalls::buffer_of(call), nullptr) << "no elements: the pointers may be anything";
  call.count = 1;
  EXPECT_EQ(DeviceCalls::buffer_of(call), &in);
  call.send = nullptr;
  EXPECT_EQ(DeviceCalls::buffer_of(call), &out) << "a scatter that is not at the root";
  calls::Call uneven;
  uneven.send = &in;
  const calls::CallLists lists = {counts, {}, {}, {}};
  uneven.lists = &lists;
  EXPECT_EQ(DeviceCalls::buffer_of(uneven), &in) << "an alltoallv has counts, and no count";
}

TEST(CudaDriver, IsNotLoadedByLookingForIt) {
  CudaProbe probe;
  EXPECT_EQ(probe.look(1), nullptr);
  EXPECT_EQ(probe.look(2), nullptr);
}

TEST(CudaDriver, SaysWhatALibraryLacks) {
  const auto driver = CudaDriver::bind(nullptr);  // the process itself, which has none of the functions
  ASSERT_FALSE(driver);
  expect_sentence(driver.error().message);
}

TEST(DeviceContext, IsCurrentOnlyWhileNeededAndReleasedOnce) {
  const CudaDriver driver = fake_cuda_driver();
  {
    auto context = DeviceContext::retain(driver, 2);
    ASSERT_TRUE(context);
    EXPECT_EQ(FakeCuda::instance().retained, 1);
    const DeviceContext moved = std::move(*context);
    EXPECT_EQ(moved.device(), 2);
    {
      const DeviceContext::Current current(moved);
      EXPECT_EQ(FakeCuda::depth(), 1);
      const DeviceContext::Current again(moved);
      EXPECT_EQ(FakeCuda::depth(), 1) << "what is current already is not pushed";
    }
    EXPECT_EQ(FakeCuda::depth(), 0);
  }
  EXPECT_EQ(FakeCuda::instance().retained, 0);
}

TEST(DeviceContext, SaysWhyADeviceCannotBeUsed) {
  const CudaDriver driver = fake_cuda_driver();
  FakeCuda::instance().retain_fails = 2;
  const auto context = DeviceContext::retain(driver, 7);
  FakeCuda::instance().retain_fails = 0;
  ASSERT_FALSE(context);
  EXPECT_NE(context.error().message.find("GPU 7"), std::string::npos);
  expect_sentence(context.error().message);
}

}  // namespace
}  // namespace amldist::collective
