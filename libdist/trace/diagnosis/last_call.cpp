#include "trace/diagnosis/last_call.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "base/os/file_descriptor.hpp"
#include "base/text/result.hpp"
#include "base/text/text.hpp"
#include "trace/diagnosis/given_up.hpp"
#include "trace/diagnosis/stalls.hpp"
#include "trace/record/record_folder.hpp"
#include "trace/record/record_reader.hpp"

namespace amldist::trace {
namespace {

using recorder_format::State;

constexpr std::size_t newest_calls = 256;
constexpr std::string_view broken = " broken by another rank";
constexpr std::string_view cut = ", where a message was too long";
constexpr std::string_view aborted = ", and called MPI_Abort";
constexpr std::string_view before_all = "before its first call";

bool belongs_to(int descriptor, unsigned user) noexcept {
  struct stat status = {};
  return ::fstat(descriptor, &status) == 0 && status.st_uid == user;
}

/// Opens a folder that the user owns; an empty descriptor for anything else.
FileDescriptor open_folder(int parent, const std::string& name, unsigned user) {
  FileDescriptor folder(::openat(parent, name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  return folder && belongs_to(folder.get(), user) ? std::move(folder) : FileDescriptor();
}

/// A folder that the user named may lie behind a link, and be shared. One in a place where anybody can make one may
/// not.
FileDescriptor open_root(const std::string& root, unsigned user) {
  const auto usual = trace_roots({}, user);
  if (std::ranges::find(usual, root) != usual.end()) return open_folder(AT_FDCWD, root, user);
  return FileDescriptor(::open(root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

std::int64_t last_begin_of(const Recording& recording) {
  if (recording.calls.empty()) return 0;
  const CallRecord& last = recording.calls.back();
  return std::max(last.enqueued_ns, last.started_ns);
}

/// The call that the rank was in when it ended, or with which it gave up; nullptr if it was in no call. A program on
/// MPI may have gone on after an error.
const CallRecord* open_call(const Recording& recording) {
  if (const CallRecord* const failed = given_up_in(recording)) return failed;
  const bool is_mpi = recording.source == "mpi";
  const auto blocks = [is_mpi](const CallRecord& call) {
    return call.state == State::started || (call.state == State::failed && !is_mpi);
  };
  auto open = std::ranges::find_if(recording.calls, blocks);
  if (open == recording.calls.end()) open = std::ranges::find_if(recording.calls, &CallRecord::pending);
  return open != recording.calls.end() ? &*open : nullptr;
}

std::string_view words_for_error(const CallRecord& call) {
  if (call.status == status_number(Errc::peer)) return broken;
  return call.status == recorder_format::too_long ? cut : std::string_view();
}

bool is_file_of(int folder, const std::string& name, unsigned user) {
  struct stat status = {};
  return ::fstatat(folder, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(status.st_mode) &&
         status.st_uid == user;
}

}  // namespace

std::optional<std::string> describe_last_call(const Recording& recording) {
  if (recording.calls.empty()) return std::string(before_all);
  const CallRecord* const open = open_call(recording);
  std::string text =
      (open != nullptr ? "in " : "after ") + describe_call(open != nullptr ? *open : recording.calls.back());
  if (open != nullptr && open->state == State::failed) text += words_for_error(*open);
  if (recording.ending == recorder_format::Ending::aborted) text += aborted;
  if (!is_last_call(text)) return std::nullopt;
  return text;
}

bool is_broken_by_another(std::string_view text) noexcept { return text.ends_with(broken); }

bool was_cut_short(std::string_view text) noexcept { return text.ends_with(cut); }

bool is_between_calls(std::string_view text) noexcept { return text.starts_with("after ") || text == before_all; }

bool has_aborted(std::string_view text) noexcept { return text.ends_with(aborted); }

bool is_last_call(std::string_view text) noexcept {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == ' ' || c == '#' ||
           c == '(' || c == ')' || c == ',' || c == '_';
  };
  return text.size() <= longest_last_call && (text.starts_with("in ") || is_between_calls(text)) &&
         std::ranges::all_of(text, fits);
}

std::vector<Recording> recordings_of(std::span<const std::string> roots, unsigned user, std::string_view step,
                                     std::uint32_t rank, std::string_view source) {
  std::vector<Recording> found;
  if (!is_trace_name(step)) return found;
  for (const std::string& root : roots) {
    const FileDescriptor own = open_root(root, user);
    const FileDescriptor folder = own ? open_folder(own.get(), std::string(step), user) : FileDescriptor();
    if (!folder) continue;
    for (const std::string_view suffix : {"", ".mpi", ".torch", ".nccl"}) {
      if (!source.empty() && !suffix.ends_with(text::concat({".", source}))) continue;
      const std::string file = text::concat({std::to_string(rank), suffix, ".trace"});
      if (!is_file_of(folder.get(), file, user)) continue;
      auto recording = read_recording(folder.get(), file, newest_calls);
      if (recording && recording->rank == rank) found.push_back(std::move(*recording));
    }
  }
  return found;
}

std::optional<std::string> last_call_of(std::span<const Recording> recordings) {
  const auto newest = std::ranges::max_element(recordings, {}, last_begin_of);
  return newest != recordings.end() ? describe_last_call(*newest) : std::nullopt;
}

}  // namespace amldist::trace
