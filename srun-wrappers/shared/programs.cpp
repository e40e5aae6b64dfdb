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

#include "base/os/child_process.hpp"
#include "base/os/environment.hpp"
#include "base/os/whole_file.hpp"
#include "base/text/text.hpp"

namespace amldist::commands {
namespace {

using text::concat;

/// Reads what is there. false: the other end is closed.
bool drain(const FileDescriptor& from, std::string& text, std::size_t most) {
  std::array<char, 65536> buffer{};
  const ssize_t count = ::read(from.get(), buffer.data(), buffer.size());
  if (count > 0) text.append(buffer.data(), std::min(static_cast<std::size_t>(count), most - text.size()));
  return count > 0 || (count < 0 && errno == EINTR);
}

/// Writes `input` and reads both outputs until they are closed.
void exchange(Pipe& in, const Pipe& out, const Pipe& err, std::string_view input, std::size_t most,
              Finished& finished) {
  bool out_open = true;
  bool err_open = true;
  if (input.empty()) in.writing = FileDescriptor();
  while (out_open || err_open) {
    std::array<pollfd, 3> ends = {pollfd{out_open ? out.reading.get() : -1, POLLIN, 0},
                                  pollfd{err_open ? err.reading.get() : -1, POLLIN, 0},
                                  pollfd{in.writing.get(), POLLOUT, 0}};
    if (::poll(ends.data(), ends.size(), -1) < 0 && errno != EINTR) return;
    if (ends[0].revents != 0) out_open = drain(out.reading, finished.out, most);
    if (ends[1].revents != 0) err_open = drain(err.reading, finished.err, most);
    if (ends[2].revents == 0) continue;
    const ssize_t count = ::write(in.writing.get(), input.data(), std::min<std::size_t>(input.size(), 4096));
    if (count > 0) input.remove_prefix(static_cast<std::size_t>(count));
    if ((count < 0 && errno != EINTR) || input.empty()) in.writing = FileDescriptor();
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

Result<Finished> run_program(const std::vector<std::string>& words, std::string_view input, std::size_t most) {
  if (!find_program(words.front()))
    return Error{Errc::unavailable, concat({words.front(), " is not installed here (not in PATH)"})};
  auto in = Pipe::make();
  auto out = Pipe::make();
  auto err = Pipe::make();
  if (!in || !out || !err) return (!in ? in : !out ? out : err).error();
  auto child = ChildProcess::start({.words = words,
                                    .standard_input = in->reading.get(),
                                    .standard_output = out->writing.get(),
                                    .standard_error = err->writing.get(),
                                    .own_group = true});
  if (!child) return child.error();
  struct sigaction ignore {};
  struct sigaction before {};
  ignore.sa_handler = SIG_IGN;  // a program that does not read its input must not end this one
  ::sigaction(SIGPIPE, &ignore, &before);
  in->reading = FileDescriptor();
  out->writing = FileDescriptor();
  err->writing = FileDescriptor();
  Finished finished;
  exchange(*in, *out, *err, input, most, finished);
  finished.status = child->wait();
  ::sigaction(SIGPIPE, &before, nullptr);
  return finished;
}

std::string sibling_program(std::string_view name) {
  std::error_code ignored;
  const auto own = std::filesystem::read_symlink("/proc/self/exe", ignored);
  const auto sibling = own.parent_path() / std::string(name);
  return !own.empty() && ::access(sibling.c_str(), X_OK) == 0 ? sibling.string() : std::string(name);
}

Result<std::string> read_file(const std::string& path, std::size_t limit) {
  auto content = read_whole_file(path, limit);
  if (content) return content;
  const Error& error = content.error();
  if (error.code == Errc::invalid_argument)
    return Error{Errc::not_found, concat({text::quote(path), " is not a regular file"})};
  if (error.code != Errc::limit)
    return Error{error.code, concat({text::quote(path), " cannot be read: ", error.message})};
  return Error{Errc::limit, concat({text::quote(path), " is longer than ", std::to_string(limit / 1024),
                                    " KiB, the most that is read"})};
}

}  // namespace amldist::commands
