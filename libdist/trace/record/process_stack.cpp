#include "trace/record/process_stack.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "base/os/child_process.hpp"
#include "base/os/file_descriptor.hpp"
#include "base/os/whole_file.hpp"
#include "base/text/text.hpp"
#include "trace/record/record_format.hpp"

namespace amldist::trace {
namespace {

using recorder_format::RecorderHeader;
using std::chrono::milliseconds;
using text::concat;

constexpr std::string_view trace_suffix = ".trace";

std::string process_file(std::int32_t pid, std::string_view name) {
  return concat({"/proc/", std::to_string(pid), "/", name});
}

std::string printable_lines(std::string words) {
  std::ranges::replace_if(
      words, [](char c) { return (c < ' ' && c != '\n') || c >= 0x7f; }, '?');
  return words;
}

/// Cuts the text at the end of a line.
std::string shortened(std::string words, std::size_t most) {
  constexpr std::string_view more = "    ...\n";
  if (words.size() <= most) return words;
  words.resize(most - more.size());
  words.resize(words.rfind('\n') + 1);
  return words += more;
}

// ---- the process's own thread ----

/// Only the calling user's own file: another user's file is not an answer to this request.
FileDescriptor open_own(const std::string& path, int how) {
  FileDescriptor file(::open(path.c_str(), how | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY));
  struct stat status = {};
  if (!file || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode) || status.st_uid != ::geteuid()) return {};
  return file;
}

std::uint32_t number_at(int file, std::size_t offset) {
  std::uint32_t number = 0;
  return ::pread(file, &number, sizeof number, static_cast<off_t>(offset)) == sizeof number ? number : 0;
}

std::string asked_for(const Recording& recording, milliseconds patience) {
  constexpr auto wanted_at = offsetof(RecorderHeader, stacks_wanted);
  constexpr auto given_at = offsetof(RecorderHeader, stacks_given);
  const bool answers =
      recording.source == "torch" && recording.writer == Writer::runs && recording.path.ends_with(trace_suffix);
  const FileDescriptor file = answers ? open_own(recording.path, O_RDWR) : FileDescriptor();
  if (!file) return {};
  const std::uint32_t number = number_at(file.get(), wanted_at) + 1;
  if (::pwrite(file.get(), &number, sizeof number, static_cast<off_t>(wanted_at)) != sizeof number) return {};
  const auto deadline = Clock::now() + patience;
  while (number_at(file.get(), given_at) != number) {
    constexpr int pause_ms = 20;
    if (Clock::now() >= deadline) return {};
    ::poll(nullptr, 0, pause_ms);
  }
  const std::string path = concat({recording.path.substr(0, recording.path.size() - trace_suffix.size()), ".stack"});
  return open_own(path, O_RDONLY) ? read_file_start(path, longest_stack * 2) : std::string();
}

// ---- py-spy ----

bool is_python(std::int32_t pid) {
  std::array<char, 512> target{};
  const auto length = ::readlink(process_file(pid, "exe").c_str(), target.data(), target.size());
  const std::string_view path(target.data(), length > 0 ? static_cast<std::size_t>(length) : 0);
  return path.substr(path.rfind('/') + 1).starts_with("python");
}

/// If this process has closed its standard streams, other descriptors would be inherited under their numbers.
void fill_standard_streams() {
  while (true) {
    const int file = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    if (file >= 0 && file <= STDERR_FILENO) continue;
    if (file >= 0) ::close(file);
    return;
  }
}

std::string told_by_py_spy(std::int32_t pid, milliseconds patience) {
  const std::string path = environment_of(pid, "PATH");
  for (const std::string_view folder : text::split(path, ':')) {
    const std::string program = concat({folder, "/py-spy"});
    if (!folder.starts_with('/') || ::access(program.c_str(), X_OK) != 0) continue;
    fill_standard_streams();
    auto pipe = Pipe::make();
    const FileDescriptor nothing(::open("/dev/null", O_RDWR | O_CLOEXEC));
    if (!pipe || !nothing) return {};
    ChildProgram child{{program, "dump", "--nonblocking", "--pid", std::to_string(pid)}};
    child.standard_input = child.standard_error = nothing.get();
    child.standard_output = pipe->writing.get();
    const auto started = ChildProcess::start(child);
    pipe->writing = FileDescriptor();
    constexpr std::size_t most = 1U << 20;
    auto told = started ? read_until_end(pipe->reading.get(), Clock::now() + patience, most) : Result<std::string>("");
    return told ? *told : std::string();
  }
  return {};
}

// ---- what the kernel tells ----

/// The second field after the name in /proc/PID/stat: R, S, D, T, t, ...
char state_in(const std::string& stat_file) {
  const std::string line = read_file_start(stat_file, 512);
  const auto end_of_name = line.rfind(')');
  return end_of_name != std::string::npos && end_of_name + 2 < line.size() ? line[end_of_name + 2] : '?';
}

std::string short_line(const std::string& path) {
  std::string line = read_file_start(path, 128);
  line.resize(std::min(line.find('\n'), line.size()));
  return line;
}

std::string threads_of(std::int32_t pid) {
  const std::string folder = process_file(pid, "task");
  struct Close {
    void operator()(DIR* open) const noexcept { ::closedir(open); }
  };
  const std::unique_ptr<DIR, Close> open(::opendir(folder.c_str()));
  if (open == nullptr) return {};
  std::string words = concat({"process ", std::to_string(pid), "\n"});
  while (const dirent* const entry = ::readdir(open.get())) {
    if (!text::to_number(entry->d_name, 1U << 30) || words.size() > longest_stack) continue;
    const std::string thread = concat({folder, "/", entry->d_name});
    const char state = state_in(thread + "/stat");
    const std::string where = short_line(thread + "/wchan");
    words += concat({"  thread ", entry->d_name, " (", short_line(thread + "/comm"), "): state ", std::string(1, state),
                     where.empty() || where == "0" ? "" : " in " + where, "\n"});
  }
  return words;
}

// ---- the innermost call ----

/// "function at file.py:12" of a line that amldist_trace wrote, or the indented "function (file.py:12)" of py-spy's;
/// the file with its folders.
struct Call {
  std::string_view function;
  std::string_view place;
};

std::optional<Call> call_in(std::string_view line) {
  constexpr std::string_view indent = "    ";
  if (!line.starts_with(indent)) return std::nullopt;
  line.remove_prefix(indent.size());
  const auto at = line.find(" at ");
  if (at != std::string_view::npos) return Call{line.substr(0, at), line.substr(at + 4)};
  const auto open = line.rfind(" (");
  if (open == std::string_view::npos || !line.ends_with(')')) return std::nullopt;
  return Call{line.substr(0, open), line.substr(open + 2, line.size() - open - 3)};
}

bool is_installed(std::string_view place) {
  constexpr std::array<std::string_view, 4> marks = {"/site-packages/", "/dist-packages/", "/lib/python3", "<frozen "};
  return std::ranges::any_of(marks, [&](std::string_view mark) { return place.find(mark) != std::string_view::npos; });
}

}  // namespace

