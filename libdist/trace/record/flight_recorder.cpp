#include "trace/record/flight_recorder.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <utility>

#include "base/text/text.hpp"
#include "trace/record/record_format.hpp"
#include "trace/record/this_boot.hpp"

namespace amldist::trace {
namespace {

using namespace recorder_format;
using text::concat;

Error failed_to(std::string_view what, const std::string& path) {
  const int problem = errno;
  return {problem == ENOSPC ? Errc::limit : Errc::unavailable,
          concat({"the flight recorder cannot ", what, " ", text::quote(path), ": ", std::strerror(problem)})};
}

template <std::size_t N>
void put(std::array<char, N>& field, std::string_view words) noexcept {
  const std::size_t length = std::min(words.size(), N - 1);
  std::copy_n(words.data(), length, field.data());
  field[length] = '\0';
}

/// Ticks and a clock's nanoseconds at one instant: the tightest of a few readings.
ClockPoint clock_point(const TickClock& clock, std::uint64_t (*nanoseconds)() noexcept) noexcept {
  constexpr int readings = 3;
  ClockPoint best = {};
  std::uint64_t narrowest = ~std::uint64_t{0};
  for (int i = 0; i < readings; ++i) {
    const std::uint64_t before = clock.now();
    const std::uint64_t moment = nanoseconds();
    const std::uint64_t width = clock.now() - before;
    if (width >= narrowest) continue;
    narrowest = width;
    best = {before + width / 2, moment};
  }
  return best;
}

struct flock whole_file(int type) noexcept {
  struct flock lock = {};
  lock.l_type = static_cast<short>(type);
  lock.l_whence = SEEK_SET;
  return lock;
}

/// Whether another process holds the writer's lock on this file.
bool writer_lives(const std::string& path) noexcept {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct flock lock = whole_file(F_RDLCK);
  return file && ::fcntl(file.get(), F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

Result<FileDescriptor> create_file(const std::string& path, std::size_t bytes) {
  if (writer_lives(path)) {
    return Error{Errc::unavailable, concat({"another process of this rank records into ", text::quote(path)})};
  }
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return failed_to("replace", path);
  FileDescriptor file(::open(path.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file) return failed_to("create", path);
  struct flock lock = whole_file(F_WRLCK);
  static_cast<void>(
      ::fcntl(file.get(), F_SETLK, &lock));  // where locks are missing (some NFS), readers only learn less
  errno = ::posix_fallocate(file.get(), 0, static_cast<off_t>(bytes));
  if (errno == 0) return file;
  const Error error = failed_to("reserve room for", path);
  ::unlink(path.c_str());
  return error;
}

std::size_t file_bytes(std::uint32_t capacity, bool has_sites) noexcept {
  return sites_offset_of(capacity) + (has_sites ? std::size_t{capacity} * sizeof(std::uint64_t) : 0);
}

void describe(RecorderHeader& header, const RecorderOwner& owner, std::uint32_t capacity) noexcept {
  header.version = version;
  header.members_offset = members_offset;
  put(header.source, owner.source);
  header.header_bytes = communicators_offset;
  header.entries_offset = entries_offset;
  header.entry_bytes = sizeof(RecordedEntry);
  header.capacity = capacity;
  header.sites_offset = owner.has_sites ? sites_offset_of(capacity) : 0;
  header.rank = owner.rank;
  header.size = owner.size;
  header.local_rank = owner.local_rank;
  header.pid = ::getpid();
  put(header.job, owner.job);
  put(header.host, owner.host);
}

}  // namespace

Result<FlightRecorder> FlightRecorder::create(const std::string& folder, const RecorderOwner& owner,
                                              std::uint32_t capacity) {
  capacity = std::bit_ceil(std::clamp(capacity, smallest_ring, largest_ring));
  const std::size_t bytes = file_bytes(capacity, owner.has_sites);
  FlightRecorder made;
  const std::uint64_t monotonic = TickClock::monotonic_ns();
  const ClockPoint start = clock_point(made.clock_, TickClock::realtime_ns);
  const std::string source = owner.source == "amldist" ? "" : "." + owner.source;
  std::string path = concat({folder, "/", std::to_string(owner.rank), source, ".trace"});
  auto file = create_file(path, bytes);
  if (!file) return file.error();
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file->get(), 0);
  if (memory == MAP_FAILED) {
    const Error error = failed_to("map", path);
    ::unlink(path.c_str());
    return error;
  }
  auto* const base = static_cast<std::byte*>(memory);
  made.header_ = new (base) RecorderHeader{};
  made.communicators_ = new (base + communicators_offset) CommunicatorSlot[communicator_slots]{};
  made.pool_ = new (base + members_offset) std::uint32_t[member_pool]{};
  made.entries_ = new (base + entries_offset) RecordedEntry[capacity]{};
  if (owner.has_sites) made.sites_ = new (base + sites_offset_of(capacity)) std::atomic<std::uint64_t>[capacity] {};
  made.mask_ = capacity - 1;
  made.bytes_ = bytes;
  made.file_ = std::move(*file);
  made.pid_ = ::getpid();
  made.path_ = std::move(path);
  describe(*made.header_, owner, capacity);
  made.header_->created = start;
  made.header_->created_monotonic_ns = monotonic;
  made.header_->boot = this_boot();
  made.tick();
  std::atomic_ref(made.header_->magic).store(magic, std::memory_order_release);
  return made;
}

FlightRecorder::FlightRecorder(FlightRecorder&& other) noexcept { *this = std::move(other); }

FlightRecorder& FlightRecorder::operator=(FlightRecorder&& other) noexcept {
  std::swap(header_, other.header_);
  std::swap(communicators_, other.communicators_);
  std::swap(pool_, other.pool_);
  std::swap(pool_used_, other.pool_used_);
  std::swap(rooms_, other.rooms_);
  std::swap(entries_, other.entries_);
  std::swap(sites_, other.sites_);
  std::swap(mask_, other.mask_);
  std::swap(bytes_, other.bytes_);
  std::swap(clock_, other.clock_);
  std::swap(burst_, other.burst_);
  std::swap(inexact_, other.inexact_);
  std::swap(file_, other.file_);
  std::swap(pid_, other.pid_);
  std::swap(path_, other.path_);
  return *this;
}

FlightRecorder::~FlightRecorder() { unmap(); }

void FlightRecorder::unmap() noexcept {
  if (header_ == nullptr) return;
  ::munmap(header_, bytes_);
  header_ = nullptr;
  file_ = FileDescriptor();
}

/// Finds room in the pool for the members of the communicator in a slot: what the slot had before, what is left, or
/// what a closed communicator had.
bool FlightRecorder::take_room(std::uint32_t slot, std::uint32_t ranks) noexcept {
  PoolRoom& own = rooms_.at(slot);
  if (own.ranks >= ranks) return true;
  if (ranks <= member_pool - pool_used_) {
    own = {pool_used_, ranks};
    pool_used_ += ranks;
    return true;
  }
  for (std::uint32_t other = 0; other < communicator_slots; ++other) {
    if (communicators_[other].closed.load() != 1 || rooms_.at(other).ranks < ranks) continue;
    communicators_[other].members = Members::unknown;
    std::swap(own, rooms_.at(other));
    return true;
  }
  return false;
}

/// As a regular row if they form one, as groups of a grid do; else in the pool, while it has room.
void FlightRecorder::put_members(CommunicatorSlot& slot, std::span<const std::uint32_t> ranks) noexcept {
  slot.members = Members::unknown;
  if (ranks.empty()) return;
  slot.first = ranks[0];
  slot.stride = ranks.size() > 1 ? static_cast<std::int32_t>(ranks[1] - ranks[0]) : 1;
  const auto row_at = [&](std::size_t i) {
    return slot.first + static_cast<std::uint32_t>(i) * static_cast<std::uint32_t>(slot.stride);
  };
  std::size_t matching = 0;
  while (matching < ranks.size() && ranks[matching] == row_at(matching)) ++matching;
  if (matching == ranks.size()) {
    slot.members = Members::row;
  } else if (const auto number = static_cast<std::uint32_t>(&slot - communicators_);
             take_room(number, static_cast<std::uint32_t>(ranks.size()))) {
    slot.first = rooms_.at(number).first;
    std::ranges::copy(ranks, pool_ + slot.first);
    slot.members = Members::pool;
  }
}

std::uint32_t FlightRecorder::add_communicator(const RecordedCommunicator& communicator) noexcept {
  if (!on()) return 0;
  const auto first = communicators_;
  const auto end = first + communicator_slots;
  auto slot = std::find_if(first, end, [](const CommunicatorSlot& s) { return s.size.load() == 0; });
  if (slot == end) slot = std::find_if(first, end, [](const CommunicatorSlot& s) { return s.closed.load() == 1; });
  if (slot == end) return no_slot;
  slot->size = 0;
  slot->id = communicator.id;
  slot->rank = communicator.rank;
  slot->entered = 0;
  slot->completed = 0;
  slot->closed = 0;
  slot->parent = communicator.parent;
  slot->since = static_cast<std::uint32_t>(header_->recorded.load(std::memory_order_relaxed));
  put_members(*slot, communicator.world_ranks);
  put(slot->name, communicator.name);
  slot->size.store(communicator.size, std::memory_order_release);
  return static_cast<std::uint32_t>(slot - first);
}

void FlightRecorder::rename_communicator(std::uint32_t slot, std::string_view name) noexcept {
  if (on() && slot < communicator_slots && !name.empty()) put(communicators_[slot].name, name);
}

void FlightRecorder::close_communicator(std::uint32_t slot) noexcept {
  if (on() && slot < communicator_slots) communicators_[slot].closed = 1;
}

FlightRecorder::Ticket FlightRecorder::enqueue(const RecordedCall& call) noexcept {
  return write(call, State::enqueued, now());
}

// Both begin() and complete() are on the path of every short call; kept as one function each, they take 2 to 6 ns less.
[[gnu::flatten]] FlightRecorder::Ticket FlightRecorder::begin(const RecordedCall& call) noexcept {
  const Ticket ticket = write(call, State::started, now());
  if (burst_) inexact_ = burst_->is_exact() ? 0 : ticket;
  return ticket;
}

bool FlightRecorder::start(Ticket ticket) noexcept {
  RecordedEntry* const entry = entry_of(ticket);
  if (entry == nullptr) return false;
  // Later than `enqueued` even if the clock has not advanced, so that a reader can tell that the call was posted first.
  const std::uint64_t moment = std::max(now(), std::atomic_ref(entry->enqueued).load(std::memory_order_relaxed) + 1);
  entry->started.store(moment, std::memory_order_relaxed);
  entry->state.store(static_cast<std::uint8_t>(State::started), std::memory_order_release);
  return true;
}

FlightRecorder::Ticket FlightRecorder::start_again(const RecordedCall& call) noexcept {
  return put_entry(call, State::started, now());
}

bool FlightRecorder::poll(Ticket ticket, std::uint64_t since) noexcept {
  RecordedEntry* const entry = entry_of(ticket);
  if (entry == nullptr) return false;
  constexpr auto relaxed = std::memory_order_relaxed;
  if (entry->state.load(relaxed) != static_cast<std::uint8_t>(State::enqueued)) return true;
  if (entry->started.load(relaxed) != 0) return true;
  entry->started.store(std::max(since, std::atomic_ref(entry->enqueued).load(relaxed) + 1), relaxed);
  return true;
}

FlightRecorder::Ticket FlightRecorder::enqueue_again(const RecordedCall& call) noexcept {
  return put_entry(call, State::enqueued, now());
}

std::uint64_t FlightRecorder::recorded() const noexcept {
  return header_ != nullptr ? header_->recorded.load(std::memory_order_relaxed) : 0;
}

void FlightRecorder::suspend(Ticket ticket) noexcept {
  RecordedEntry* const entry = entry_of(ticket);
  if (entry == nullptr || entry->state.load(std::memory_order_relaxed) > static_cast<std::uint8_t>(State::started))
    return;
  entry->state.store(static_cast<std::uint8_t>(State::enqueued), std::memory_order_release);
  entry->started.store(0, std::memory_order_relaxed);
}

/// A call of a burst that ends after the kernel's next tick may have begun just before that tick or long before. It
/// counts as a call that took no time, because most do. A call that has seen two ticks has waited.
std::uint64_t FlightRecorder::end_of(RecordedEntry& entry, Ticket ticket) noexcept {
  if (!burst_ || ticket != inexact_) return now();
  const BurstClock::End end = burst_->end_of_inexact();
  if (end.in_next_tick) {
    std::atomic_ref(entry.enqueued).store(end.ticks, std::memory_order_relaxed);
    entry.started.store(end.ticks, std::memory_order_relaxed);
  }
  return end.ticks;
}

[[gnu::flatten]] void FlightRecorder::complete(Ticket ticket) noexcept {
  RecordedEntry* const entry = entry_of(ticket);
  if (entry != nullptr) complete(*entry, end_of(*entry, ticket));
}

void FlightRecorder::fail(Ticket ticket, int status) noexcept {
  RecordedEntry* const entry = entry_of(ticket);
  if (entry == nullptr) return;
  entry->ended.store(end_of(*entry, ticket), std::memory_order_relaxed);
  std::atomic_ref(entry->status).store(static_cast<std::int16_t>(status), std::memory_order_relaxed);
  entry->state.store(static_cast<std::uint8_t>(State::failed), std::memory_order_release);
}

[[gnu::noinline]] void FlightRecorder::tick() noexcept {
  // Two at once would leave the ticks of one with the time of the other. A signal handler may be the second: no lock.
  if (!on() || ticks_.test_and_set(std::memory_order_acquire)) return;
  const ClockPoint now = clock_point(clock_, TickClock::monotonic_ns);
  const std::uint64_t age = now.realtime_ns - header_->created_monotonic_ns;
  header_->latest_realtime_ns.store(
      0, std::memory_order_release);  // a reader that comes in between uses only the first point
  header_->latest_ticks.store(now.ticks, std::memory_order_release);
  header_->latest_realtime_ns.store(header_->created.realtime_ns + age, std::memory_order_release);
  ticks_.clear(std::memory_order_release);
}

/// Whether a call has succeeded that began after the note was written.
bool FlightRecorder::has_gone_on() const noexcept {
  const std::uint64_t noted = header_->noted.load();
  const std::span entries(entries_, std::size_t{mask_} + 1);
  return std::ranges::any_of(entries, [noted](const RecordedEntry& entry) {
    return entry.ticket.load() > noted && entry.state.load() == static_cast<std::uint8_t>(State::completed);
  });
}

void FlightRecorder::note(std::string_view sentence, const std::optional<recorder_format::WrongCall>& wrong) noexcept {
  if (!on()) return;
  const bool has_failed_before = header_->note_length.load() != 0 && !has_gone_on();
  if (has_failed_before && header_->wrong_call.load() != 0) return;
  header_->note_length.store(0);
  put(header_->note, sentence);
  header_->noted.store(recorded());
  const std::uint32_t name = wrong && wrong->rank ? 1 + *wrong->rank : recorder_format::wrong_of_several;
  header_->wrong_call.store(wrong && !has_failed_before ? name : 0);
  header_->note_length.store(static_cast<std::uint32_t>(std::min(sentence.size(), header_->note.size() - 1)),
                             std::memory_order_release);
}

void FlightRecorder::announce(Ending ending) noexcept {
  if (!on() || pid_ != ::getpid()) return;
  tick();
  header_->ending.store(static_cast<std::uint32_t>(ending), std::memory_order_release);
}

namespace {

void remove_file(const std::string& path) noexcept {
  ::unlink(path.c_str());
  ::rmdir(path.substr(0, path.rfind('/')).c_str());  // fails while other files are in it
}

struct KeptFile {
  std::string path;
  pid_t process;
};

/// A child of the process calls it, too, with a copy of its own.
void remove_after_good_end(int status, void* kept) noexcept {
  const std::unique_ptr<const KeptFile> file(static_cast<const KeptFile*>(kept));
  if (status == 0 && file->process == ::getpid()) remove_file(file->path);
}

}  // namespace

void FlightRecorder::close(Ending ending) noexcept {
  if (!on()) return;
  const bool ours = pid_ == ::getpid();
  if (ours) announce(ending);
  if (ours && ending == Ending::well) remove_file(path_);
  unmap();
}

void FlightRecorder::close_and_keep_after_failure() noexcept {
  if (!on()) return;
  const bool ours = pid_ == ::getpid();
  auto* const kept = ours ? new (std::nothrow) KeptFile{path_, pid_} : nullptr;  // the process's last moments need it
  if (kept != nullptr) static_cast<void>(::on_exit(remove_after_good_end, kept));
  close(Ending::failed);
}

}  // namespace amldist::trace
