// The NCCL back end and the device part on real GPUs, judged by plain arithmetic on the host.
//
//   gpu_test RANKS DEVICE_PART
//
// Ranks are processes; they meet in a piece of shared memory. Exit status 77: no GPU.
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>
#include <vector>

#include "collective/gpu/device_kernels.hpp"
#include "collective/gpu/nccl_backend.hpp"

namespace {

using namespace amldist;
using namespace amldist::collective;
using namespace std::chrono_literals;

constexpr int most_ranks = 8;
constexpr int skipped = 77;
int failures = 0;

void expect(bool condition, const std::string& what) {
  if (condition) return;
  ++failures;
  std::printf("gpu: FAILED: %s\n", what.c_str());
}

template <typename T>
bool fine(const Result<T>& result, const std::string& what) {
  expect(result.ok(), result ? what : what + ": " + result.error().message);
  return result.ok();
}

void cuda(cudaError_t result, const char* what) {
  if (result != cudaSuccess) expect(false, std::string(what) + ": " + cudaGetErrorString(result));
}

// ---- ranks ----

struct Piece {
  std::atomic<std::uint32_t> length_plus_one;
  char bytes[508];
};

/// What all ranks see: a board for each round of an exchange.
struct Board {
  static constexpr int rounds = 32;
  Piece piece[rounds][most_ranks];
};

class BoardExchange final : public calls::Exchange {
 public:
  BoardExchange(Board& board, int rank, int size, int first_round)
      : board_(&board), rank_(rank), size_(size), round_(first_round) {}
  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return size_; }
  [[nodiscard]] Result<std::vector<std::string>> gather_all(std::string own, Clock::time_point deadline) override {
    auto& row = board_->piece[round_++];
    std::memcpy(row[rank_].bytes, own.data(), std::min(own.size(), sizeof row[rank_].bytes));
    row[rank_].length_plus_one = static_cast<std::uint32_t>(own.size()) + 1;
    std::vector<std::string> all;
    for (int from = 0; from < size_; ++from) {
      while (row[from].length_plus_one == 0) {
        if (Clock::now() > deadline) return Error{Errc::timeout, "rank " + std::to_string(from) + " did not come"};
        std::this_thread::sleep_for(1ms);
      }
      all.emplace_back(row[from].bytes, row[from].length_plus_one - 1);
    }
    return all;
  }

 private:
  Board* board_;
  int rank_;
  int size_;
  int round_;
};

class DeadlineWatchdog final : public calls::Watchdog {
 public:
  explicit DeadlineWatchdog(Clock::duration patience) : deadline_(Clock::now() + patience) {}
  [[nodiscard]] Result<void> keep_waiting(int) override {
    if (Clock::now() < deadline_) return {};
    return Error{Errc::timeout, "the deadline passed"};
  }
  [[nodiscard]] Error differs(int) override { return {Errc::peer, "differs"}; }
  [[nodiscard]] Error lost(int, std::string_view) override { return {Errc::peer, "lost"}; }
  [[nodiscard]] Clock::time_point deadline() const noexcept override { return deadline_; }

 private:
  Clock::time_point deadline_;
};

// ---- buffers ----