std::string environment_of(std::int32_t pid, std::string_view name) {
  constexpr std::size_t most = 1U << 20;
  const std::string all = read_file_start(process_file(pid, "environ"), most);
  for (const std::string_view each : text::split(all, '\0')) {
    if (each.starts_with(name) && each.substr(name.size()).starts_with('=')) {
      return std::string(each.substr(name.size() + 1));
    }
  }
  return {};
}

std::string stack_of(const Recording& recording, milliseconds patience) {
  const std::int32_t pid = recording.pid;
  if (recording.writer == Writer::gone || pid <= 0) return {};
  std::string python = asked_for(recording, patience);
  if (python.empty() && is_python(pid) && open_own(recording.path, O_RDONLY)) python = told_by_py_spy(pid, patience);
  std::string threads = threads_of(pid);
  if (python.empty()) return printable_lines(shortened(std::move(threads), longest_stack));
  // Both if there is room; the stacks first.
  std::string words = shortened(std::move(python), longest_stack);
  if (!words.ends_with('\n')) words += '\n';
  if (words.size() + threads.size() <= longest_stack) words += threads;
  return printable_lines(std::move(words));
}

std::string innermost_call(std::string_view stack) {
  std::optional<Call> first;
  std::optional<Call> own;
  for (const std::string_view line : text::split(stack, '\n')) {
    const auto call = call_in(line);
    if (!call && first) break;  // the next thread
    if (!call) continue;
    if (!first) first = call;
    if (!own && !is_installed(call->place)) own = call;
  }
  const auto& told = own ? own : first;
  if (!told) return {};
  return concat({told->function, " at ", told->place.substr(told->place.rfind('/') + 1)});
}

}  // namespace amldist::trace
