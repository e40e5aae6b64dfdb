// Where a processor is, from descriptions as Linux gives them.
#include "base/os/processor_place.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

namespace amldist {
namespace {

class PlaceOfProcessor : public ::testing::Test {
 protected:
  PlaceOfProcessor() : folder_(::testing::TempDir() + "processor-place-" + std::to_string(::getpid())) {}
  ~PlaceOfProcessor() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& path, const std::string& content) {
    const std::filesystem::path file = folder_ + "/" + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << content << '\n';
  }
  const std::string folder_;
};

TEST_F(PlaceOfProcessor, OfTwoSocketsWithManyCoreComplexes) {
  write("cpu77/cache/index0/shared_cpu_list", "77,205");
  write("cpu77/cache/index1/shared_cpu_list", "72-79,200-207");
  write("cpu77/topology/physical_package_id", "1");
  std::filesystem::create_directories(folder_ + "/cpu77/node5");
  EXPECT_EQ(place_of_processor(77, folder_), (ProcessorPlace{72, 5, 1}));
}

TEST_F(PlaceOfProcessor, OfAVirtualMachineWithoutCaches) {
  write("cpu0/topology/physical_package_id", "0");
  std::filesystem::create_directories(folder_ + "/cpu0/node0");
  EXPECT_EQ(place_of_processor(0, folder_), (ProcessorPlace{-1, 0, 0}));
}

TEST_F(PlaceOfProcessor, IsUnknownWhereNothingIsSaid) {
  EXPECT_EQ(place_of_processor(3, folder_), ProcessorPlace());
  EXPECT_EQ(place_of_processor(-1, folder_), ProcessorPlace());
}

TEST_F(PlaceOfProcessor, IsUnknownWhereNonsenseIsSaid) {
  write("cpu0/cache/index0/shared_cpu_list", "all");
  write("cpu0/topology/physical_package_id", "-1");
  std::filesystem::create_directories(folder_ + "/cpu0/nodes");
  std::filesystem::create_directories(folder_ + "/cpu0/node99999999999999999999");
  EXPECT_EQ(place_of_processor(0, folder_), ProcessorPlace());
}

TEST_F(PlaceOfProcessor, OneOfEachCoreComesFirst) {
  const auto own = own_processors();
  if (own.size() < 2) GTEST_SKIP() << "needs two processors";
  for (const int processor : own)
    write("cpu" + std::to_string(processor) + "/topology/thread_siblings_list", std::to_string(processor));
  EXPECT_EQ(own_processors(folder_).size(), own.size());
  const int least = *std::ranges::min_element(own);
  const int most = *std::ranges::max_element(own);
  write("cpu" + std::to_string(least) + "/topology/thread_siblings_list",
        std::to_string(most + 1) + "," + std::to_string(least));
  const auto ordered = own_processors(folder_);
  EXPECT_EQ(ordered.back(), least) << "the second thread of a core";
  EXPECT_TRUE(std::ranges::is_permutation(ordered, own));
  EXPECT_NE(ordered.front(), least);
  EXPECT_LE(ordered.front(), most);
}

TEST(BindToProcessor, LeavesOneProcessor) {
  const auto all = own_processors();
  std::thread([&] {
    bind_to_processor(0, all.back());
    EXPECT_EQ(own_processors(), std::vector<int>{all.back()});
  }).join();
  EXPECT_EQ(own_processors(), all);
}

}  // namespace
}  // namespace amldist
