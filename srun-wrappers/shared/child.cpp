#include "shared/child.hpp"

#include <spawn.h>
#include <sys/wait.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "core/text.hpp"

extern char** environ;

namespace amldist::commands {
namespace {

/// posix_spawn() takes them as pointers that it does not write through.
std::vector<char*> pointers_to(const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

/// posix_spawn_file_actions_t that is destroyed.
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

/// posix_spawnattr_t that is destroyed.
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

Result<pid_t> start_child(const ChildProgram& program) {
  const StreamActions actions(program);
  const SpawnAttributes attributes(program.own_group);
  const auto arguments = pointers_to(program.words);
  const auto variables = program.environment ? pointers_to(*program.environment) : std::vector<char*>();
  pid_t child = 0;
  const int problem = ::posix_spawnp(&child, arguments.front(), actions.get(), attributes.get(), arguments.data(),
                                     program.environment ? variables.data() : environ);
  if (problem == 0) return child;
  return Error{class_of(problem),
               text::concat({"cannot start ", text::quote(program.words.front()), ": ", std::strerror(problem)})};
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

int await_child(pid_t child) noexcept {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  return shell_status(status);
}

std::optional<int> poll_child(pid_t child) noexcept {
  int status = 0;
  if (::waitpid(child, &status, WNOHANG) != child) return std::nullopt;
  return shell_status(status);
}

}  // namespace amldist::commands