template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(const std::vector<T>& values) : count_(values.size()) {
    cuda(cudaMalloc(reinterpret_cast<void**>(&data_), std::max<std::size_t>(count_, 1) * sizeof(T)), "cudaMalloc");
    cuda(cudaMemcpy(data_, values.data(), count_ * sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpy");
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() { cudaFree(data_); }
  [[nodiscard]] T* get() const { return data_; }
  [[nodiscard]] std::vector<T> read() const {
    std::vector<T> values(count_);
    cuda(cudaMemcpy(values.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost), "cudaMemcpy");
    return values;
  }

 private:
  T* data_ = nullptr;
  std::size_t count_;
};

/// Small whole numbers: sums of them are exact.
std::vector<float> numbers(int rank, std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>((i + static_cast<std::size_t>(rank) * 5) % 17);
  return values;
}

float sum_at(int size, std::size_t i) {
  float sum = 0;
  for (int rank = 0; rank < size; ++rank) sum += static_cast<float>((i + static_cast<std::size_t>(rank) * 5) % 17);
  return sum;
}

// ---- collectives ----

struct Rank {
  collective::NcclBackend& backend;
  int rank;
  int size;
  cudaStream_t stream;
};

calls::Call call_of(const Rank& own, calls::Operation operation, const void* send, void* recv, std::size_t count,
                    int root = 0) {
  calls::Call call;
  call.operation = operation;
  call.type = calls::DataType::float32;
  call.root = root;
  call.count = count;
  call.send = send;
  call.recv = recv;
  call.stream = own.stream;
  return call;
}

void finish(const Rank& own, const calls::Call& call) {
  DeadlineWatchdog watchdog(60s);
  const std::string name(to_string(call.operation));
  if (fine(own.backend.run(call, watchdog), name)) fine(own.backend.synchronize(call.stream, watchdog), name);
}

void check_reductions(const Rank& own, std::size_t count) {
  const auto size = static_cast<std::size_t>(own.size);
  const DeviceArray<float> send(numbers(own.rank, count * size)), recv{std::vector<float>(count)};
  finish(own, call_of(own, calls::Operation::allreduce, send.get(), recv.get(), count));
  auto all = recv.read();
  for (std::size_t i = 0; i < count; ++i)
    expect(all[i] == sum_at(own.size, i), "allreduce of " + std::to_string(count));
  finish(own, call_of(own, calls::Operation::reduce_scatter, send.get(), recv.get(), count));
  all = recv.read();
  const std::size_t first = static_cast<std::size_t>(own.rank) * count;
  for (std::size_t i = 0; i < count; ++i) expect(all[i] == sum_at(own.size, first + i), "reduce_scatter");
  finish(own, call_of(own, calls::Operation::allreduce, send.get(), send.get(), count));
  all = send.read();
  for (std::size_t i = 0; i < count; ++i) expect(all[i] == sum_at(own.size, i), "allreduce in place");
}

void check_movements(const Rank& own, std::size_t count) {
  const auto size = static_cast<std::size_t>(own.size);
  const DeviceArray<float> send(numbers(own.rank, count * size)), recv{std::vector<float>(count * size)};
  finish(own, call_of(own, calls::Operation::alltoall, send.get(), recv.get(), count));
  auto all = recv.read();
  for (std::size_t i = 0; i < count * size; ++i) {
    const auto theirs = numbers(static_cast<int>(i / count), count * size);
    expect(all[i] == theirs[static_cast<std::size_t>(own.rank) * count + i % count], "alltoall");
  }
  finish(own, call_of(own, calls::Operation::allgather, send.get(), recv.get(), count));
  all = recv.read();
  for (std::size_t i = 0; i < count * size; ++i)
    expect(all[i] == numbers(static_cast<int>(i / count), count)[i % count], "allgather");
  const int right = (own.rank + 1) % own.size, left = (own.rank + own.size - 1) % own.size;
  const std::vector<calls::Call> messages = {call_of(own, calls::Operation::send, send.get(), nullptr, count, right),
                                             call_of(own, calls::Operation::recv, nullptr, recv.get(), count, left)};
  DeadlineWatchdog watchdog(60s);
  fine(own.backend.run_group(messages, watchdog), "messages");
  fine(own.backend.synchronize(own.stream, watchdog), "messages");
  all = recv.read();
  for (std::size_t i = 0; i < count; ++i) expect(all[i] == numbers(left, count)[i], "messages");
}

/// The last rank never calls; the others get an error at the deadline, and their streams come to rest.
void check_deadline(const Rank& own) {
  if (own.rank == own.size - 1) {
    std::this_thread::sleep_for(5s);
    return;
  }
  const DeviceArray<float> data(numbers(own.rank, 1000));
  DeadlineWatchdog watchdog(2s);
  const auto begun = own.backend.run(call_of(own, calls::Operation::allreduce, data.get(), data.get(), 1000), watchdog);
  const auto waited = begun ? own.backend.synchronize(own.stream, watchdog) : begun;
  expect(!waited, "a call without all its ranks must fail");
  expect(waited || waited.error().code == Errc::timeout, "it must fail by its deadline");
  cuda(cudaStreamSynchronize(own.stream), "the stream after the abort");
}

collective::CudaDriver real_driver() {
  const auto driver = collective::CudaDriver::bind(::dlopen("libcuda.so.1", RTLD_NOW));
  if (!fine(driver, "the CUDA driver")) std::exit(1);
  return *driver;
}

int run_rank(Board& board, int rank, int size) {
  int devices = 0;
  cuda(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
  const int device = rank % devices;
  cuda(cudaSetDevice(device), "cudaSetDevice");
  const collective::CudaDriver driver = real_driver();
  BoardExchange exchange(board, rank, size, 0);
  const char* const named = std::getenv("AMLDIST_NCCL");
  auto backend = collective::NcclBackend::create(load_nccl(named != nullptr ? named : ""), driver, device, exchange,
                                                 Clock::now() + 120s);
  if (!fine(backend, "the communicator")) return 1;
  cudaStream_t stream = nullptr;
  cuda(cudaStreamCreate(&stream), "cudaStreamCreate");
  const Rank own{**backend, rank, size, stream};
  for (const std::size_t count : {std::size_t{1}, std::size_t{1000}, std::size_t{1} << 18})
    check_reductions(own, count);
  check_movements(own, 257);
  finish(own, call_of(own, calls::Operation::barrier, nullptr, nullptr, 0));
  const auto memory = own.backend.allocate(1 << 20);
  if (fine(memory, "registered memory")) {
    expect(device_of(driver, *memory) == device, "registered memory is on the device");
    fine(own.backend.release(*memory), "its release");
  }
  check_deadline(own);
  return failures != 0;
}

// ---- kernels ----

float to_float(std::uint16_t bfloat) {
  const std::uint32_t bits = static_cast<std::uint32_t>(bfloat) << 16;
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

/// Tensors of many sizes and alignments, packed into bfloat16 and half their value, and back doubled.
void check_kernels(const collective::DeviceKernels& kernels) {
  constexpr int float32 = 7, bfloat16 = 9;
  constexpr std::size_t tensors = 500;  // more than one kernel takes
  std::vector<amldist_device_piece> pieces;
  std::size_t end = 0;
  for (std::size_t t = 0; t < tensors; ++t) {
    const std::size_t count = t * t % 3000;
    pieces.push_back({nullptr, count, end});
    end += count + t % 3;  // bucket offsets that no vector fits
  }
  const auto values = numbers(1, end + 1);
  const DeviceArray<float> source(values), back{std::vector<float>(end + 1)};
  const DeviceArray<std::uint16_t> bucket{std::vector<std::uint16_t>(end + 1)};
  for (auto& piece : pieces) piece.data = source.get() + piece.offset;
  expect(kernels.pack(pieces.data(), tensors, float32, bucket.get(), bfloat16, 0.5, nullptr) == 0, "pack");
  for (auto& piece : pieces) piece.data = back.get() + piece.offset;
  expect(kernels.unpack(pieces.data(), tensors, float32, bucket.get(), bfloat16, 2, nullptr) == 0, "unpack");
  cuda(cudaDeviceSynchronize(), "the kernels");
  const auto packed = bucket.read();
  const auto unpacked = back.read();
  for (const auto& piece : pieces) {
    for (std::size_t i = piece.offset; i < piece.offset + piece.count; ++i) {
      expect(to_float(packed[i]) == values[i] / 2, "pack: element " + std::to_string(i));
      expect(unpacked[i] == values[i], "unpack: element " + std::to_string(i));
    }
  }
  expect(kernels.scale(source.get(), end, float32, 3, nullptr) == 0, "scale");
  const DeviceArray<double> wide{std::vector<double>(end + 1)};
  expect(kernels.cast(source.get(), float32, wide.get(), 8, end, 1, nullptr) == 0, "cast");
  cuda(cudaDeviceSynchronize(), "the kernels");
  const auto cast = wide.read();
  for (std::size_t i = 0; i < end; ++i) expect(cast[i] == 3.0 * static_cast<double>(values[i]), "scale and cast");
}

int run_kernels(const char* device_part) {
  const auto kernels = load_device_kernels(device_part);
  if (fine(kernels, "the device part")) check_kernels(*kernels);
  return failures != 0;
}

// ---- main ----

/// In a process of its own: CUDA does not survive a fork.
template <typename Body>
pid_t in_child(Body body) {
  std::fflush(stdout);
  const pid_t child = ::fork();
  if (child == 0) {
    const int status = body();
    std::fflush(stdout);
    ::_exit(status);
  }
  return child;
}

int status_of(pid_t child) {
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const int size = std::min(std::atoi(argv[1]), most_ranks);
  const int devices = status_of(in_child([] {
    int count = 0;
    return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
  }));
  if (devices == 0) {
    std::printf("gpu: skipped: CUDA sees no GPU on this machine\n");
    return skipped;
  }
  std::printf("gpu: %d ranks on %d GPUs\n", size, devices);
  int bad = status_of(in_child([&] { return run_kernels(argv[2]); }));
  void* const memory = ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto* const board = new (memory) Board{};
  std::vector<pid_t> children;
  for (int rank = 0; rank < size; ++rank) {
    children.push_back(in_child([&] {
      if (devices < size) {  // NCCL refuses two ranks on one GPU, unless they seem to be on two hosts, or it is told so
        ::setenv("NCCL_HOSTID", ("rank" + std::to_string(rank)).c_str(), 1);
        ::setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
      }
      return run_rank(*board, rank, size);
    }));
  }
  for (const pid_t child : children) bad += status_of(child);
  std::printf("gpu: %s\n", bad == 0 ? "all passed" : "FAILED");
  return bad == 0 ? 0 : 1;
}
