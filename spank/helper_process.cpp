#include "spank/helper_process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "core/text.hpp"
#include "os/file_descriptor.hpp"

namespace amldist::spank {
namespace {

using std::chrono::steady_clock;
using text::concat;

constexpr std::size_t longest_output = 64 * 1024;

/// Two pipes' ends: what the helper writes, and the errno of an exec that failed (closed by one that succeeds).
struct Pipe {
  FileDescriptor reading;
  FileDescriptor writing;

  [[nodiscard]] static Pipe make() {
    std::array<int, 2> ends = {-1, -1};
    static_cast<void>(::pipe2(ends.data(), O_CLOEXEC));
    return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
  }
};

/// After fork: only calls that are safe there. `failure` gets the errno if the program cannot be started.
[[noreturn]] void become(char* const* arguments, char* const* environment, int null, int output, int failure) noexcept {
  sigset_t none;
  sigemptyset(&none);
  ::pthread_sigmask(SIG_SETMASK, &none, nullptr);
  if (::dup2(null, STDIN_FILENO) >= 0 && ::dup2(null, STDERR_FILENO) >= 0 && ::dup2(output, STDOUT_FILENO) >= 0) {
    ::execve(arguments[0], arguments, environment);
  }
  const int error = errno;
  static_cast<void>(::write(failure, &error, sizeof error));
  ::_exit(127);
}

/// Reads until the other end closes; an error for too late or too much.
Result<std::string> read_all(int pipe, steady_clock::time_point deadline) {
  std::string out;
  std::array<char, 4096> buffer{};
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - steady_clock::now()).count();
    pollfd wanted = {pipe, POLLIN, 0};
    const int ready = left > 0 ? ::poll(&wanted, 1, static_cast<int>(left)) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return Error{Errc::unavailable, "it did not end in time"};
    const ssize_t got = ::read(pipe, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return out;
    out.append(buffer.data(), static_cast<std::size_t>(got));
    if (out.size() > longest_output) return Error{Errc::limit, "it wrote too much"};
  }
}

void wait_for(pid_t child) noexcept {
  while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace

Result<std::string> run_helper(const std::vector<std::string>& arguments, char** environment,
                               std::chrono::milliseconds timeout) {
  std::vector<char*> words;
  for (const std::string& word : arguments) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  Pipe output = Pipe::make();
  Pipe failure = Pipe::make();
  if (!output.writing || !failure.writing) return Error{Errc::unavailable, std::strerror(errno)};
  const FileDescriptor null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null) return Error{Errc::unavailable, concat({"/dev/null: ", std::strerror(errno)})};
  const pid_t child = ::fork();
  if (child < 0) return Error{Errc::unavailable, concat({"fork: ", std::strerror(errno)})};
  if (child == 0) become(words.data(), environment, null.get(), output.writing.get(), failure.writing.get());
  output.writing = FileDescriptor();
  failure.writing = FileDescriptor();
  auto text = read_all(output.reading.get(), steady_clock::now() + timeout);
  if (!text) static_cast<void>(::kill(child, SIGKILL));
  wait_for(child);
  int error = 0;
  if (::read(failure.reading.get(), &error, sizeof error) == static_cast<ssize_t>(sizeof error)) {
    return Error{Errc::not_found, concat({arguments.front(), " cannot be started: ", std::strerror(error)})};
  }
  return text;
}

}  // namespace amldist::spank
