#include "base/os/child_process.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <stdexcept>

#include "base/os/whole_file.hpp"
#include "support.hpp"

namespace amldist {
namespace {

using std::chrono::seconds;

constexpr std::size_t enough = 1U << 20;

Clock::time_point later() { return Clock::now() + seconds(60); }

TEST(OutputOf, IsWhatTheProgramWrites) {
  struct Case {
    std::vector<std::string> words;
    std::string output;
  };
  const std::vector<Case> cases = {
      {{"echo", "a  b", "$HOME;c"}, "a  b $HOME;c\n"},           // no shell
      {{"/bin/sh", "-c", "printf x; exit 3"}, "x"},              // whatever its status
      {{"/bin/sh", "-c", "echo lost >&2; cat; echo y"}, "y\n"},  // no input, errors dropped
      {{"true"}, ""},
  };
  for (const auto& [words, output] : cases) {
    const auto got = output_of({.words = words}, later(), enough);
    ASSERT_TRUE(got) << words.front() << ": " << got.error().message;
    EXPECT_EQ(got->text, output);
  }
}

TEST(OutputOf, SaysHowTheProgramEnded) {
  struct Case {
    std::string script;
    int status;
    int signal;
  };
  for (const auto& [script, status, signal] : std::vector<Case>{{"echo x; exit 7", 7, 0},
                                                                {"echo x; kill -9 $$", 128 + SIGKILL, SIGKILL},
                                                                {"echo x; sh -c 'kill -9 $$'", 128 + SIGKILL, SIGKILL},
                                                                {"echo x; exit 255", 255, 0}}) {
    const auto got = output_of({.words = {"/bin/sh", "-c", script}}, later(), enough);
    ASSERT_TRUE(got) << got.error().message;
    EXPECT_EQ(got->text, "x\n");
    EXPECT_EQ(got->status, status) << script;
    EXPECT_EQ(signal_of(got->status), signal) << script;
  }
}

TEST(OutputOf, HasTheGivenEnvironmentAndNothingElse) {
  const auto got =
      output_of({.words = {"/usr/bin/env"}, .environment = std::vector<std::string>{"A=1", "B=2"}}, later(), enough);
  ASSERT_TRUE(got) << got.error().message;
  EXPECT_EQ(got->text, "A=1\nB=2\n");
}

TEST(OutputOf, HasTheErrorsOnlyWhereAsked) {
  const ChildProgram program = {.words = {"/bin/sh", "-c", "echo out; echo error >&2"}};
  const auto without = output_of(program, later(), enough);
  const auto with = output_of(program, later(), enough, ErrorStream::with_output);
  ASSERT_TRUE(without && with);
  EXPECT_EQ(without->text, "out\n");
  EXPECT_EQ(with->text, "out\nerror\n");
}

TEST(OutputOf, SaysWhyThereIsNone) {
  const auto missing = output_of({.words = {"/nonexistent/program"}}, later(), enough);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, Errc::not_found);
  EXPECT_EQ(missing.error().message, "cannot start '/nonexistent/program': No such file or directory");
  const auto denied = output_of({.words = {"/etc/passwd"}}, later(), enough);
  ASSERT_FALSE(denied);
  EXPECT_EQ(denied.error().code, Errc::unavailable);
  const auto endless = output_of({.words = {"sleep", "1000"}}, Clock::now(), enough);
  ASSERT_FALSE(endless);
  EXPECT_EQ(endless.error().code, Errc::timeout);
  const auto closed_early = output_of({.words = {"/bin/sh", "-c", "exec >&-; sleep 1000"}},
                                      Clock::now() + std::chrono::milliseconds(50), enough);
  ASSERT_FALSE(closed_early);
  EXPECT_EQ(closed_early.error().code, Errc::timeout);
  const auto talkative = output_of({.words = {"yes"}}, later(), 10000);
  ASSERT_FALSE(talkative);
  EXPECT_EQ(talkative.error().code, Errc::limit);
}

TEST(ChildProcess, EndsWithAStatusAsAShellSaysIt) {
  struct Case {
    std::string script;
    int status;
  };
  for (const auto& [script, status] : std::vector<Case>{{"exit 0", 0}, {"exit 7", 7}, {"kill -9 $$", 128 + SIGKILL}}) {
    auto child = ChildProcess::start({.words = {"/bin/sh", "-c", script}});
    ASSERT_TRUE(child) << child.error().message;
    EXPECT_EQ(child->wait(), status) << script;
    EXPECT_EQ(child->wait(), status) << "the same when asked again";
    EXPECT_EQ(child->poll(), status);
  }
}

TEST(ChildProcess, HasNoSignalBlockedOrIgnored) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ASSERT_EQ(::pthread_sigmask(SIG_SETMASK, &all, &before), 0);
  const auto handler = ::signal(SIGPIPE, SIG_IGN);
  auto term = ChildProcess::start({.words = {"/bin/sh", "-c", "kill -TERM $$; exit 0"}});
  auto pipe = ChildProcess::start({.words = {"/bin/sh", "-c", "kill -PIPE $$; exit 0"}});
  ::signal(SIGPIPE, handler);
  ASSERT_EQ(::pthread_sigmask(SIG_SETMASK, &before, nullptr), 0);
  ASSERT_TRUE(term && pipe);
  EXPECT_EQ(term->wait(), 128 + SIGTERM);
  EXPECT_EQ(pipe->wait(), 128 + SIGPIPE);
}

