#include "step/cause/error_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <initializer_list>

#include "base/os/file_descriptor.hpp"
#include "base/text/text.hpp"
#include "step/cause/exception.hpp"

namespace amldist::step {
namespace {

using text::concat;

constexpr int for_reading = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;

constexpr std::int64_t ms_in_second = 1000;

std::int64_t seconds_of(clockid_t clock) {
  timespec now = {};
  ::clock_gettime(clock, &now);
  return now.tv_sec;
}

MonotonicSeconds time_of(const ErrorPlaces& places) {
  const std::int64_t now = seconds_of(CLOCK_MONOTONIC);
  const std::int64_t first = now - static_cast<std::int64_t>(places.elapsed_ms) / ms_in_second - 1;
  return {static_cast<std::uint64_t>(std::max<std::int64_t>(first, 0)), static_cast<std::uint64_t>(now) + 1};
}

/// The beginning of a regular file that belongs to the user; empty if it does not exist or is older than `since`
/// (seconds since 1970; 0: of any age).
std::string read_file(int folder, const std::string& path, uid_t user, std::int64_t since = 0) {
  const FileDescriptor file(::openat(folder, path.c_str(), for_reading));
  struct stat status = {};
  if (!file || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) return {};
  if (status.st_uid != user || (since != 0 && status.st_mtim.tv_sec < since)) return {};
  std::string content(longest_error_file, '\0');
  std::size_t size = 0;
  while (size < content.size()) {
    const ssize_t got = ::read(file.get(), content.data() + size, content.size() - size);
    if (got <= 0) break;
    size += static_cast<std::size_t>(got);
  }
  content.resize(size);
  return content;
}

/// In one of the user's folders of steps. An exception in a thread counts where the program has none.
std::optional<Cause> read_own(const std::string& root, const ErrorPlaces& places) {
  const FileDescriptor all(::open(root.c_str(), for_reading | O_DIRECTORY));
  const FileDescriptor step(all ? ::openat(all.get(), places.step.c_str(), for_reading | O_DIRECTORY) : -1);
  if (!step) return std::nullopt;
  std::optional<Cause> found;
  for (const std::string_view ending : {"", ".thread"}) {
    const std::string name = concat({error_file_name(places.rank), ending});
    if (!found) found = parse_exception(read_file(step.get(), name, places.user), time_of(places));
    static_cast<void>(::unlinkat(step.get(), name.c_str(), 0));
  }
  static_cast<void>(::unlinkat(all.get(), places.step.c_str(), AT_REMOVEDIR));  // if it is empty now
  return found;
}

std::optional<Cause> read_exception(const ErrorPlaces& places) {
  for (const std::string& root : places.roots)
    if (auto found = read_own(root, places)) return found;
  if (!places.elastic_file.starts_with('/')) return std::nullopt;
  const std::int64_t begin =
      seconds_of(CLOCK_REALTIME) - static_cast<std::int64_t>(places.elapsed_ms) / ms_in_second - 1;
  return parse_exception(read_file(AT_FDCWD, places.elastic_file, places.user, begin));
}

struct Space {
  std::uint64_t size = 0;
  bool is_full = false;
};

std::optional<Space> space_of(const std::string& path) {
  struct statvfs status = {};
  if (path.empty() || ::statvfs(path.c_str(), &status) != 0 || status.f_blocks == 0) return std::nullopt;
  constexpr std::uint64_t hundred = 100;
  const std::uint64_t part = status.f_blocks / hundred;
  return Space{static_cast<std::uint64_t>(status.f_blocks) * status.f_frsize, status.f_bavail < (part < 1 ? 1 : part)};
}

/// Memory that is shared through /dev/shm is given back when its last process ends: after SIGBUS it may not be full any
/// more.
std::optional<Cause> find_full_space(const ErrorPlaces& places) {
  const auto shared = space_of("/dev/shm");
  if (shared && places.had_bus_error) {
    const std::string size = describe_bytes(shared->size);
    if (shared->is_full) return Cause{Cause::Kind::space, concat({"/dev/shm is full (", size, ")"})};
    return Cause{Cause::Kind::fact, concat({"SIGBUS is often a full /dev/shm, which has ", size, " on this node"})};
  }
  for (const std::string& path : {places.folder, std::string("/tmp"), std::string("/dev/shm")}) {
    const auto space = space_of(path);
    if (!space || !space->is_full) continue;
    return Cause{Cause::Kind::fact,
                 clean_cause(concat({"the file system of ", path, " is full (", describe_bytes(space->size), ")"}))};
  }
  return std::nullopt;
}

std::string line_of(const std::optional<Cause>& cause) {
  return cause ? concat({to_string(cause->kind), ";", cause->text, "\n"}) : std::string("none;\n");
}

std::optional<Cause> parse_line(std::string_view line, std::initializer_list<Cause::Kind> allowed) {
  const auto end = line.find(';');
  const auto kind = parse_cause_kind(line.substr(0, end));
  if (!kind || end == std::string_view::npos || std::ranges::find(allowed, *kind) == allowed.end()) return std::nullopt;
  const std::string_view text = line.substr(end + 1);
  return text.empty() || !is_cause_text(text) ? std::nullopt : std::optional(Cause{*kind, std::string(text)});
}

}  // namespace

std::string UserFindings::to_string() const { return line_of(exception) + line_of(space); }

UserFindings UserFindings::parse(std::string_view text) {
  const auto lines = text::split(text, '\n');
  if (lines.size() != 3) return {};
  return {parse_line(lines[0], {Cause::Kind::exception, Cause::Kind::peer}),
          parse_line(lines[1], {Cause::Kind::space, Cause::Kind::fact})};
}

UserFindings find_as_user(const ErrorPlaces& places) { return {read_exception(places), find_full_space(places)}; }

}  // namespace amldist::step
