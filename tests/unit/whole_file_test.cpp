#include "os/whole_file.hpp"

#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "support.hpp"

namespace amldist {
namespace {

class WholeFile : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / "whole_file_XXXXXX";
    ASSERT_NE(::mkdtemp(folder_.data()), nullptr);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::string path(std::string_view name) const { return folder_ + "/" + std::string(name); }
  [[nodiscard]] std::string make(std::string_view name, std::string_view content) const {
    std::ofstream(path(name)) << content;
    return path(name);
  }

  std::string folder_;
};

TEST_F(WholeFile, IsReadUpToItsLimit) {
  struct Case {
    std::size_t bytes;
    std::size_t most;
    bool fits;
  };
  for (const auto& [bytes, most, fits] : std::vector<Case>{{0, 0, true},
                                                           {0, 10, true},
                                                           {10, 10, true},
                                                           {11, 10, false},
                                                           {100000, 100000, true},
                                                           {100001, 100000, false}}) {
    const std::string content(bytes, 'x');
    const std::string file = make("file", content);
    const auto got = read_whole_file(file, most);
    ASSERT_EQ(static_cast<bool>(got), fits) << bytes << ' ' << most;
    if (got) EXPECT_EQ(*got, content);
    else EXPECT_EQ(got.error().code, Errc::limit);
    EXPECT_EQ(read_file_start(file, most), content.substr(0, most));
  }
}

TEST_F(WholeFile, IsOnlyARegularFile) {
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  std::filesystem::create_symlink("loop", path("loop"));
  struct Case {
    std::string path;
    Errc code;
  };
  for (const auto& [name, code] : std::vector<Case>{{path("fifo"), Errc::invalid_argument},  // nobody writes to it
                                                    {folder_, Errc::invalid_argument},
                                                    {"/dev/zero", Errc::invalid_argument},
                                                    {path("loop"), Errc::unavailable},
                                                    {path("missing"), Errc::not_found},
                                                    {make("file", "") + "/below", Errc::not_found}}) {
    const auto got = read_whole_file(name, 100);
    ASSERT_FALSE(got) << name;
    EXPECT_EQ(got.error().code, code) << name << ": " << got.error().message;
    EXPECT_EQ(read_file_start(name, 100), "") << name;
    EXPECT_EQ(first_line_of(name), "") << name;
  }
}

TEST_F(WholeFile, HasAFirstLine) {
  EXPECT_EQ(first_line_of(make("two", "a b\nc\n")), "a b");
  EXPECT_EQ(first_line_of(make("one", "a")), "a");
  EXPECT_EQ(first_line_of(make("empty", "")), "");
  EXPECT_EQ(first_line_of("/proc/sys/kernel/ostype"), "Linux");
}

TEST_F(WholeFile, IsReplacedAsAWhole) {
  EXPECT_TRUE(write_whole_file(path("file"), "first"));
  EXPECT_TRUE(write_whole_file(path("file"), "second"));
  EXPECT_EQ(read_file_start(path("file"), 100), "second");
  EXPECT_FALSE(write_whole_file(path("missing/file"), "x"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), std::filesystem::directory_iterator()), 1);
}

}  // namespace
}  // namespace amldist
