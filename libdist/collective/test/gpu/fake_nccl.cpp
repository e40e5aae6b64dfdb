// An NCCL without GPUs: the same symbols, ranks that are threads, memory that is the host's. Operations run when their
// last rank has enqueued them, as kernels would; nothing blocks. FAKE_NCCL_VERSION chooses the release, and with it the
// symbols.
#include "fake_nccl.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>

namespace {

using amldist::testing::FakeNccl;
using amldist::testing::FakeStream;

enum Result : int { success = 0, invalid_argument = 4, in_progress = 7 };

struct UniqueId {
  char bytes[128];
};

FakeNccl& control() {
  static FakeNccl instance;
  return instance;
}

std::size_t size_of(int type) {
  constexpr std::size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return sizes[type];
}

struct Operation {
  std::string kind;
  const void* send;
  void* recv;
  std::size_t count;
  int type;
  int op;
  int root;
  FakeStream* stream;
};

/// What the ranks of one communicator share.
struct World {
  explicit World(int size) : queues(static_cast<std::size_t>(size)) {}
  int arrived = 0;
  std::vector<std::deque<Operation>> queues;                   // collectives, by rank
  std::map<std::pair<int, int>, std::deque<Operation>> sends;  // by source and destination
  std::map<std::pair<int, int>, std::deque<Operation>> receives;
  std::map<std::pair<int, int>, std::shared_ptr<World>> children;  // by split number and colour
};

std::mutex& worlds_mutex() {
  static std::mutex mutex;
  return mutex;
}

std::map<std::string, std::shared_ptr<World>>& worlds() {
  static std::map<std::string, std::shared_ptr<World>> all;
  return all;
}

}  // namespace

struct ncclComm {
  std::shared_ptr<World> world;
  int rank;
  int size;
  int splits = 0;
  std::atomic<int> busy = 0;
};

