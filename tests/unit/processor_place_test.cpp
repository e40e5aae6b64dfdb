// Where a processor is, from descriptions as Linux gives them.
#include "os/processor_place.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

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

}  // namespace
}  // namespace amldist
