// The C interface with device buffers, from amldist_init() to a rank that is missing; judged by plain arithmetic.
//
//   world_test CASE        each rank is a process with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT
//
// CASE: operations; or how the last rank fails: missing (its peers wait for a request), silent (they wait for their
// stream, which knows nothing of us), ahead (they make call after call meanwhile), gone, other (it makes another call).
// Of the CUDA runtime only what is declared
// below is used, so that the same program runs over memory that is only called a device's
// (libdist/collective/test/gpu/processes).
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "amldist/amldist.h"

// The CUDA runtime's own declarations, by its ABI.
extern "C" {
int cudaGetDeviceCount(int* count);
int cudaSetDevice(int device);
int cudaMalloc(void** memory, std::size_t bytes);
int cudaFree(void* memory);
int cudaMemcpy(void* to, const void* from, std::size_t bytes, int kind);
int cudaStreamCreate(void** stream);
int cudaStreamSynchronize(void* stream);
int cudaStreamDestroy(void* stream);
const char* cudaGetErrorString(int error);
}

namespace {

constexpr int to_device = 1, to_host = 2;  // cudaMemcpyKind

amldist_comm* world = nullptr;
int rank_ = 0, size_ = 0;
void* stream = nullptr;

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "gpu: rank %d: FAILED: %s\n", rank_, what.c_str());
  std::exit(1);
}
void expect(bool condition, const std::string& what) {
  if (!condition) fail(what);
}
void ok(int status, const std::string& what) { expect(status == AMLDIST_OK, what + ": " + amldist_last_error()); }
void cuda(int result, const char* what) {
  if (result != 0) fail(std::string(what) + ": " + cudaGetErrorString(result));
}

template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(const std::vector<T>& values) : count_(values.size()) {
    cuda(cudaMalloc(&data_, std::max<std::size_t>(count_, 1) * sizeof(T)), "cudaMalloc");
    write(values);
  }
  explicit DeviceArray(std::size_t count) : DeviceArray(std::vector<T>(count)) {}
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() { cudaFree(data_); }
  [[nodiscard]] void* get() const { return data_; }
  void write(const std::vector<T>& values) {
    cuda(cudaMemcpy(data_, values.data(), count_ * sizeof(T), to_device), "cudaMemcpy");
  }
  /// When the stream has come to rest.
  [[nodiscard]] std::vector<T> read() const {
    std::vector<T> values(count_);
    cuda(cudaStreamSynchronize(stream), "the stream");
    cuda(cudaMemcpy(values.data(), data_, count_ * sizeof(T), to_host), "cudaMemcpy");
    return values;
  }

 private:
  void* data_ = nullptr;
  std::size_t count_;
};

/// Small whole numbers: sums of them are exact in every type.
template <typename T>
std::vector<T> numbers(int rank, std::size_t count) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<T>((i + static_cast<std::size_t>(rank) * 5) % 7);
  return values;
}

/// What `op` makes of all ranks' numbers.
template <typename T>
T expected(std::size_t i, amldist_op op) {
  T out = static_cast<T>((i) % 7);
  for (int rank = 1; rank < size_; ++rank) {
    const T other = static_cast<T>((i + static_cast<std::size_t>(rank) * 5) % 7);
    if (op == AMLDIST_MAX) out = std::max(out, other);
    else if (op == AMLDIST_MIN) out = std::min(out, other);
    else if (op == AMLDIST_PROD) out = static_cast<T>(out * other);
    else out = static_cast<T>(out + other);
  }
  if (op != AMLDIST_AVG) return out;
  // As wide as the number of ranks: a cast of size_ to T would be cut.
  using Wide = std::common_type_t<T, int>;
  return static_cast<T>(static_cast<Wide>(out) / static_cast<Wide>(size_));
}

template <typename T>
void expect_equal(const std::vector<T>& got, const std::vector<T>& wanted, const std::string& what) {
  expect(got.size() == wanted.size(), what + ": sizes");
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (got[i] == wanted[i]) continue;
    fail(what + ": element " + std::to_string(i) + " of " + std::to_string(got.size()) + " is " +
         std::to_string(got[i]) + ", not " + std::to_string(wanted[i]));
  }
}

