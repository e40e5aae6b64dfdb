#include "world/wireup/secret_file.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

namespace amldist::world {
namespace {

namespace fs = std::filesystem;

class UsersFolder : public ::testing::Test {
 protected:
  UsersFolder() {
    std::string name = (fs::temp_directory_path() / "secret-file-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  ~UsersFolder() override { fs::remove_all(folder_); }
  UsersFolder(const UsersFolder&) = delete;
  UsersFolder& operator=(const UsersFolder&) = delete;

  [[nodiscard]] Result<SecretFile> open(std::string_view purpose = "world") const {
    return SecretFile::open(purpose, [this](std::string_view name) -> std::optional<std::string> {
      return name == "XDG_RUNTIME_DIR" ? std::optional(folder_.string()) : std::nullopt;
    });
  }
  /// The files with secrets.
  [[nodiscard]] std::vector<fs::path> files() const {
    std::vector<fs::path> out;
    for (const auto& each : fs::directory_iterator(folder_)) {
      if (each.path().filename().string().starts_with("aml-dist-secret-")) out.push_back(each.path());
    }
    return out;
  }

  fs::path folder_;
};

TEST_F(UsersFolder, AllProcessesOfAWorldFindOneSecret) {
  constexpr int processes = 8;
  std::array<std::optional<SecretFile>, processes> opened;
  std::vector<std::thread> threads;
  for (auto& each : opened) threads.emplace_back([&] { each = open().value(); });
  for (std::thread& each : threads) each.join();
  for (const auto& each : opened) EXPECT_EQ(each->key(), opened[0]->key());
  EXPECT_FALSE(open("another").value().key() == opened[0]->key());
}

/// A program's own handlers may be without SA_RESTART, as Python's are.
TEST_F(UsersFolder, SignalsDoNotKeepAProcessFromIt) {
  ASSERT_TRUE(open());  // which makes the file of the lock
  const FileDescriptor lock(::open((folder_ / "aml-dist-secrets.lock").c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(::flock(lock.get(), LOCK_EX), 0);
  struct sigaction handled = {};
  struct sigaction previous = {};
  handled.sa_handler = [](int) {};
  ASSERT_EQ(::sigaction(SIGUSR1, &handled, &previous), 0);
  const pthread_t waiting = ::pthread_self();
  std::thread others([&] {
    for (int i = 0; i < 20; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      ::pthread_kill(waiting, SIGUSR1);
    }
    ::flock(lock.get(), LOCK_UN);
  });
  const auto opened = open();
  others.join();
  ::sigaction(SIGUSR1, &previous, nullptr);
  ASSERT_TRUE(opened) << opened.error().message;
}

TEST_F(UsersFolder, OnlyTheUserCanReadIt) {
  ASSERT_TRUE(open());
  ASSERT_EQ(files().size(), 1U);
  struct stat status = {};
  ASSERT_EQ(::stat(files()[0].c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0600U);
}

TEST_F(UsersFolder, RemovesItAndThenMakesAnother) {
  const auto first = open();
  ASSERT_TRUE(first);
  first->remove_unless_used();
  EXPECT_TRUE(files().empty());
  EXPECT_FALSE(open()->key() == first->key());
}

TEST_F(UsersFolder, OneThatNobodyUsesIsReplaced) {
  const Key left = open()->key();  // whoever used it has ended
  EXPECT_FALSE(open()->key() == left);
  const auto used = open();
  EXPECT_EQ(open()->key(), used->key());
}

TEST_F(UsersFolder, WhatEndedProcessesLeftIsRemovedByTheNextStart) {
  const auto living = open("living");
  static_cast<void>(open("left"));
  EXPECT_EQ(files().size(), 2U);
  static_cast<void>(open("left too"));
  EXPECT_EQ(files().size(), 2U) << "the living one's and the new one's";
  EXPECT_EQ(open("living")->key(), living->key());
}

TEST_F(UsersFolder, FilesOfOtherProgramsStay) {
  const fs::path foreign = folder_ / "secret-of-another-program";
  std::ofstream(foreign) << "theirs";
  ASSERT_TRUE(open());
  EXPECT_TRUE(fs::exists(foreign));
}

TEST_F(UsersFolder, WhatOthersCanReadIsReplaced) {
  const auto old = open();
  ASSERT_EQ(::chmod(files()[0].c_str(), 0644), 0);
  EXPECT_FALSE(open()->key() == old->key());
}

TEST_F(UsersFolder, ALinkIsReplacedAndNotFollowed) {
  ASSERT_TRUE(open());
  const fs::path place = files()[0];
  const fs::path target = folder_ / "target";
  std::ofstream(target) << std::string(64, 'a');
  ASSERT_EQ(::chmod(target.c_str(), 0600), 0);
  for (const bool symbolic : {true, false}) {
    fs::remove(place);
    if (symbolic) fs::create_symlink(target, place);
    else fs::create_hard_link(target, place);
    const auto file = open();
    ASSERT_TRUE(file);
    EXPECT_FALSE(file->key() == *Key::from_hex(std::string(64, 'a')));
    EXPECT_EQ(fs::file_size(target), 64U);
  }
}

TEST_F(UsersFolder, AFolderThatOthersCanReadIsNotUsed) {
  ASSERT_EQ(::chmod(folder_.c_str(), 0755), 0);
  static_cast<void>(open());
  EXPECT_TRUE(files().empty());
}

}  // namespace
}  // namespace amldist::world
