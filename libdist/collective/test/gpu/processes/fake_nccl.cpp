// An NCCL without GPUs whose ranks are processes: they meet in a file of shared memory. What is enqueued runs on the
// stream's thread and waits there for the other ranks, as a kernel would, until it is aborted; no call waits.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "fake_stream.hpp"

namespace {

enum Result : int { success = 0, system_error = 2, invalid_usage = 5, in_progress = 7 };
enum Type : int { int8, uint8, int32, uint32, int64, uint64, float16, float32, float64, bfloat16 };
enum Op : int { sum, prod, max, min, avg };

constexpr int most_ranks = 8;
constexpr std::size_t room = 16UL << 20;   // bytes of one rank's part of a collective
constexpr std::size_t letter = 1UL << 20;  // bytes of one message

struct UniqueId {
  char bytes[128];
};

/// From one rank to another: full while `sent` is ahead of `taken`.
struct Mailbox {
  std::atomic<std::uint64_t> sent;
  std::atomic<std::uint64_t> taken;
  char bytes[letter];
};

struct Meeting {
  std::atomic<int> arrived;
  std::atomic<std::uint64_t> given[most_ranks];  ///< collectives for which this rank's part is there
  std::atomic<std::uint64_t> read[most_ranks];   ///< and which it has read the others' parts of
  std::atomic<std::uint64_t> call[most_ranks];   ///< which collective of how many bytes
  char part[most_ranks][room];
  Mailbox mail[most_ranks][most_ranks];
};

std::size_t size_of(int type) {
  constexpr std::size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return sizes[type];
}

}  // namespace

struct ncclComm {
  Meeting* meeting = nullptr;
  int rank = 0;
  int size = 0;
  std::atomic<bool> aborted = false;
  std::uint64_t collectives = 0;  ///< enqueued; the streams' work counts with it
};

namespace {

using Comm = std::shared_ptr<ncclComm>;

/// What a kernel of this communicator does; everything in it may be cut short by an abort.
class Kernel {
 public:
  explicit Kernel(const Comm& comm) : comm_(*comm), meeting_(*comm->meeting) {}

  /// This rank's part for all, theirs for `use`. If another rank is in another collective, no end.
  template <typename Use>
  void exchange(std::uint64_t number, std::uint64_t call, const void* send, std::size_t bytes, Use use) {
    const auto own = static_cast<std::size_t>(comm_.rank);
    for (int r = 0; r < comm_.size; ++r) wait([&] { return meeting_.read[r] >= number - 1; });
    if (comm_.aborted) return;
    if (bytes != 0) std::memcpy(meeting_.part[own], send, std::min(bytes, room));
    meeting_.call[own] = call;
    meeting_.given[own] = number;
    for (int r = 0; r < comm_.size; ++r) wait([&] { return meeting_.given[r] >= number && meeting_.call[r] == call; });
    if (comm_.aborted) return;
    use();
    meeting_.read[own] = number;
  }
  [[nodiscard]] const char* part(int rank) const { return meeting_.part[rank]; }
  [[nodiscard]] int size() const { return comm_.size; }
  [[nodiscard]] int rank() const { return comm_.rank; }
  [[nodiscard]] bool is_aborted() const { return comm_.aborted; }
  [[nodiscard]] Mailbox& mail(int from, int to) { return meeting_.mail[from][to]; }

