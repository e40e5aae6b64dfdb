// The device part as far as it goes without a GPU: it loads, refuses what cannot be, and says what is missing.
#include "collective/gpu/device_kernels.hpp"

#include <vector>

#include "support.hpp"

namespace amldist::collective {
namespace {

using amldist::testing::expect_sentence;

TEST(DeviceKernels, SayWhatIsMissing) {
  for (const char* const name : {"/nonexistent/libamldist_device.so", NOT_NCCL}) {
    const auto kernels = load_device_kernels(name);
    ASSERT_FALSE(kernels);
    expect_sentence(kernels.error().message);
  }
}

#ifdef DEVICE_PART
TEST(DeviceKernels, RefuseTypesAndPointersThatCannotBe) {
  const auto kernels = load_device_kernels(DEVICE_PART);
  ASSERT_TRUE(kernels) << kernels.error().message;
  EXPECT_GE(kernels->cuda_version, 12000);
  float number = 1;
  amldist_device_piece piece = {&number, 1, 0};
  amldist_device_piece nowhere = {nullptr, 1, 0};
  constexpr int int8 = 0, int32 = 2, float32 = 7;
  EXPECT_EQ(kernels->pack(&piece, 1, 99, &number, float32, 1, nullptr), -1);
  EXPECT_EQ(kernels->pack(&piece, 1, float32, &number, -1, 1, nullptr), -1);
  EXPECT_EQ(kernels->pack(&piece, 1, int32, &number, float32, 1, nullptr), -1) << "integers do not convert";
  EXPECT_EQ(kernels->scale(&number, 1, int8, 2, nullptr), -1) << "integers are not scaled";
  EXPECT_EQ(kernels->unpack(&nowhere, 1, float32, &number, float32, 1, nullptr), -1);
  EXPECT_EQ(kernels->pack(nullptr, 1, float32, &number, float32, 1, nullptr), -1);
  EXPECT_EQ(kernels->pack(nullptr, 0, float32, nullptr, float32, 1, nullptr), 0) << "nothing to do needs no GPU";
  EXPECT_NE(std::string(kernels->error(-1)), "");
}
#endif

}  // namespace
}  // namespace amldist::collective