namespace {

int note(const char* name) {
  const std::scoped_lock lock(control().mutex);
  ++control().calls[name];
  return control().call_result;
}

template <typename Number>
void combine(std::vector<Operation*>& ops, std::size_t first, std::size_t count, Number* out) {
  std::vector<Number> sum(count);
  for (const Operation* op : ops) {
    const auto* in = static_cast<const Number*>(op->send) + first;
    for (std::size_t i = 0; i < count; ++i) sum[i] = op == ops[0] ? in[i] : static_cast<Number>(sum[i] + in[i]);
  }
  std::copy(sum.begin(), sum.end(), out);
}

void combine(std::vector<Operation*>& ops, std::size_t first, std::size_t count, std::vector<char>& out) {
  out.resize(count * size_of(ops[0]->type));
  constexpr int int32 = 2, float32 = 7, uint8 = 1;
  if (ops[0]->type == float32) combine(ops, first, count, reinterpret_cast<float*>(out.data()));
  else if (ops[0]->type == int32) combine(ops, first, count, reinterpret_cast<std::int32_t*>(out.data()));
  else if (ops[0]->type == uint8) combine(ops, first, count, reinterpret_cast<std::uint8_t*>(out.data()));
  else std::abort();  // the tests reduce nothing else
}

char* at(void* base, std::size_t elements, int type) { return static_cast<char*>(base) + elements * size_of(type); }
const char* at(const void* base, std::size_t elements, int type) {
  return static_cast<const char*>(base) + elements * size_of(type);
}

void run_reduction(std::vector<Operation*>& ops) {
  const std::string& kind = ops[0]->kind;
  const std::size_t count = ops[0]->count;
  const std::size_t bytes = count * size_of(ops[0]->type);
  std::vector<char> result;
  combine(ops, 0, kind == "ReduceScatter" ? count * ops.size() : count, result);
  for (std::size_t rank = 0; rank < ops.size(); ++rank) {
    const bool gets = kind != "Reduce" || static_cast<int>(rank) == ops[rank]->root;
    const std::size_t from = kind == "ReduceScatter" ? rank * bytes : 0;
    if (gets) std::memcpy(ops[rank]->recv, result.data() + from, bytes);
  }
}

void run_movement(std::vector<Operation*>& ops) {
  const std::string& kind = ops[0]->kind;
  const std::size_t count = ops[0]->count;
  const int type = ops[0]->type;
  const std::size_t bytes = count * size_of(type);
  const auto root = static_cast<std::size_t>(ops[0]->root);
  for (std::size_t to = 0; to < ops.size(); ++to) {
    for (std::size_t from = 0; from < ops.size(); ++from) {
      if (kind == "Broadcast" && from == root) std::memmove(ops[to]->recv, ops[from]->send, bytes);
      if (kind == "AllGather" || (kind == "Gather" && to == root)) {
        std::memmove(at(ops[to]->recv, from * count, type), ops[from]->send, bytes);
      }
      if (kind == "Scatter" && from == root) std::memmove(ops[to]->recv, at(ops[from]->send, to * count, type), bytes);
      if (kind == "AlltoAll")
        std::memmove(at(ops[to]->recv, from * count, type), at(ops[from]->send, to * count, type), bytes);
    }
  }
}

/// Runs what all ranks have enqueued. Under the lock of all worlds.
void advance(World& world) {
  while (std::ranges::none_of(world.queues, [](const auto& queue) { return queue.empty(); })) {
    std::vector<Operation> taken;
    for (auto& queue : world.queues) {
      taken.push_back(queue.front());
      queue.pop_front();
    }
    std::vector<Operation*> ops;
    for (Operation& operation : taken) ops.push_back(&operation);
    if (ops[0]->kind.find("Reduce") != std::string::npos) run_reduction(ops);
    else run_movement(ops);
    for (const Operation* operation : ops) --operation->stream->pending;
  }
  for (auto& [pair, sends] : world.sends) {
    auto& receives = world.receives[pair];
    while (!sends.empty() && !receives.empty()) {
      std::memmove(receives.front().recv, sends.front().send, sends.front().count * size_of(sends.front().type));
      --sends.front().stream->pending;
      --receives.front().stream->pending;
      sends.pop_front();
      receives.pop_front();
    }
  }
}

int answer(ncclComm* comm) {
  comm->busy = control().busy_answers.load();
  return comm->busy > 0 ? in_progress : success;
}

int enqueue(ncclComm* comm, Operation operation) {
  if (const int result = note(operation.kind.c_str()); result != success) return result;
  const std::scoped_lock lock(worlds_mutex());
  ++operation.stream->pending;
  comm->world->queues[static_cast<std::size_t>(comm->rank)].push_back(std::move(operation));
  advance(*comm->world);
  return answer(comm);
}

FakeStream* stream_of(void* stream) {
  static FakeStream usual;
  return stream != nullptr ? static_cast<FakeStream*>(stream) : &usual;
}

/// What an aborted rank had enqueued never runs; its streams come to rest.
void forget(ncclComm* comm) {
  const std::scoped_lock lock(worlds_mutex());
  const auto drop = [](std::deque<Operation>& queue) {
    for (const Operation& operation : queue) --operation.stream->pending;
    queue.clear();
  };
  drop(comm->world->queues[static_cast<std::size_t>(comm->rank)]);
  for (auto& [pair, queue] : comm->world->sends) {
    if (pair.first == comm->rank) drop(queue);
  }
  for (auto& [pair, queue] : comm->world->receives) {
    if (pair.second == comm->rank) drop(queue);
  }
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT FakeNccl* fake_nccl() { return &control(); }

EXPORT int ncclGetVersion(int* version) {
  *version = FAKE_NCCL_VERSION;
  return success;
}

EXPORT int ncclGetUniqueId(UniqueId* id) {
  static std::atomic<std::uint64_t> last = 0;
  *id = {};
  const std::uint64_t number = ++last;
  std::memcpy(id->bytes, &number, sizeof number);
  return success;
}

EXPORT const char* ncclGetErrorString(int result) { return result == success ? "no error" : "fake error"; }
EXPORT const char* ncclGetLastError(ncclComm*) { return "the fake\nwas told to fail"; }

EXPORT int ncclCommInitRankConfig(ncclComm** comm, int size, UniqueId id, int rank, const int*) {
  if (control().fail_init != success) return control().fail_init;
  const std::scoped_lock lock(worlds_mutex());
  auto& world = worlds()[std::string(id.bytes, sizeof id.bytes)];
  if (!world) world = std::make_shared<World>(size);
  ++world->arrived;
  *comm = new ncclComm{world, rank, size};
  ++control().alive;
  return in_progress;
}

EXPORT int ncclCommSplit(ncclComm* comm, int color, int key, ncclComm** out, const int*) {
  note("Split");
  const std::scoped_lock lock(worlds_mutex());
  const int number = comm->splits++;
  *out = nullptr;
  if (color < 0) return success;
  auto& child = comm->world->children[{number, color}];
  if (!child) child = std::make_shared<World>(0);
  child->queues.emplace_back();
  ++child->arrived;
  *out = new ncclComm{child, key, 0};  // the tests give the new rank as key
  ++control().alive;
  return in_progress;
}

EXPORT int ncclCommGetAsyncError(ncclComm* comm, int* error) {
  *error = control().async_error;
  if (*error != success) return success;
  const std::scoped_lock lock(worlds_mutex());
  const bool all_here = comm->world->arrived >= static_cast<int>(comm->world->queues.size());
  if (control().init_hangs || !all_here || (comm->busy > 0 && comm->busy-- > 0)) *error = in_progress;
  return success;
}

EXPORT int ncclCommFinalize(ncclComm*) { return note("Finalize"); }

EXPORT int ncclCommDestroy(ncclComm* comm) {
  --control().alive;
  ++control().destroyed;
  delete comm;
  return success;
}

EXPORT int ncclCommAbort(ncclComm* comm) {
  forget(comm);
  --control().alive;
  ++control().aborted;
  delete comm;
  return success;
}

#if FAKE_NCCL_VERSION >= 21900
EXPORT int ncclMemAlloc(void** memory, std::size_t bytes) {
  *memory = std::calloc(1, bytes);
  if (*memory != nullptr) ++control().allocated;
  return *memory != nullptr ? success : 1;
}

EXPORT int ncclMemFree(void* memory) {
  --control().allocated;
  std::free(memory);
  return success;
}

EXPORT int ncclCommRegister(ncclComm*, void* memory, std::size_t, void** handle) {
  ++control().registered;
  *handle = memory;
  return success;
}

EXPORT int ncclCommDeregister(ncclComm*, void*) {
  --control().registered;
  return success;
}
#endif

EXPORT int ncclGroupStart() {
  note("GroupStart");
  return success;
}
EXPORT int ncclGroupEnd() { return note("GroupEnd"); }

EXPORT int ncclAllReduce(const void* s, void* r, std::size_t n, int type, int op, ncclComm* comm, void* stream) {
  return enqueue(comm, {"AllReduce", s, r, n, type, op, 0, stream_of(stream)});
}
EXPORT int ncclReduce(const void* s, void* r, std::size_t n, int type, int op, int root, ncclComm* comm, void* stream) {
  return enqueue(comm, {"Reduce", s, r, n, type, op, root, stream_of(stream)});
}
EXPORT int ncclBroadcast(const void* s, void* r, std::size_t n, int type, int root, ncclComm* comm, void* stream) {
  return enqueue(comm, {"Broadcast", s, r, n, type, 0, root, stream_of(stream)});
}
EXPORT int ncclAllGather(const void* s, void* r, std::size_t n, int type, ncclComm* comm, void* stream) {
  return enqueue(comm, {"AllGather", s, r, n, type, 0, 0, stream_of(stream)});
}
EXPORT int ncclReduceScatter(const void* s, void* r, std::size_t n, int type, int op, ncclComm* comm, void* stream) {
  return enqueue(comm, {"ReduceScatter", s, r, n, type, op, 0, stream_of(stream)});
}

EXPORT int ncclSend(const void* s, std::size_t n, int type, int peer, ncclComm* comm, void* stream) {
  if (const int result = note("Send"); result != success) return result;
  const std::scoped_lock lock(worlds_mutex());
  ++stream_of(stream)->pending;
  comm->world->sends[{comm->rank, peer}].push_back({"Send", s, nullptr, n, type, 0, peer, stream_of(stream)});
  advance(*comm->world);
  return answer(comm);
}
EXPORT int ncclRecv(void* r, std::size_t n, int type, int peer, ncclComm* comm, void* stream) {
  if (const int result = note("Recv"); result != success) return result;
  const std::scoped_lock lock(worlds_mutex());
  ++stream_of(stream)->pending;
  comm->world->receives[{peer, comm->rank}].push_back({"Recv", nullptr, r, n, type, 0, peer, stream_of(stream)});
  advance(*comm->world);
  return answer(comm);
}

#if FAKE_NCCL_VERSION >= 22800
EXPORT int ncclAlltoAll(const void* s, void* r, std::size_t n, int type, ncclComm* comm, void* stream) {
  return enqueue(comm, {"AlltoAll", s, r, n, type, 0, 0, stream_of(stream)});
}
EXPORT int ncclGather(const void* s, void* r, std::size_t n, int type, int root, ncclComm* comm, void* stream) {
  return enqueue(comm, {"Gather", s, r, n, type, 0, root, stream_of(stream)});
}
EXPORT int ncclScatter(const void* s, void* r, std::size_t n, int type, int root, ncclComm* comm, void* stream) {
  return enqueue(comm, {"Scatter", s, r, n, type, 0, root, stream_of(stream)});
}
#endif
