// The NCCL of this machine, as far as it goes without a GPU.
#include <unistd.h>
#include "collective/gpu/nccl_api.hpp"
#include "collective/gpu/nccl_backend.hpp"

#include "support.hpp"

namespace amldist::collective {
namespace {

using amldist::testing::expect_sentence;

TEST(RealNccl, LoadsAndTellsItsVersion) {
  const auto api = load_nccl(REAL_NCCL);
  ASSERT_TRUE(api) << api.error().message;
  EXPECT_GE(api->version, oldest_nccl);
  EXPECT_EQ(api->all_to_all != nullptr, api->version >= 22800);
}

TEST(RealNccl, GivesUniqueIdsThatDiffer) {
  const auto api = load_nccl(REAL_NCCL);
  ASSERT_TRUE(api);
  NcclUniqueId one = {}, other = {};
  ASSERT_EQ(api->get_unique_id(&one), nccl_success);
  ASSERT_EQ(api->get_unique_id(&other), nccl_success);
  EXPECT_NE(std::string(one.bytes, sizeof one.bytes), std::string(other.bytes, sizeof other.bytes));
}

TEST(RealNccl, ComesUpWithAGpuAndFailsCleanlyWithoutOne) {
  const bool gpu = ::access("/dev/nvidiactl", F_OK) == 0;
  const auto api = load_nccl(REAL_NCCL);
  ASSERT_TRUE(api);
  NcclUniqueId id = {};
  ASSERT_EQ(api->get_unique_id(&id), nccl_success);
  NcclApi::Comm comm = nullptr;
  NcclConfig config;
  int result = api->init_rank_config(&comm, 1, id, 0, &config);
  for (int i = 0; i < 10000 && result == nccl_in_progress; ++i) {
    ::usleep(1000);
    if (const int asked = api->get_async_error(comm, &result); asked != nccl_success) result = asked;
  }
  EXPECT_EQ(result == nccl_success, gpu);
  EXPECT_NE(result, nccl_in_progress);
  EXPECT_NE(std::string(api->error_string(result)), "");
  if (comm != nullptr) api->abort(comm);
}

}  // namespace
}  // namespace amldist::collective