// ---- reductions ----

template <typename T>
void check_allreduce(amldist_type type, std::size_t count, amldist_op op) {
  const std::string what =
      "allreduce of " + std::to_string(count) + ", type " + std::to_string(type) + ", op " + std::to_string(op);
  std::vector<T> wanted(count);
  for (std::size_t i = 0; i < count; ++i) wanted[i] = expected<T>(i, op);
  const DeviceArray<T> send(numbers<T>(rank_, count)), recv(count);
  ok(amldist_allreduce(world, send.get(), recv.get(), count, type, op), what);
  expect_equal(recv.read(), wanted, what);
  expect_equal(send.read(), numbers<T>(rank_, count), what + ", its input");
  ok(amldist_allreduce(world, send.get(), send.get(), count, type, op), what + " in place");
  expect_equal(send.read(), wanted, what + " in place");
}

void check_reductions() {
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{1000}, std::size_t{1} << 18}) {
    check_allreduce<float>(AMLDIST_FLOAT32, count, AMLDIST_SUM);
  }
  check_allreduce<double>(AMLDIST_FLOAT64, 1001, AMLDIST_SUM);
  check_allreduce<std::int32_t>(AMLDIST_INT32, 1001, AMLDIST_SUM);
  check_allreduce<std::int64_t>(AMLDIST_INT64, 1001, AMLDIST_PROD);
  check_allreduce<float>(AMLDIST_FLOAT32, 1001, AMLDIST_MAX);
  check_allreduce<std::uint8_t>(AMLDIST_UINT8, 1001, AMLDIST_MIN);
  const std::size_t count = 300;
  std::vector<float> all(count * static_cast<std::size_t>(size_));
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = expected<float>(i, AMLDIST_SUM);
  const int root = size_ - 1;
  const DeviceArray<float> send(numbers<float>(rank_, all.size())), recv(count);
  ok(amldist_reduce(world, send.get(), recv.get(), count, AMLDIST_FLOAT32, AMLDIST_SUM, root), "reduce");
  const auto reduced = recv.read();
  if (rank_ == root) expect_equal(reduced, {all.begin(), all.begin() + static_cast<long>(count)}, "reduce");
  ok(amldist_reduce_scatter(world, send.get(), recv.get(), count, AMLDIST_FLOAT32, AMLDIST_SUM), "reduce_scatter");
  const auto own = all.begin() + static_cast<long>(count) * rank_;
  expect_equal(recv.read(), {own, own + static_cast<long>(count)}, "reduce_scatter");
}

// ---- movements ----

/// `count` of each rank's numbers, beginning with its `first`.
std::vector<float> from_all(std::size_t count, std::size_t first = 0) {
  std::vector<float> out;
  for (int from = 0; from < size_; ++from) {
    const auto theirs = numbers<float>(from, first + count);
    out.insert(out.end(), theirs.begin() + static_cast<long>(first), theirs.end());
  }
  return out;
}

void check_movements() {
  const std::size_t count = 257, ranks = static_cast<std::size_t>(size_), own = static_cast<std::size_t>(rank_);
  const DeviceArray<float> send(numbers<float>(rank_, count * ranks)), all(count * ranks), one(count);
  ok(amldist_allgather(world, send.get(), all.get(), count, AMLDIST_FLOAT32), "allgather");
  expect_equal(all.read(), from_all(count), "allgather");
  ok(amldist_alltoall(world, send.get(), all.get(), count, AMLDIST_FLOAT32), "alltoall");
  expect_equal(all.read(), from_all(count, own * count), "alltoall");
  const int root = size_ / 2;
  ok(amldist_gather(world, send.get(), all.get(), count, AMLDIST_FLOAT32, root), "gather");
  if (const auto got = all.read(); rank_ == root) expect_equal(got, from_all(count), "gather");
  ok(amldist_scatter(world, send.get(), one.get(), count, AMLDIST_FLOAT32, root), "scatter");
  const auto roots = numbers<float>(root, count * ranks);
  const auto piece = roots.begin() + static_cast<long>(own * count);
  expect_equal(one.read(), {piece, piece + static_cast<long>(count)}, "scatter");
  DeviceArray<float> shared(numbers<float>(rank_, count));
  ok(amldist_broadcast(world, shared.get(), count, AMLDIST_FLOAT32, root), "broadcast");
  expect_equal(shared.read(), numbers<float>(root, count), "broadcast");
  ok(amldist_barrier(world), "barrier");
}

