#include "base/os/child_process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <memory>

#include "base/os/environment.hpp"
#include "base/os/process_tree.hpp"
#include "base/text/text.hpp"

namespace amldist {
namespace {

/// posix_spawn() takes non-const pointers but does not write through them.
std::vector<char*> pointers_to(const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (const std::string& word : words) {
    pointers.push_back(const_cast<char*>(word.c_str()));  // NOLINT(cppcoreguidelines-pro-type-const-cast)
  }
  pointers.push_back(nullptr);
  return pointers;
}

/// Owns a posix_spawn_file_actions_t.
class StreamActions {
 public:
  explicit StreamActions(const ChildProgram& program) {
    ::posix_spawn_file_actions_init(&actions_);
    const std::array<int, 3> sources = {program.standard_input, program.standard_output, program.standard_error};
    for (int stream = 0; stream < 3; ++stream) {
      const int source = sources[static_cast<std::size_t>(stream)];
      if (source != stream) ::posix_spawn_file_actions_adddup2(&actions_, source, stream);
    }
  }
  StreamActions(const StreamActions&) = delete;
  StreamActions& operator=(const StreamActions&) = delete;
  ~StreamActions() { ::posix_spawn_file_actions_destroy(&actions_); }

  [[nodiscard]] const posix_spawn_file_actions_t* get() const noexcept { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_{};
};

/// Owns a posix_spawnattr_t.
class SpawnAttributes {
 public:
  explicit SpawnAttributes(bool own_group) {
    ::posix_spawnattr_init(&attributes_);
    sigset_t none;
    sigset_t restored;
    sigemptyset(&none);
    sigemptyset(&restored);
    sigaddset(&restored, SIGPIPE);
    ::posix_spawnattr_setsigmask(&attributes_, &none);
    ::posix_spawnattr_setsigdefault(&attributes_, &restored);
    const int group = own_group ? POSIX_SPAWN_SETPGROUP : 0;
    ::posix_spawnattr_setflags(&attributes_,
                               static_cast<short>(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | group));
  }
  SpawnAttributes(const SpawnAttributes&) = delete;
  SpawnAttributes& operator=(const SpawnAttributes&) = delete;
  ~SpawnAttributes() { ::posix_spawnattr_destroy(&attributes_); }

  [[nodiscard]] const posix_spawnattr_t* get() const noexcept { return &attributes_; }

