#include "shared/programs.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "core/text.hpp"
#include "os/file_descriptor.hpp"
#include "shared/child.hpp"

namespace amldist::commands {
namespace {

using text::concat;

struct Pipe {
  FileDescriptor read;
  FileDescriptor write;
};

Result<Pipe> make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    return Error{Errc::internal, concat({"no pipe can be made: ", std::strerror(errno)})};
  }
  return Pipe{FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

void keep(std::string& text, const char* bytes, std::size_t count) {
  text.append(bytes, std::min(count, longest_capture - std::min(longest_capture, text.size())));
}

/// Reads what is there. false: the other end is closed.
bool drain(const FileDescriptor& from, std::string& text) {
  std::array<char, 65536> buffer{};
  const ssize_t count = ::read(from.get(), buffer.data(), buffer.size());
  if (count > 0) keep(text, buffer.data(), static_cast<std::size_t>(count));
  return count > 0 || (count < 0 && errno == EINTR);
}

/// Writes `input` and reads both outputs until they are closed.
void exchange(Pipe& in, const Pipe& out, const Pipe& err, std::string_view input, Finished& finished) {
  bool out_open = true;
  bool err_open = true;
  if (input.empty()) in.write = FileDescriptor();
  while (out_open || err_open) {
    std::array<pollfd, 3> ends = {pollfd{out_open ? out.read.get() : -1, POLLIN, 0},
                                  pollfd{err_open ? err.read.get() : -1, POLLIN, 0},
                                  pollfd{in.write.get(), POLLOUT, 0}};
    if (::poll(ends.data(), ends.size(), -1) < 0 && errno != EINTR) return;
    if (ends[0].revents != 0) out_open = drain(out.read, finished.out);
    if (ends[1].revents != 0) err_open = drain(err.read, finished.err);
    if (ends[2].revents == 0) continue;
    const ssize_t count = ::write(in.write.get(), input.data(), std::min<std::size_t>(input.size(), 4096));
    if (count > 0) input.remove_prefix(static_cast<std::size_t>(count));
    if ((count < 0 && errno != EINTR) || input.empty()) in.write = FileDescriptor();
  }
}

}  // namespace

std::optional<std::string> find_program(std::string_view name) {
  return find_program_in(own_variable("PATH").value_or("/usr/local/bin:/usr/bin:/bin"), name);
}

std::optional<std::string> find_program_in(std::string_view path, std::string_view name) {
  for (const std::string_view folder : text::split(path, ':')) {
    std::string candidate = concat({folder.empty() ? "." : folder, "/", name});
    struct stat info {};
    if (::stat(candidate.c_str(), &info) == 0 && S_ISREG(info.st_mode) && ::access(candidate.c_str(), X_OK) == 0) {
      return candidate;
    }
  }
  return std::nullopt;
}

Result<Finished> run_program(const std::vector<std::string>& words, std::string_view input) {
  if (!find_program(words.front()))
    return Error{Errc::unavailable, concat({words.front(), " is not installed here (not in PATH)"})};
  auto in = make_pipe();
  auto out = make_pipe();
  auto err = make_pipe();
  if (!in || !out || !err) return (!in ? in : !out ? out : err).error();
  const auto child = start_child({.words = words,
                                  .environment = std::nullopt,
                                  .standard_input = in->read.get(),
                                  .standard_output = out->write.get(),
                                  .standard_error = err->write.get(),
                                  .own_group = true});
  if (!child) return child.error();
  struct sigaction ignore {};
  struct sigaction before {};
  ignore.sa_handler = SIG_IGN;  // a program that does not read its input must not end us
  ::sigaction(SIGPIPE, &ignore, &before);
  in->read = FileDescriptor();
  out->write = FileDescriptor();
  err->write = FileDescriptor();
  Finished finished;
  exchange(*in, *out, *err, input, finished);
  finished.status = await_child(*child);
  ::sigaction(SIGPIPE, &before, nullptr);
  return finished;
}

std::string sibling_program(std::string_view name) {
  std::error_code ignored;
  const auto own = std::filesystem::read_symlink("/proc/self/exe", ignored);
  const auto sibling = own.parent_path() / std::string(name);
  return !own.empty() && ::access(sibling.c_str(), X_OK) == 0 ? sibling.string() : std::string(name);
}

std::optional<std::string> own_variable(std::string_view name) {
  const char* const value = std::getenv(std::string(name).c_str());
  return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
}

Result<std::string> read_file(const std::string& path, std::size_t limit) {
  // Non-blocking, so that a FIFO nobody writes to cannot hold us.
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (!file || ::fstat(file.get(), &info) != 0) {
    const bool missing = errno == ENOENT || errno == ENOTDIR;
    return Error{missing ? Errc::not_found : Errc::unavailable,
                 concat({text::quote(path), " cannot be read: ", std::strerror(errno)})};
  }
  if (!S_ISREG(info.st_mode)) return Error{Errc::not_found, concat({text::quote(path), " is not a regular file"})};
  const auto too_long = [&] {
    return Error{Errc::limit, concat({text::quote(path), " is longer than ", std::to_string(limit / 1024),
                                      " KiB, the most that is read"})};
  };
  if (static_cast<std::uint64_t>(info.st_size) > limit) return too_long();
  std::string content;
  std::array<char, 65536> buffer{};
  for (;;) {
    const ssize_t count = ::read(file.get(), buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0)
      return Error{Errc::unavailable, concat({text::quote(path), " cannot be read: ", std::strerror(errno)})};
    if (count == 0) return content;
    content.append(buffer.data(), static_cast<std::size_t>(count));
    if (content.size() > limit) return too_long();
  }
}

}  // namespace amldist::commands
