// A process that answers for another user: whose rights it has, and that it always ends.
#include "base/os/answer_as_user.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <stdexcept>

#include "base/os/file_descriptor.hpp"
#include "scratch.hpp"

namespace amldist {
namespace {

using testing::ScratchFolder;

constexpr std::chrono::minutes long_enough{1};
constexpr UserRights some_user{65533, 65532};

UserRights own_rights() { return {::geteuid(), ::getegid()}; }

bool has_no_child() { return ::waitpid(-1, nullptr, WNOHANG) == -1 && errno == ECHILD; }

TEST(AnswerAsUser, GivesTheAnswer) {
  EXPECT_EQ(answer_as_user(
                own_rights(), [] { return std::string("in allreduce #1"); }, long_enough),
            "in allreduce #1");
  EXPECT_EQ(answer_as_user(
                own_rights(), [] { return std::string(); }, long_enough),
            "")
      << "an empty one too";
  EXPECT_TRUE(has_no_child());
}

TEST(AnswerAsUser, HasNoRightsButTheUsers) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const auto ids = [] {
    uid_t user[3];
    gid_t group[3];
    if (::getresuid(&user[0], &user[1], &user[2]) != 0 || ::getresgid(&group[0], &group[1], &group[2]) != 0)
      return std::string("?");
    std::string out = ::getgroups(0, nullptr) == 0 ? "alone" : "in groups";
    for (const uid_t each : user) out += " " + std::to_string(each);
    for (const gid_t each : group) out += " " + std::to_string(each);
    return out + (::setuid(0) == 0 ? " and can come back" : "");
  };
  EXPECT_EQ(answer_as_user(some_user, ids, long_enough), "alone 65533 65533 65533 65532 65532 65532");
  EXPECT_EQ(::geteuid(), 0U) << "this process stays root";
}

TEST(AnswerAsUser, DoesNotReadWhatOnlyRootMayRead) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const ScratchFolder folder;
  ASSERT_EQ(::chmod(folder.path().c_str(), 0755), 0);
  const std::string secret = folder / "secret";
  const std::string link = folder / "link";
  std::ofstream(secret) << "secret";
  ASSERT_EQ(::chmod(secret.c_str(), 0600), 0);
  ASSERT_EQ(::symlink(secret.c_str(), link.c_str()), 0);
  const auto read = [&] {
    std::string text;
    std::ifstream(link) >> text;
    return text;
  };
  EXPECT_EQ(read(), "secret");
  EXPECT_EQ(answer_as_user(some_user, read, long_enough), "");
}

TEST(AnswerAsUser, HoldsNoDescriptorOfItsParent) {
  const FileDescriptor file(::open("/dev/null", O_RDONLY));
  ASSERT_TRUE(file);
  const auto is_open = [&] { return std::string(::fcntl(file.get(), F_GETFD) >= 0 ? "open" : "closed"); };
  EXPECT_EQ(is_open(), "open");
  EXPECT_EQ(answer_as_user(own_rights(), is_open, long_enough), "closed");
}

TEST(AnswerAsUser, IsEndedWhenItHangs) {
  const ScratchFolder folder;
  const std::string fifo = folder / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0666), 0);
  const auto read = [&] {
    const FileDescriptor nobody_writes(::open(fifo.c_str(), O_RDONLY));
    return std::string("opened");
  };
  EXPECT_EQ(answer_as_user(own_rights(), read, std::chrono::milliseconds(50)), std::nullopt);
  EXPECT_TRUE(has_no_child());
}

TEST(AnswerAsUser, HasNoneAfterAnExceptionOrAFloodOfText) {
  const auto fail = []() -> std::string { throw std::runtime_error("no"); };
  EXPECT_EQ(answer_as_user(own_rights(), fail, long_enough), std::nullopt);
  const auto longest = [] { return std::string(longest_answer_as_user, 'x'); };
  EXPECT_EQ(answer_as_user(own_rights(), longest, long_enough), longest());
  const auto too_long = [&] { return longest() + "x"; };
  EXPECT_EQ(answer_as_user(own_rights(), too_long, long_enough), std::nullopt);
}

}  // namespace
}  // namespace amldist
