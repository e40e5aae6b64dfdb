// A rank's part of the last cache, from descriptions as Linux gives them.
#include "base/os/cache_share.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace amldist::collective {
namespace {

constexpr std::size_t mib = 1UL << 20;

class CacheShare : public ::testing::Test {
 protected:
  CacheShare() : folder_(::testing::TempDir() + "cache-share-" + std::to_string(::getpid())) {}
  ~CacheShare() override { std::filesystem::remove_all(folder_); }

  void list(int index, const std::string& size, const std::string& processors) {
    const std::string entry = folder_ + "/index" + std::to_string(index);
    std::filesystem::create_directories(entry);
    std::ofstream(entry + "/size") << size << '\n';
    std::ofstream(entry + "/shared_cpu_map") << processors << '\n';
  }
  const std::string folder_;
};

TEST_F(CacheShare, IsTheWholeForOneRank) {
  list(0, "48K", "1");
  list(1, "1024K", "1");
  list(2, "32768K", "3");
  EXPECT_EQ(cache_share(1, folder_), 32 * mib);
}

TEST_F(CacheShare, IsAPartWhereAllProcessorsShareIt) {
  list(0, "32768K", "ffffffff,ffffffff");  // at least as many as this machine has
  EXPECT_EQ(cache_share(4, folder_), 8 * mib);
}

TEST_F(CacheShare, OfAnUnknownMachineIsAGuess) {
  EXPECT_EQ(cache_share(1, folder_), 16 * mib);
  list(0, "nonsense", "?");
  EXPECT_EQ(cache_share(1, folder_), 16 * mib);
}

}  // namespace
}  // namespace amldist::collective