 private:
  template <typename Condition>
  void wait(Condition condition) const {
    while (!condition() && !comm_.aborted) std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  ncclComm& comm_;
  Meeting& meeting_;
};

// ---- arithmetic ----
template <typename T>
void combine(const Kernel& kernel, std::size_t first, std::size_t count, int op, void* recv) {
  std::vector<T> out(count);
  for (std::size_t i = 0; i < count; ++i) {
    T value = reinterpret_cast<const T*>(kernel.part(0))[first + i];
    for (int r = 1; r < kernel.size(); ++r) {
      const T other = reinterpret_cast<const T*>(kernel.part(r))[first + i];
      if (op == prod) value = static_cast<T>(value * other);
      else if (op == max) value = std::max(value, other);
      else if (op == min) value = std::min(value, other);
      else value = static_cast<T>(value + other);
    }
    using Wide = std::common_type_t<T, int>;  // a cast of the number of ranks to T would be cut
    if (op == avg) value = static_cast<T>(static_cast<Wide>(value) / static_cast<Wide>(kernel.size()));
    out[i] = value;
  }
  if (count != 0) std::memcpy(recv, out.data(), count * sizeof(T));
}

void combine(const Kernel& kernel, int type, std::size_t first, std::size_t count, int op, void* recv) {
  if (type == float32) combine<float>(kernel, first, count, op, recv);
  else if (type == float64) combine<double>(kernel, first, count, op, recv);
  else if (type == int32) combine<std::int32_t>(kernel, first, count, op, recv);
  else if (type == int64) combine<std::int64_t>(kernel, first, count, op, recv);
  else if (type == uint8) combine<std::uint8_t>(kernel, first, count, op, recv);
  else std::abort();  // no test combines another type
}

// ---- groups ----
struct Message {
  bool sends;
  char* data;  ///< only read by a send
  std::size_t bytes;
  int peer;
};

/// All messages of a group at once, each direction between two ranks in its order.
void run_messages(Kernel& kernel, std::vector<Message> messages) {
  while (!messages.empty() && !kernel.is_aborted()) {
    std::vector<std::pair<bool, int>> held_up;  // a later message may not overtake
    std::erase_if(messages, [&](const Message& message) {
      const std::pair<bool, int> way = {message.sends, message.peer};
      if (std::ranges::find(held_up, way) != held_up.end()) return false;
      Mailbox& box =
          message.sends ? kernel.mail(kernel.rank(), message.peer) : kernel.mail(message.peer, kernel.rank());
      if ((message.sends && box.sent != box.taken) || (!message.sends && box.sent == box.taken)) {
        held_up.push_back(way);
        return false;
      }
      if (message.bytes > letter) std::abort();  // no test sends more
      if (message.sends && message.bytes != 0) std::memcpy(box.bytes, message.data, message.bytes);
      if (!message.sends && message.bytes != 0) std::memcpy(message.data, box.bytes, message.bytes);
      ++(message.sends ? box.sent : box.taken);
      return true;
    });
    if (!messages.empty()) std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

/// What was enqueued between ncclGroupStart and ncclGroupEnd, by this thread.
struct Group {
  int depth = 0;
  Comm comm;
  void* stream = nullptr;
  std::vector<Message> messages;
};
Group& group() {
  thread_local Group own;
  return own;
}

/// Communicators that are alive: a handle's owner, whom work on a stream shares.
std::vector<Comm>& comms() {
  static auto* const all = new std::vector<Comm>;
  return *all;
}
Comm owner_of(ncclComm* comm) {
  const auto found = std::ranges::find_if(comms(), [comm](const Comm& one) { return one.get() == comm; });
  return found != comms().end() ? *found : nullptr;
}
void forget(ncclComm* comm) {
  std::erase_if(comms(), [comm](const Comm& one) { return one.get() == comm; });
}

void enqueue_messages(Group& own) {
  amldist::testing::enqueue_on_stream(own.stream, [comm = own.comm, messages = std::exchange(own.messages, {})] {
    Kernel kernel(comm);
    run_messages(kernel, messages);
  });
}

int add_message(ncclComm* comm, void* stream, Message message) {
  Group& own = group();
  own.comm = owner_of(comm);
  own.stream = stream;
  if (own.comm == nullptr) return invalid_usage;
  own.messages.push_back(message);
  if (own.depth == 0) enqueue_messages(own);
  return success;
}

enum class Kind : std::uint64_t { all_reduce = 1, reduce, reduce_scatter, broadcast, all_gather };

/// `use(kernel)` makes the result of what all ranks gave. `count` and `kind` must be the same on all of them.
template <typename Use>
int collective(Kind kind, std::size_t count, ncclComm* comm, void* stream, const void* send, std::size_t bytes,
               Use use) {
  const Comm owner = owner_of(comm);
  if (owner == nullptr || bytes > room) return invalid_usage;
  const std::uint64_t number = ++owner->collectives;
  const std::uint64_t call = static_cast<std::uint64_t>(kind) << 56 | count;
  amldist::testing::enqueue_on_stream(stream, [owner, number, call, send, bytes, use] {
    Kernel kernel(owner);
    kernel.exchange(number, call, send, bytes, [&] { use(kernel); });
  });
  return success;
}

Meeting* map_meeting(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0 || ::ftruncate(file, sizeof(Meeting)) != 0) return nullptr;
  void* const memory = ::mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  return memory != MAP_FAILED ? static_cast<Meeting*>(memory) : nullptr;
}

char* writable(const void* data) { return static_cast<char*>(const_cast<void*>(data)); }
std::size_t ranks_of(const ncclComm* comm) { return static_cast<std::size_t>(comm->size); }

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT int ncclGetVersion(int* version) {
  *version = 22809;
  return success;
}
EXPORT int ncclGetUniqueId(UniqueId* id) {
  *id = {};
  const std::string name =
      "/dev/shm/fake-nccl-" + std::to_string(::getpid()) + "-" + std::to_string(std::random_device{}());
  std::memcpy(id->bytes, name.data(), name.size());
  return success;
}
EXPORT const char* ncclGetErrorString(int result) { return result == success ? "no error" : "pretended trouble"; }
EXPORT const char* ncclGetLastError(ncclComm*) { return ""; }

EXPORT int ncclCommInitRankConfig(ncclComm** comm, int size, UniqueId id, int rank, const int*) {
  if (size > most_ranks) return invalid_usage;
  auto made = std::make_shared<ncclComm>();
  made->meeting = map_meeting(id.bytes);
  if (made->meeting == nullptr) return system_error;
  made->rank = rank;
  made->size = size;
  if (++made->meeting->arrived == size) ::unlink(id.bytes);
  *comm = made.get();
  comms().push_back(std::move(made));
  return in_progress;
}
EXPORT int ncclCommGetAsyncError(ncclComm* comm, int* error) {
  *error = comm->meeting->arrived >= comm->size ? success : in_progress;
  return success;
}
EXPORT int ncclCommFinalize(ncclComm*) { return success; }
EXPORT int ncclCommDestroy(ncclComm* comm) {
  forget(comm);
  return success;
}
EXPORT int ncclCommAbort(ncclComm* comm) {
  comm->aborted = true;
  forget(comm);
  return success;
}
EXPORT int ncclCommSplit(ncclComm*, int, int, ncclComm**, const int*) { return invalid_usage; }

EXPORT int ncclMemAlloc(void** memory, std::size_t bytes) {
  *memory = amldist::testing::allocate_on_device(bytes);
  return success;
}
EXPORT int ncclMemFree(void* memory) {
  amldist::testing::free_on_device(memory);
  return success;
}
EXPORT int ncclCommRegister(ncclComm*, void* memory, std::size_t, void** handle) {
  *handle = memory;
  return success;
}
EXPORT int ncclCommDeregister(ncclComm*, void*) { return success; }

EXPORT int ncclGroupStart() {
  ++group().depth;
  return success;
}
EXPORT int ncclGroupEnd() {
  Group& own = group();
  if (--own.depth == 0 && !own.messages.empty()) enqueue_messages(own);
  return success;
}

EXPORT int ncclAllReduce(const void* s, void* r, std::size_t n, int type, int op, ncclComm* comm, void* stream) {
  return collective(Kind::all_reduce, n, comm, stream, s, n * size_of(type),
                    [=](const Kernel& kernel) { combine(kernel, type, 0, n, op, r); });
}
EXPORT int ncclReduce(const void* s, void* r, std::size_t n, int type, int op, int root, ncclComm* comm, void* stream) {
  return collective(Kind::reduce, n, comm, stream, s, n * size_of(type), [=](const Kernel& kernel) {
    if (kernel.rank() == root) combine(kernel, type, 0, n, op, r);
  });
}
EXPORT int ncclReduceScatter(const void* s, void* r, std::size_t n, int type, int op, ncclComm* comm, void* stream) {
  return collective(
      Kind::reduce_scatter, n, comm, stream, s, n * ranks_of(comm) * size_of(type),
      [=](const Kernel& kernel) { combine(kernel, type, n * static_cast<std::size_t>(kernel.rank()), n, op, r); });
}
EXPORT int ncclBroadcast(const void* s, void* r, std::size_t n, int type, int root, ncclComm* comm, void* stream) {
  const std::size_t bytes = n * size_of(type);
  return collective(Kind::broadcast, n, comm, stream, s, comm->rank == root ? bytes : 0, [=](const Kernel& kernel) {
    if (bytes != 0) std::memcpy(r, kernel.part(root), bytes);
  });
}
EXPORT int ncclAllGather(const void* s, void* r, std::size_t n, int type, ncclComm* comm, void* stream) {
  const std::size_t bytes = n * size_of(type);
  return collective(Kind::all_gather, n, comm, stream, s, bytes, [=](const Kernel& kernel) {
    for (int from = 0; from < kernel.size() && bytes != 0; ++from)
      std::memcpy(static_cast<char*>(r) + static_cast<std::size_t>(from) * bytes, kernel.part(from), bytes);
  });
}
EXPORT int ncclSend(const void* s, std::size_t n, int type, int peer, ncclComm* comm, void* stream) {
  return add_message(comm, stream, {true, writable(s), n * size_of(type), peer});
}
EXPORT int ncclRecv(void* r, std::size_t n, int type, int peer, ncclComm* comm, void* stream) {
  return add_message(comm, stream, {false, static_cast<char*>(r), n * size_of(type), peer});
}
