#include "trace/record/record_reader.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "base/os/file_descriptor.hpp"
#include "base/os/whole_file.hpp"
#include "base/text/tasks_per_node.hpp"
#include "base/text/text.hpp"
#include "base/time/calendar_time.hpp"
#include "base/time/tick_clock.hpp"
#include "trace/record/this_boot.hpp"

namespace amldist::trace {
namespace {

using namespace recorder_format;
using text::concat;

constexpr std::uint64_t largest_file =
    sites_offset_of(largest_ring) + std::uint64_t{largest_ring} * sizeof(std::uint64_t);

Error unfit(const std::string& name, std::string_view why) {
  return {Errc::invalid_argument, concat({text::quote(name), " is not a flight recorder: ", why})};
}

Error unreadable(const std::string& name, int problem) {
  return {problem == ENOENT ? Errc::not_found : Errc::unavailable,
          concat({"cannot read ", text::quote(name), ": ", std::strerror(problem)})};
}

/// Reads `bytes` bytes, or what is left of the file; the rest of `memory` is unchanged. nullopt: a read error.
std::optional<std::size_t> read_at(int file, void* memory, std::size_t bytes, std::size_t offset) {
  auto* const out = static_cast<char*>(memory);
  std::size_t done = 0;
  while (done < bytes) {
    const ssize_t got = ::pread(file, out + done, bytes - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return std::nullopt;
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  return done;
}

/// Text of a field that may lack its NUL and contain anything. Only printable ASCII is kept.
template <std::size_t N>
std::string printable(const std::array<char, N>& field) {
  std::string words(field.data(), ::strnlen(field.data(), N));
  std::ranges::replace_if(
      words, [](char c) { return c < ' ' || c >= 0x7f; }, '?');
  return words;
}

/// Converts ticks to nanoseconds since 1970 with the header's two points. Forged points give wrong but bounded times.
class Calendar {
 public:
  explicit Calendar(const RecorderHeader& header) : origin_(header.created) {
    const std::uint64_t latest = header.latest_realtime_ns.load();
    const std::uint64_t ticks = header.latest_ticks.load();
    origin_.realtime_ns = std::min(origin_.realtime_ns, latest_moment);
    if (ticks <= origin_.ticks || latest <= origin_.realtime_ns) return;
    ns_per_tick_ = static_cast<double>(latest - origin_.realtime_ns) / static_cast<double>(ticks - origin_.ticks);
  }

  [[nodiscard]] std::int64_t time_of(std::uint64_t ticks) const {
    if (ticks == 0) return 0;
    const bool later = ticks >= origin_.ticks;
    const std::uint64_t distance = later ? ticks - origin_.ticks : origin_.ticks - ticks;
    const double ns = static_cast<double>(distance) * ns_per_tick_;
    const auto room = static_cast<double>(later ? latest_moment - origin_.realtime_ns : origin_.realtime_ns);
    const auto bounded = static_cast<std::uint64_t>(std::clamp(ns, 0.0, room));
    const std::uint64_t moment = later ? origin_.realtime_ns + bounded : origin_.realtime_ns - bounded;
    return static_cast<std::int64_t>(std::min(moment, latest_moment));
  }

 private:
  static constexpr std::uint64_t latest_moment = std::uint64_t{1} << 62;  // the year 2116
  ClockPoint origin_ = {};
  double ns_per_tick_ = 0;
};

std::optional<std::string_view> fault_of(const RecorderHeader& header, std::size_t bytes) {
  if (header.magic == 0) return "it is being created, or was never finished";
  if (header.magic != magic) return "it does not begin with the format's magic number";
  if (header.version != version) return "it has another version of the format";
  const bool known_layout = header.header_bytes == communicators_offset &&
                            header.entry_bytes == sizeof(RecordedEntry) && header.entries_offset == entries_offset &&
                            header.members_offset == members_offset;
  const bool known_ring =
      std::has_single_bit(header.capacity) && header.capacity >= smallest_ring && header.capacity <= largest_ring;
  if (!known_layout || !known_ring) return "its layout is not that of its version";
  if (bytes < entries_offset + std::size_t{header.capacity} * sizeof(RecordedEntry)) return "it is cut off";
  if (header.size == 0 || header.size > most_tasks || header.rank >= header.size)
    return "its rank is not below its size";
  return std::nullopt;
}

/// A stopped process has state T in /proc. The lock gives a pid that is valid in this process's own namespace.
Writer state_of_process(pid_t pid) {
  const std::string line = read_file_start("/proc/" + std::to_string(pid) + "/stat", 512);
  const auto end_of_name = line.rfind(')');
  const char state = end_of_name != std::string::npos && end_of_name + 2 < line.size() ? line[end_of_name + 2] : '?';
  return state == 'T' || state == 't' ? Writer::stopped : Writer::runs;
}

Writer writer_of(int file) {
  struct flock lock = {};
  lock.l_type = F_RDLCK;
  lock.l_whence = SEEK_SET;
  if (::fcntl(file, F_GETLK, &lock) != 0 || lock.l_type == F_UNLCK) return Writer::gone;
  return lock.l_pid > 0 ? state_of_process(lock.l_pid) : Writer::runs;
}

CallRecord call_of(const RecordedEntry& entry, std::uint64_t ticket, const Calendar& calendar) {
  CallRecord call;
  const auto state = entry.state.load();
  call.ticket = ticket;
  call.sequence = entry.sequence.load();
  call.bytes = entry.bytes;
  call.enqueued_ns = calendar.time_of(entry.enqueued);
  call.started_ns = calendar.time_of(entry.started.load());
  call.ended_ns = calendar.time_of(entry.ended.load());
  call.communicator = entry.communicator.load();
  call.peer = entry.peer;
  call.tag = entry.tag;
  call.status = entry.status;
  call.state = state <= static_cast<std::uint8_t>(State::failed) ? State{state} : State::empty;
  call.operation = calls::Operation{entry.operation};
  call.type = calls::DataType{entry.type};
  call.reduction = calls::ReduceOp{entry.reduction};
  return call;
}

/// One for each entry; empty where the file has none.
std::vector<std::uint64_t> read_sites(int file, const RecorderHeader& header) {
  if (header.sites_offset != sites_offset_of(header.capacity)) return {};
  std::vector<std::uint64_t> sites(header.capacity);
  const std::size_t bytes = sites.size() * sizeof sites[0];
  return read_at(file, sites.data(), bytes, header.sites_offset) == bytes ? sites : std::vector<std::uint64_t>();
}

/// An entry is consistent if its ticket is the same before and after its fields are copied, and belongs to its slot.
/// Hence three readings; the middle one is used.
std::vector<CallRecord> read_calls(int file, const RecorderHeader& header, std::size_t newest) {
  const std::size_t bytes = std::size_t{header.capacity} * sizeof(RecordedEntry);
  std::array<std::unique_ptr<RecordedEntry[]>, 3> readings;
  std::vector<std::uint64_t> sites;
  for (auto& reading : readings) {
    reading = std::make_unique<RecordedEntry[]>(header.capacity);
    // The sites are read before the last reading of the tickets, so that they belong to them.
    if (&reading == &readings.back()) sites = read_sites(file, header);
    if (read_at(file, reading.get(), bytes, entries_offset) != bytes) return {};
  }
  const auto& [before, middle, after] = readings;
  const Calendar calendar(header);
  std::vector<CallRecord> calls;
  for (std::size_t slot = 0; slot < header.capacity; ++slot) {
    const std::uint64_t ticket = before[slot].ticket.load();
    const bool torn = ticket == 0 || ticket != after[slot].ticket.load() || (ticket - 1) % header.capacity != slot;
    if (torn || middle[slot].state.load() == 0) continue;
    calls.push_back(call_of(middle[slot], ticket, calendar));
    if (!sites.empty()) calls.back().site = sites[slot];
  }
  std::ranges::sort(calls, {}, &CallRecord::ticket);
  if (calls.size() <= newest) return calls;
  return {calls.end() - static_cast<std::ptrdiff_t>(newest), calls.end()};  // without the room of the others
}

/// The members of a communicator as ranks of a world with `world` ranks; empty if the slot does not give them, or is
/// forged.
MemberRanks members_of(const CommunicatorSlot& slot, std::uint32_t size, std::uint32_t world,
                       std::span<const std::uint32_t> pool) {
  if (slot.members == Members::pool && slot.first <= pool.size() && size <= pool.size() - slot.first) {
    const auto part = pool.subspan(slot.first, size);
    const bool fits = std::ranges::all_of(part, [world](std::uint32_t rank) { return rank < world; });
    return fits ? MemberRanks::of(part) : MemberRanks();
  }
  const std::int64_t last = std::int64_t{slot.first} + (std::int64_t{size} - 1) * slot.stride;
  const bool is_row = slot.members == Members::row && slot.first < world && last >= 0 && last < std::int64_t{world};
  return is_row ? MemberRanks::row(slot.first, slot.stride, size) : MemberRanks();
}

/// Limit over all communicators of a file: a forged file must not cost more memory than this.
constexpr std::size_t most_members = 1U << 20;

std::vector<CommunicatorRecord> read_communicators(int file, std::uint32_t world) {
  const auto slots = std::make_unique<std::array<CommunicatorSlot, communicator_slots>>();
  std::vector<std::uint32_t> pool(member_pool);
  std::vector<CommunicatorRecord> communicators;
  std::size_t members = 0;
  const std::size_t pool_bytes = pool.size() * sizeof pool[0];
  if (read_at(file, pool.data(), pool_bytes, members_offset) != pool_bytes) return communicators;
  if (read_at(file, slots->data(), sizeof *slots, communicators_offset) != sizeof *slots) return communicators;
  for (std::uint32_t i = 0; i < communicator_slots; ++i) {
    const CommunicatorSlot& slot = (*slots)[i];
    const std::uint32_t size = slot.size.load();
    if (size == 0 || size > most_tasks || slot.rank >= size) continue;
    const bool affordable = size <= most_members - members;
    if (affordable) members += size;
    communicators.push_back({i, slot.id, slot.rank, size, slot.entered.load(),
                             std::min(slot.completed.load(), slot.entered.load()), slot.closed.load() != 0,
                             printable(slot.name), affordable ? members_of(slot, size, world, pool) : MemberRanks(),
                             slot.since});
  }
  return communicators;
}

/// Whether a call has succeeded that began after the note was written, when so many calls had begun.
bool has_gone_on(const Recording& recording, std::uint64_t noted) {
  return std::ranges::any_of(recording.calls, [noted](const CallRecord& call) {
    return call.ticket > noted && call.state == State::completed;
  });
}

/// A slot that was given to another communicator keeps the calls of the previous one.
void separate_reused_slots(Recording& recording) {
  if (recording.calls.empty()) return;
  const std::uint64_t newest = recording.calls.back().ticket;
  std::array<std::uint64_t, communicator_slots> age{};  // in calls
  for (const CommunicatorRecord& each : recording.communicators) {
    age.at(each.slot) = static_cast<std::uint32_t>(newest) - each.since;
  }
  for (CallRecord& call : recording.calls) {
    const bool has_slot = call.communicator < communicator_slots;
    if (has_slot && newest - call.ticket >= age.at(call.communicator)) call.communicator = no_slot;
  }
}

/// Calls for which the program still waits by polling.
void find_polled(Recording& recording, std::int64_t now_ns) {
  constexpr std::int64_t longest_pause_ns = 1'000'000'000;
  const bool still_polls = recording.latest_ns + longest_pause_ns >= now_ns;
  for (CallRecord& call : recording.calls) {
    if (call.state != State::enqueued || call.started_ns == 0) continue;
    if (still_polls) call.state = State::started;
    else call.started_ns = 0;
  }
}

/// Finds a thread that waits for a message, for example to be told to stop, while other threads make calls: its process
/// is not stuck.
void find_waits_in_background(Recording& recording) {
  constexpr std::int64_t least_ns = 1'000'000'000;  // threads that are about to wait also end calls for a moment
  std::int64_t last_end = 0;
  for (const CallRecord& call : recording.calls) last_end = std::max(last_end, call.ended_ns);
  for (CallRecord& call : recording.calls) {
    if (call.state == State::started && last_end > call.started_ns + least_ns) call.state = State::enqueued;
  }
}

Recording describe(const RecorderHeader& header, const std::string& name) {
  Recording recording;
  recording.path = name;
  recording.job = printable(header.job);
  recording.host = printable(header.host);
  recording.source = printable(header.source);
  if (header.note_length.load() != 0) {
    recording.note = printable(header.note);
    const std::uint32_t wrong = header.wrong_call.load();
    if (wrong == recorder_format::wrong_of_several) recording.wrong.emplace();
    else if (wrong != 0 && wrong <= header.size) recording.wrong = {wrong - 1};
  }
  recording.rank = header.rank;
  recording.size = header.size;
  recording.local_rank = std::min(header.local_rank, header.size - 1);
  recording.pid = header.pid;
  const std::uint32_t ending = header.ending.load();
  recording.ending = ending <= static_cast<std::uint32_t>(Ending::aborted) ? Ending{ending} : Ending::none;
  const Calendar calendar(header);
  recording.created_ns = calendar.time_of(header.created.ticks);
  const bool has_own_clock = header.boot == this_boot() && header.created_monotonic_ns <= TickClock::monotonic_ns();
  recording.created_monotonic_ns = has_own_clock ? static_cast<std::int64_t>(header.created_monotonic_ns) : 0;
  recording.latest_ns = std::max(recording.created_ns, calendar.time_of(header.latest_ticks.load()));
  recording.recorded = header.recorded.load();
  return recording;
}

}  // namespace

const CommunicatorRecord* Recording::communicator(std::uint32_t slot) const noexcept {
  if (slot < communicators.size() && communicators[slot].slot == slot) return &communicators[slot];
  const auto found = std::ranges::find(communicators, slot, &CommunicatorRecord::slot);
  return found != communicators.end() ? &*found : nullptr;
}

const CallRecord* Recording::unjudged_wait() const noexcept {
  const auto found = std::ranges::find_if(calls, [this](const CallRecord& call) {
    const auto* const on = communicator(call.communicator);
    return call.state == State::started && (on == nullptr || on->id == unjudged_id);
  });
  return found != calls.end() ? &*found : nullptr;
}

bool Recording::lacks_slots() const noexcept {
  const bool told = std::ranges::find(communicators, unjudged_id, &CommunicatorRecord::id) != communicators.end();
  return told || std::ranges::count(communicators, false, &CommunicatorRecord::closed) == communicator_slots;
}

std::int64_t Recording::present_ns() const noexcept {
  if (created_monotonic_ns == 0) return calendar_ns();
  return created_ns + (static_cast<std::int64_t>(TickClock::monotonic_ns()) - created_monotonic_ns);
}

std::int64_t Recording::age_ms() const noexcept { return (present_ns() - created_ns) / 1'000'000; }

Result<Recording> read_recording(int folder, const std::string& name, std::size_t newest) {
  // O_NONBLOCK: a FIFO with this name must not block the reader.
  const FileDescriptor file(::openat(folder, name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY));
  if (!file) return errno == ELOOP ? unfit(name, "it is a symbolic link") : unreadable(name, errno);
  struct stat status = {};
  if (::fstat(file.get(), &status) != 0) return unreadable(name, errno);
  if (!S_ISREG(status.st_mode)) return unfit(name, "it is not a file");
  RecorderHeader header{};
  const auto got = read_at(file.get(), &header, sizeof header, 0);
  if (!got) return unreadable(name, errno);
  if (*got < sizeof header) return unfit(name, "it is cut off");
  if (const auto fault = fault_of(header, static_cast<std::size_t>(status.st_size))) return unfit(name, *fault);
  Recording recording = describe(header, name);
  recording.writer = writer_of(file.get());
  if (newest == 0) return recording;
  recording.communicators = read_communicators(file.get(), header.size);
  recording.calls = read_calls(file.get(), header, newest);
  if (has_gone_on(recording, header.noted.load())) recording.wrong.reset();
  separate_reused_slots(recording);
  if (recording.source == "mpi") {
    find_polled(recording, recording.present_ns());
    find_waits_in_background(recording);
  }
  return recording;
}

namespace {

/// The recorders of a folder, each once however many names it has.
struct FoundFile {
  std::string name;
  std::uint64_t bytes;
};

/// What a folder may cost: a user makes as many files as it likes, and links and holes make them large for nothing.
constexpr std::size_t most_files = 1U << 16;
constexpr std::size_t most_names = 1U << 18;  ///< that are looked at; links are several names of one file
constexpr std::uint64_t most_bytes = std::uint64_t{4} << 30;
constexpr std::size_t most_calls = std::size_t{1} << 21;  ///< kept of all files together: 200 MB
constexpr std::size_t least_calls = 64;                   ///< kept of each file, whatever their number
constexpr std::size_t most_problems = 16;                 ///< told one by one

std::vector<FoundFile> find_files(DIR* open) {
  std::vector<FoundFile> files;
  std::set<std::pair<dev_t, ino_t>> seen;
  std::size_t names = 0;
  while (const dirent* const entry = names < most_names ? ::readdir(open) : nullptr) {
    std::string name = entry->d_name;
    if (!name.ends_with(".trace")) continue;
    ++names;
    struct stat status = {};
    const bool is_known = ::fstatat(::dirfd(open), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0;
    if (is_known && !seen.emplace(status.st_dev, status.st_ino).second) continue;
    const bool is_file = is_known && S_ISREG(status.st_mode);
    files.push_back({std::move(name), is_file ? static_cast<std::uint64_t>(status.st_size) : 0});
  }
  std::ranges::sort(files, {}, &FoundFile::name);
  return files;
}

}  // namespace

Result<StepRecordings> read_step_recordings(const std::string& folder, std::size_t newest) {
  struct Close {
    void operator()(DIR* open) const noexcept { ::closedir(open); }
  };
  const std::unique_ptr<DIR, Close> open(::opendir(folder.c_str()));
  if (open == nullptr) return unreadable(folder, errno);
  const auto files = find_files(open.get());
  if (files.empty())
    return Error{Errc::not_found, concat({text::quote(folder), " holds no flight recorder (no file *.trace)"})};
  StepRecordings step;
  newest = std::min(newest, std::max(least_calls, most_calls / files.size()));
  std::uint64_t bytes = 0;
  std::size_t read = 0;
  for (; read < std::min(files.size(), most_files); ++read) {
    // No file is longer than its ring allows, so what it says beyond is not read.
    bytes += std::min<std::uint64_t>(files[read].bytes, largest_file);
    if (bytes > most_bytes) break;
    auto recording = read_recording(::dirfd(open.get()), files[read].name, newest);
    if (recording) step.recordings.push_back(std::move(*recording));
    else if (recording.error().code != Errc::not_found) step.problems.push_back(recording.error().message);
  }
  std::ranges::sort(step.recordings, {}, [](const Recording& each) { return std::pair(each.rank, each.source); });
  std::ranges::sort(step.problems);
  if (const std::size_t all = step.problems.size(); all > most_problems) {
    step.problems.resize(most_problems);
    step.problems.push_back(concat({std::to_string(all - most_problems), " more files of ", text::quote(folder),
                                    " are not flight recorders either"}));
  }
  if (read < files.size())
    step.problems.push_back(
        concat({text::quote(folder), " has ", std::to_string(files.size()), " recorders, of which ",
                std::to_string(read), " were read: the limits are ", std::to_string(most_files), " files and 4 GiB"}));
  return step;
}

}  // namespace amldist::trace