/// Rank r gives r + 1 elements to each.
void check_uneven() {
  const std::size_t ranks = static_cast<std::size_t>(size_), own = static_cast<std::size_t>(rank_);
  std::vector<std::size_t> counts(ranks), offsets(ranks), sends(ranks, own + 1), starts(ranks);
  std::iota(counts.begin(), counts.end(), std::size_t{1});
  for (std::size_t r = 1; r < ranks; ++r) {
    offsets[r] = offsets[r - 1] + counts[r - 1];
    starts[r] = starts[r - 1] + sends[r - 1];
  }
  const std::size_t total = offsets.back() + counts.back();
  std::vector<float> gathered, exchanged;
  for (std::size_t r = 0; r < ranks; ++r) {
    const auto theirs = numbers<float>(static_cast<int>(r), (r + 1) * ranks);
    gathered.insert(gathered.end(), theirs.begin(), theirs.begin() + static_cast<long>(r + 1));
    const auto mine = theirs.begin() + static_cast<long>(own * (r + 1));
    exchanged.insert(exchanged.end(), mine, mine + static_cast<long>(r + 1));
  }
  const DeviceArray<float> send(numbers<float>(rank_, (own + 1) * ranks)), recv(total);
  ok(amldist_allgatherv(world, send.get(), own + 1, recv.get(), counts.data(), offsets.data(), AMLDIST_FLOAT32),
     "allgatherv");
  expect_equal(recv.read(), gathered, "allgatherv");
  ok(amldist_alltoallv(world, send.get(), sends.data(), starts.data(), recv.get(), counts.data(), offsets.data(),
                       AMLDIST_FLOAT32),
     "alltoallv");
  expect_equal(recv.read(), exchanged, "alltoallv");
}

void check_messages() {
  const std::size_t count = 1000;
  const int right = (rank_ + 1) % size_, left = (rank_ + size_ - 1) % size_;
  const DeviceArray<float> send(numbers<float>(rank_, count)), recv(count);
  ok(amldist_group_begin(world), "group");
  ok(amldist_send(world, send.get(), count, AMLDIST_FLOAT32, right), "send");
  ok(amldist_recv(world, recv.get(), count, AMLDIST_FLOAT32, left), "recv");
  ok(amldist_group_end(world), "group");
  expect_equal(recv.read(), numbers<float>(left, count), "messages in a group");
  const DeviceArray<float> again(count);
  amldist_request* requests[2] = {};
  ok(amldist_isend(world, send.get(), count, AMLDIST_FLOAT32, left, &requests[0]), "isend");
  ok(amldist_irecv(world, again.get(), count, AMLDIST_FLOAT32, right, &requests[1]), "irecv");
  for (amldist_request*& request : requests) ok(amldist_wait(&request), "wait");
  expect_equal(again.read(), numbers<float>(right, count), "messages as requests");
}

// ---- requests, splits, ----
// buckets

/// Calls that do not wait, with a host buffer between them.
void check_requests() {
  constexpr int calls = 20;
  const std::size_t count = 1000;
  std::vector<amldist_request*> requests(calls);
  std::vector<DeviceArray<float>*> arrays;
  for (amldist_request*& request : requests) {
    arrays.push_back(new DeviceArray<float>(numbers<float>(rank_, count)));
    ok(amldist_iallreduce(world, arrays.back()->get(), arrays.back()->get(), count, AMLDIST_FLOAT32, AMLDIST_SUM,
                          &request),
       "iallreduce");
  }
  double in_host = rank_;
  ok(amldist_allreduce(world, &in_host, &in_host, 1, AMLDIST_FLOAT64, AMLDIST_MAX), "a host buffer behind them");
  expect(in_host == size_ - 1, "a host buffer behind them");
  std::vector<float> wanted(count);
  for (std::size_t i = 0; i < count; ++i) wanted[i] = expected<float>(i, AMLDIST_SUM);
  for (std::size_t r = 0; r < requests.size(); ++r) {
    if (r % 2 == 0) ok(amldist_wait(&requests[r]), "wait");
    for (int done = requests[r] == nullptr; done == 0;) ok(amldist_test(&requests[r], &done), "test");
    expect_equal(arrays[r]->read(), wanted, "request " + std::to_string(r));
    delete arrays[r];
  }
}

