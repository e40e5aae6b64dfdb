// Which NCCL is taken, and what is said about those that are not.
#include "collective/gpu/nccl_api.hpp"

#include "support.hpp"

namespace amldist::collective {
namespace {

using amldist::testing::expect_sentence;

TEST(NcclApi, SpellsVersionsAsNvidiaDoes) {
  EXPECT_EQ(nccl_version_name(22809), "2.28.9");
  EXPECT_EQ(nccl_version_name(21903), "2.19.3");
  EXPECT_EQ(nccl_version_name(20905), "2.9.5");
  EXPECT_EQ(nccl_version_name(2804), "2.8.4");
}

TEST(NcclApi, TakesAllThatTheReleaseHas) {
  const auto api = load_nccl(FAKE_NCCL_2_28);
  ASSERT_TRUE(api) << api.error().message;
  EXPECT_EQ(api->version, 22809);
  EXPECT_EQ(api->path, FAKE_NCCL_2_28);
  EXPECT_NE(api->all_to_all, nullptr);
  EXPECT_NE(api->gather, nullptr);
  EXPECT_NE(api->scatter, nullptr);
}

TEST(NcclApi, TakesTheOldestReleaseWithoutWhatCameLater) {
  const auto api = load_nccl(FAKE_NCCL_2_19);
  ASSERT_TRUE(api) << api.error().message;
  EXPECT_NE(api->split, nullptr);
  EXPECT_EQ(api->all_to_all, nullptr);
  EXPECT_EQ(api->gather, nullptr);
}

TEST(NcclApi, RefusesAnOlderOneByItsVersion) {
  const auto api = load_nccl(FAKE_NCCL_2_18);
  ASSERT_FALSE(api);
  EXPECT_EQ(api.error().code, Errc::unavailable);
  EXPECT_NE(api.error().message.find("2.18.5"), std::string::npos);
  EXPECT_NE(api.error().message.find("too old"), std::string::npos);
  EXPECT_NE(api.error().message.find("2.19.0"), std::string::npos);
  expect_sentence(api.error().message);
}

TEST(NcclApi, RefusesWhatIsNoNccl) {
  for (const char* const path : {NOT_NCCL, "/nonexistent/libnccl.so.2", "/etc/passwd", "lib\nnccl\x1b.so"}) {
    const auto api = load_nccl(path);
    ASSERT_FALSE(api) << path;
    EXPECT_EQ(api.error().code, Errc::unavailable);
    expect_sentence(api.error().message);
  }
}

}  // namespace
}  // namespace amldist::collective
