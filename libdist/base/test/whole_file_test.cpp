#include "base/os/whole_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/os/file_descriptor.hpp"
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

TEST_F(WholeFile, BehindALinkTheTargetIsReplacedAndTheLinkStays) {
  namespace fs = std::filesystem;
  fs::create_directory(path("elsewhere"));
  static_cast<void>(make("elsewhere/target", "old"));
  ASSERT_EQ(::chmod(path("elsewhere/target").c_str(), 0640), 0);
  fs::create_symlink("elsewhere/target", path("link"));
  fs::create_symlink(path("link"), path("link to the link"));
  fs::create_symlink("elsewhere/fresh", path("to nothing"));
  EXPECT_TRUE(write_whole_file(path("link to the link"), "new"));
  EXPECT_TRUE(write_whole_file(path("to nothing"), "first"));
  EXPECT_TRUE(fs::is_symlink(path("link")) && fs::is_symlink(path("link to the link")));
  EXPECT_TRUE(fs::is_symlink(path("to nothing")));
  EXPECT_EQ(read_file_start(path("elsewhere/target"), 100), "new");
  EXPECT_EQ(read_file_start(path("elsewhere/fresh"), 100), "first");
  struct stat status = {};
  ASSERT_EQ(::stat(path("elsewhere/target").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0640U);
  fs::create_symlink("circle", path("circle"));
  EXPECT_FALSE(write_whole_file(path("circle"), "x"));
}

TEST_F(WholeFile, DevicesAndPipesAreWrittenThroughAndStay) {
  namespace fs = std::filesystem;
  // A device of our own in place of the machine's: under a mistake here the machine keeps its /dev/null.
  const bool may_make_devices = ::mknod(path("null").c_str(), S_IFCHR | 0666, ::makedev(1, 3)) == 0 &&
                                ::mknod(path("full").c_str(), S_IFCHR | 0666, ::makedev(1, 7)) == 0;
  if (may_make_devices && write_whole_file(path("null"), "probe")) {
    EXPECT_TRUE(fs::is_character_file(path("null")));
    const auto full = write_whole_file(path("full"), "x");
    ASSERT_FALSE(full);
    EXPECT_EQ(full.error().message, "No space left on device");
    EXPECT_TRUE(fs::is_character_file(path("full")));
  }
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  EXPECT_FALSE(write_whole_file(path("fifo"), "x")) << "nobody reads";
  const FileDescriptor reader(::open(path("fifo").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  EXPECT_TRUE(write_whole_file(path("fifo"), "through"));
  std::array<char, 16> got{};
  EXPECT_EQ(::read(reader.get(), got.data(), got.size()), 7);
  EXPECT_TRUE(fs::is_fifo(path("fifo")));
  EXPECT_FALSE(write_whole_file(folder_, "x"));
}

TEST_F(WholeFile, ADescriptorsFileIsAddedTo) {
  const FileDescriptor file(::open(path("output").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_TRUE(write_all(file.get(), "before "));
  // As /dev/stdout is: to replace the file would part it from the descriptor.
  EXPECT_TRUE(write_whole_file("/proc/self/fd/" + std::to_string(file.get()), "through"));
  EXPECT_EQ(read_file_start(path("output"), 100), "before through");
}

}  // namespace
}  // namespace amldist