void check_split() {
  amldist_comm* half = nullptr;
  ok(amldist_split(world, rank_ % 2, rank_, &half), "split");
  const DeviceArray<std::int32_t> value(std::vector<std::int32_t>{rank_});
  ok(amldist_set_stream(half, stream), "stream of a half");
  ok(amldist_allreduce(half, value.get(), value.get(), 1, AMLDIST_INT32, AMLDIST_SUM), "allreduce in a half");
  int wanted = 0;
  for (int rank = rank_ % 2; rank < size_; rank += 2) wanted += rank;
  expect(value.read()[0] == wanted, "allreduce in a half");
  ok(amldist_finalize(half), "end of a half");
}

/// Tensors on the device, reduced as they become ready.
void check_reducer() {
  const std::vector<std::size_t> counts = {3, 100000, 17, 0, 1 << 19, 1000};
  amldist_reducer* reducer = nullptr;
  amldist_reducer_options options = {};
  options.struct_size = sizeof options;
  options.op = AMLDIST_SUM;
  ok(amldist_reducer_create(world, counts.data(), counts.size(), AMLDIST_FLOAT32, &options, &reducer), "reducer");
  std::vector<DeviceArray<float>*> tensors;
  for (std::size_t t = 0; t < counts.size(); ++t) {
    tensors.push_back(new DeviceArray<float>(counts[t]));
    ok(amldist_reducer_bind(reducer, t, tensors[t]->get()), "bind");
  }
  for (int step = 0; step < 3; ++step) {
    for (std::size_t t = counts.size(); t-- > 0;) {
      tensors[t]->write(numbers<float>(rank_ + step * size_, counts[t]));
      ok(amldist_reducer_ready(reducer, t), "ready");
    }
    ok(amldist_reducer_wait(reducer), "wait");
    for (std::size_t t = 0; t < counts.size(); ++t) {
      std::vector<float> wanted(counts[t]);
      for (int rank = 0; rank < size_; ++rank) {
        const auto part = numbers<float>(rank + step * size_, counts[t]);
        for (std::size_t i = 0; i < part.size(); ++i) wanted[i] += part[i];
      }
      expect_equal(tensors[t]->read(), wanted, "tensor " + std::to_string(t));
    }
  }
  ok(amldist_reducer_free(reducer), "end of the reducer");
  for (const auto* tensor : tensors) delete tensor;
}

/// More calls than a device takes at once, each with its own place for the result.
void check_calls_ahead() {
  constexpr std::size_t calls = 3000;
  const DeviceArray<float> in(numbers<float>(rank_, calls)), out(calls);
  for (std::size_t i = 0; i < calls; ++i) {
    ok(amldist_allreduce(world, static_cast<float*>(in.get()) + i, static_cast<float*>(out.get()) + i, 1,
                         AMLDIST_FLOAT32, AMLDIST_MAX),
       "one of many calls");
  }
  std::vector<float> wanted(calls);
  for (std::size_t i = 0; i < calls; ++i) wanted[i] = expected<float>(i, AMLDIST_MAX);
  expect_equal(out.read(), wanted, "many calls");
}

/// What cannot be is said, and does no harm.
void check_refusals() {
  const DeviceArray<float> data(std::size_t{64});
  expect(amldist_allreduce(world, data.get(), data.get(), 1, AMLDIST_INT16, AMLDIST_SUM) != AMLDIST_OK,
         "int16 is not NCCL's");
  expect(amldist_alltoall(world, data.get(), data.get(), 1, AMLDIST_FLOAT32) != AMLDIST_OK,
         "alltoall in place is not NCCL's");
  check_allreduce<float>(AMLDIST_FLOAT32, 100, AMLDIST_SUM);
}