TEST(ChildProcess, IsKilledWithItsOwner) {
  auto pipe = Pipe::make();
  ASSERT_TRUE(pipe);
  {
    const auto child = ChildProcess::start({.words = {"sleep", "1000"}, .standard_output = pipe->writing.get()});
    ASSERT_TRUE(child) << child.error().message;
    pipe->writing = FileDescriptor();
  }
  const auto closed = read_until_end(pipe->reading.get(), later(), enough);
  ASSERT_TRUE(closed) << closed.error().message;
}

TEST(ChildProcess, CanBeACopyOfThisProcess) {
  auto pipe = Pipe::make();
  ASSERT_TRUE(pipe);
  auto child = ChildProcess::fork([&] { write_all(pipe->writing.get(), "from the child"); });
  ASSERT_TRUE(child) << child.error().message;
  pipe->writing = FileDescriptor();
  const auto text = read_until_end(pipe->reading.get(), later(), enough);
  ASSERT_TRUE(text) << text.error().message;
  EXPECT_EQ(*text, "from the child");
  EXPECT_EQ(child->wait(), 0);
  auto broken = ChildProcess::fork([] { throw std::runtime_error("no memory"); });
  ASSERT_TRUE(broken);
  EXPECT_EQ(broken->wait(), 1);
}

/// A process with this number, which must be free. The kernel lets root choose it.
pid_t fork_as(pid_t id) {
  std::ofstream("/proc/sys/kernel/ns_last_pid") << id - 1;
  const pid_t child = ::fork();
  if (child == 0) {
    for (;;) ::pause();
  }
  return child;
}

/// slurmstepd waits for every child that it finds, ours too, and the number may then be anybody's.
TEST(ChildProcess, NoOtherProcessWithItsNumberIsSignalled) {
  auto child = ChildProcess::fork([] {});
  ASSERT_TRUE(child);
  const pid_t id = ::waitpid(-1, nullptr, 0);
  pid_t other = -1;
  for (int attempt = 0; attempt < 20 && other != id; ++attempt) {
    if (other > 0 && ::kill(other, SIGKILL) == 0) ::waitpid(other, nullptr, 0);
    other = fork_as(id);
  }
  child->kill(SIGKILL);
  { const ChildProcess goes = std::move(*child); }
  int status = 0;
  EXPECT_EQ(::waitpid(other, &status, WNOHANG), 0) << "it was killed, or taken for the child";
  ::kill(other, SIGKILL);
  ::waitpid(other, &status, 0);
  if (other != id) GTEST_SKIP() << "no number can be chosen here (/proc/sys/kernel/ns_last_pid)";
}

TEST(ReadUntilEnd, HasADeadlineAndALimit) {
  auto pipe = Pipe::make();
  ASSERT_TRUE(pipe);
  ASSERT_TRUE(write_all(pipe->writing.get(), "12345"));
  const auto open = read_until_end(pipe->reading.get(), Clock::now() + std::chrono::milliseconds(20), enough);
  ASSERT_FALSE(open);
  EXPECT_EQ(open.error().code, Errc::timeout);
  ASSERT_TRUE(write_all(pipe->writing.get(), "12345"));
  pipe->writing = FileDescriptor();
  const auto limited = read_until_end(pipe->reading.get(), later(), 4);
  ASSERT_FALSE(limited);
  EXPECT_EQ(limited.error().code, Errc::limit);
}

}  // namespace
}  // namespace amldist
