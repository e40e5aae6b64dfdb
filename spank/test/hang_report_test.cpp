// Where the report of a hang goes in a folder that is not only the user's.
#include "spank/server/hang_report.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace amldist::spank {
namespace {

namespace fs = std::filesystem;

/// In a folder of its own, as its process's working folder.
class HangReport : public ::testing::Test {
 protected:
  HangReport() {
    std::string name = fs::temp_directory_path() / "hang_report_XXXXXX";
    folder_ = ::mkdtemp(name.data());
    fs::current_path(folder_);
  }
  ~HangReport() override {
    fs::current_path("/");
    fs::remove_all(folder_);
  }
  static std::string content(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  /// A step's name that no other test and no real step has: the second choice is in /tmp.
  const std::string step_ = "0." + std::to_string(::getpid());
  const std::string name_ = "aml-dist-hang-" + step_;
  fs::path folder_;
};

TEST_F(HangReport, IsTheUsersAlone) {
  ASSERT_EQ(write_hang_report("", step_, "report"), name_ + ".txt");
  EXPECT_EQ(content(name_ + ".txt"), "report");
  struct stat status = {};
  ASSERT_EQ(::stat((name_ + ".txt").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777U, 0600U);
}

TEST_F(HangReport, LeavesWhatHasItsNameAlone) {
  ASSERT_EQ(::mkfifo((name_ + ".txt").c_str(), 0666), 0);  // a writer would wait for its reader
  fs::create_symlink(folder_ / "elsewhere", name_ + "-2.txt");
  std::ofstream(name_ + "-3.txt") << "another's";
  fs::create_directory(name_ + "-4.txt");
  EXPECT_EQ(write_hang_report("", step_, "report"), name_ + "-5.txt");
  EXPECT_EQ(content(name_ + "-5.txt"), "report");
  EXPECT_FALSE(fs::exists("elsewhere"));
  EXPECT_EQ(content(name_ + "-3.txt"), "another's");
  EXPECT_EQ(write_hang_report("", step_, "second"), name_ + "-6.txt");
}

TEST_F(HangReport, SaysWhereAFolderCannotBeWritten) {
  fs::create_directory("gone");
  fs::current_path("gone");
  fs::remove(folder_ / "gone");  // not even root can write there
  EXPECT_EQ(write_hang_report("", step_, "report"), "");
  const std::string first = "/tmp/" + name_ + ".txt";
  fs::create_symlink("/dev/null", first);
  const std::string second = write_hang_report("/tmp/", step_, "report");
  EXPECT_EQ(second, "/tmp/" + name_ + "-2.txt");
  EXPECT_EQ(content(second), "report");
  fs::remove(first);
  fs::remove(second);
}

TEST_F(HangReport, SaysWhereEveryNameIsTaken) {
  for (int taken = 1; taken <= 100; ++taken)
    std::ofstream(name_ + (taken == 1 ? "" : "-" + std::to_string(taken)) + ".txt") << "another's";
  EXPECT_EQ(write_hang_report("", step_, "report"), "") << "a folder with every name taken";
}

}  // namespace
}  // namespace amldist::spank