void run_operations() {
  check_reductions();
  check_movements();
  check_uneven();
  check_messages();
  check_requests();
  check_split();
  check_reducer();
  check_calls_ahead();
  check_refusals();
  void* usual = stream;
  stream = nullptr;
  ok(amldist_set_stream(world, nullptr), "the default stream");
  check_allreduce<float>(AMLDIST_FLOAT32, 1000, AMLDIST_SUM);
  stream = usual;
}

// ---- failures ----

/// What the last rank does in place of the second call.
int fail_as_last(const std::string& how, void* data) {
  if (how == "other") return amldist_broadcast(world, data, 1000, AMLDIST_FLOAT32, 0);
  if (how != "gone") std::this_thread::sleep_for(std::chrono::seconds(8));
  ::_exit(0);
}

/// The last rank does not make the second call. The others hear of it, with its number, and go on.
void run_failure(const std::string& how) {
  const DeviceArray<float> data(numbers<float>(rank_, 1000));
  ok(amldist_allreduce(world, data.get(), data.get(), 1000, AMLDIST_FLOAT32, AMLDIST_SUM), "the first call");
  cuda(cudaStreamSynchronize(stream), "the stream");
  ok(amldist_set_timeout(world, how == "gone" ? 60000 : 2000), "timeout");
  const int last = size_ - 1;
  int status = AMLDIST_OK;
  if (how == "silent") std::this_thread::sleep_for(std::chrono::milliseconds(300));  // so does whoever keeps watch
  if (how == "ahead" && rank_ != last) {
    while (status == AMLDIST_OK)
      status = amldist_allreduce(world, data.get(), data.get(), 1000, AMLDIST_FLOAT32, AMLDIST_SUM);
    static_cast<void>(cudaStreamSynchronize(stream));
  } else if (how == "missing" && rank_ != last) {
    amldist_request* request = nullptr;
    ok(amldist_iallreduce(world, data.get(), data.get(), 1000, AMLDIST_FLOAT32, AMLDIST_SUM, &request),
       "the second call");
    status = amldist_wait(&request);
    static_cast<void>(cudaStreamSynchronize(stream));
  } else {
    ok(rank_ == last ? fail_as_last(how, data.get())
                     : amldist_allreduce(world, data.get(), data.get(), 1000, AMLDIST_FLOAT32, AMLDIST_SUM),
       "the second call is only begun");
    static_cast<void>(cudaStreamSynchronize(stream));  // ends, with or without an error
    status = amldist_health(world);
  }
  const std::string said = amldist_last_error();
  expect(status != AMLDIST_OK, "a call without all its ranks must fail");
  expect(said.find("rank " + std::to_string(last)) != std::string::npos, "the rank is not named: " + said);
  expect(said.find("allreduce") != std::string::npos, "the call is not named: " + said);
  expect(amldist_allreduce(world, data.get(), data.get(), 1, AMLDIST_FLOAT32, AMLDIST_SUM) != AMLDIST_OK,
         "a call behind it");
  std::printf("gpu: rank %d: %s\n", rank_, said.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::string what = argv[1];
  int devices = 0;
  cuda(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
  const char *const number = std::getenv("RANK"), *const ranks = std::getenv("WORLD_SIZE");
  if (number == nullptr || ranks == nullptr) return 2;
  if (devices <
      std::atoi(ranks)) {  // NCCL refuses two ranks on one GPU, unless they seem to be on two hosts, or it is told so
    ::setenv("NCCL_HOSTID", (std::string("rank") + number).c_str(), 1);
    ::setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
  }
  cuda(cudaSetDevice(std::atoi(number) % devices), "cudaSetDevice");
  ok(amldist_init(&world, 60000), "amldist_init");
  rank_ = amldist_rank(world);
  size_ = amldist_size(world);
  cuda(cudaStreamCreate(&stream), "cudaStreamCreate");
  ok(amldist_set_stream(world, stream), "amldist_set_stream");
  if (what == "operations") run_operations();
  else run_failure(what);
  const int status = amldist_finalize(world);
  expect(what != "operations" || status == AMLDIST_OK, std::string("the end: ") + amldist_last_error());
  cudaStreamDestroy(stream);
  return 0;
}