 private:
  posix_spawnattr_t attributes_{};
};

Errc class_of(int problem) noexcept {
  if (problem == ENOENT || problem == ENOTDIR) return Errc::not_found;
  return problem == EAGAIN || problem == ENOMEM ? Errc::internal : Errc::unavailable;
}

}  // namespace

Result<ChildProcess> ChildProcess::start(const ChildProgram& program) {
  const StreamActions actions(program);
  const SpawnAttributes attributes(program.own_group);
  const auto arguments = pointers_to(program.words);
  const auto environment = program.environment ? *program.environment : all_own_variables();
  const auto variables = pointers_to(environment);
  pid_t child = none;
  const int problem =
      ::posix_spawnp(&child, arguments.front(), actions.get(), attributes.get(), arguments.data(), variables.data());
  if (problem == 0) return ChildProcess(child);
  return Error{class_of(problem),
               text::concat({"cannot start ", text::quote(program.words.front()), ": ", std::strerror(problem)})};
}

ChildProcess::ChildProcess(pid_t id) noexcept : id_(id), handle_(open_process(id)) {}

Result<ChildProcess> ChildProcess::fork(const std::function<void()>& work) {
  // The child waits until it has a handle: a child that has ended may be waited for by somebody else before that.
  const FileDescriptor go(::eventfd(0, EFD_CLOEXEC));
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) return Error{Errc::internal, text::concat({"fork: ", std::strerror(errno)})};
  if (child > 0) {
    ChildProcess out(child);
    static_cast<void>(::eventfd_write(go.get(), 1));
    return out;
  }
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a parent that is killed now would leave it waiting
  eventfd_t number = 0;
  if (::getppid() == parent) static_cast<void>(::eventfd_read(go.get(), &number));
  ::prctl(PR_SET_PDEATHSIG, 0);
  try {
    work();
  } catch (...) {  // in the child, nobody is above to catch it
    ::_exit(1);
  }
  ::_exit(0);
}

ChildProcess::~ChildProcess() {
  if (id_ == none) return;
  kill(SIGKILL);
  static_cast<void>(wait_until(Clock::now() + std::chrono::milliseconds(100)));
}

void ChildProcess::kill(int signal) const noexcept {
  if (id_ == none) return;
  if (handle_) return send_signal(handle_, signal);
  if (!reap(WNOHANG | WNOWAIT)) static_cast<void>(::kill(id_, signal));
}

std::optional<int> ChildProcess::reap(int options) const noexcept {
  const bool by_handle = static_cast<bool>(handle_);
  constexpr auto process_handle = static_cast<idtype_t>(3);  // P_PIDFD, which glibc has from 2.36 on
  const idtype_t type = by_handle ? process_handle : P_PID;
  const auto id = static_cast<id_t>(by_handle ? handle_.get() : id_);
  siginfo_t end = {};
  int status = 0;
  do status = ::waitid(type, id, &end, WEXITED | options);
  while (status != 0 && errno == EINTR);
  if (status != 0) return 0;
  if (end.si_pid == 0) return std::nullopt;
  return end.si_code == CLD_EXITED ? end.si_status : 128 + end.si_status;
}

void ChildProcess::kill_group(int signal) const noexcept {
  if (id_ != none) static_cast<void>(::kill(-id_, signal));
}

int ChildProcess::wait() noexcept {
  if (id_ == none) return status_;
  status_ = reap(0).value_or(0);
  id_ = none;
  return status_;
}

std::optional<int> ChildProcess::wait_until(Clock::time_point deadline) noexcept {
  constexpr timespec pause = {0, 1'000'000};
  while (id_ != none) {
    if (const auto status = reap(WNOHANG)) {
      id_ = none;
      status_ = *status;
    } else if (Clock::now() >= deadline) {
      return std::nullopt;
    } else {
      static_cast<void>(::nanosleep(&pause, nullptr));
    }
  }
  return status_;
}

Error become(const std::vector<std::string>& words) {
  const auto arguments = pointers_to(words);
  ::execvp(arguments.front(), arguments.data());
  const int problem = errno;
  return {class_of(problem), text::concat({"cannot start ", text::quote(words.front()), ": ", std::strerror(problem)})};
}

int shell_status(int wait_status) noexcept {
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

int signal_of(int shell_status) noexcept {
  return shell_status > 128 && shell_status <= 128 + SIGRTMAX ? shell_status - 128 : 0;
}

Result<Pipe> Pipe::make() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    return Error{Errc::unavailable, text::concat({"cannot create a pipe: ", std::strerror(errno)})};
  return Pipe{FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

Result<std::string> read_until_end(int descriptor, Clock::time_point deadline, std::size_t most) {
  std::string out;
  std::array<char, 4096> buffer{};
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd wanted = {descriptor, POLLIN, 0};
    const int ready = left > 0 ? ::poll(&wanted, 1, static_cast<int>(std::min<long long>(left, INT32_MAX))) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return Error{Errc::timeout, "it did not end in time"};
    const ssize_t got = ::read(descriptor, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Error{Errc::unavailable, std::strerror(errno)};
    if (got == 0) return out;
    out.append(buffer.data(), static_cast<std::size_t>(got));
    if (out.size() > most)
      return Error{Errc::limit, text::concat({"it wrote more than ", std::to_string(most), " bytes"})};
  }
}

Result<ChildOutput> output_of(ChildProgram program, Clock::time_point deadline, std::size_t most, ErrorStream errors) {
  auto output = Pipe::make();
  if (!output) return output.error();
  const FileDescriptor null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null) return Error{Errc::unavailable, text::concat({"/dev/null: ", std::strerror(errno)})};
  program.standard_input = null.get();
  program.standard_output = output->writing.get();
  program.standard_error = errors == ErrorStream::with_output ? output->writing.get() : null.get();
  auto child = ChildProcess::start(program);
  if (!child) return child.error();
  output->writing = FileDescriptor();
  auto text = read_until_end(output->reading.get(), deadline, most);
  if (!text) return text.error();
  const auto status = child->wait_until(deadline);
  if (!status) return Error{Errc::timeout, "it did not end in time"};
  return ChildOutput{std::move(*text), *status};
}

}  // namespace amldist
