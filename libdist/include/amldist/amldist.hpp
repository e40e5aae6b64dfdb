// aml-dist: the C++20 interface of libamldist, header-only over the C interface.
//
//   amldist::Communicator world = amldist::Communicator::init().value();
//   std::vector<float> gradients = ...;
//   if (auto done = world.allreduce(std::span(gradients), amldist::Op::avg); !done) die(done.message());
//
// Buffers are spans; the element type follows from them. Every function that can fail returns a Result or a Status,
// which the compiler does not let you ignore. Units, shapes, thread safety and errors are those of amldist.h. Since
// 0.1.
#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "amldist/amldist.h"

namespace amldist {

/// Bits of the two half-precision types, for buffers; no arithmetic.
enum class Float16 : std::uint16_t {};
enum class Bfloat16 : std::uint16_t {};

/// The element type of a buffer of T.
template <typename T>
inline constexpr int type_of = -1;
template <>
inline constexpr int type_of<std::int8_t> = AMLDIST_INT8;
template <>
inline constexpr int type_of<std::uint8_t> = AMLDIST_UINT8;
template <>
inline constexpr int type_of<std::int16_t> = AMLDIST_INT16;
template <>
inline constexpr int type_of<std::uint16_t> = AMLDIST_UINT16;
template <>
inline constexpr int type_of<std::int32_t> = AMLDIST_INT32;
template <>
inline constexpr int type_of<std::uint32_t> = AMLDIST_UINT32;
template <>
inline constexpr int type_of<std::int64_t> = AMLDIST_INT64;
template <>
inline constexpr int type_of<std::uint64_t> = AMLDIST_UINT64;
template <>
inline constexpr int type_of<Float16> = AMLDIST_FLOAT16;
template <>
inline constexpr int type_of<Bfloat16> = AMLDIST_BFLOAT16;
template <>
inline constexpr int type_of<float> = AMLDIST_FLOAT32;
template <>
inline constexpr int type_of<double> = AMLDIST_FLOAT64;

/// What a buffer may consist of.
template <typename T>
concept Element = type_of<std::remove_const_t<T>>
>= 0;

enum class Op : int { sum = AMLDIST_SUM, prod = AMLDIST_PROD, max = AMLDIST_MAX, min = AMLDIST_MIN, avg = AMLDIST_AVG };

/// What a call came to: its status, and the sentence for people where it failed.
class [[nodiscard]] Status {
 public:
  Status() = default;
  /// Of the call that this thread has just made.
  static Status of(int status) { return status == AMLDIST_OK ? Status() : Status(status, amldist_last_error()); }
  Status(int status, std::string message) : status_(status), message_(std::move(message)) {}

  [[nodiscard]] bool ok() const noexcept { return status_ == AMLDIST_OK; }
  explicit operator bool() const noexcept { return ok(); }
  [[nodiscard]] int status() const noexcept { return status_; }
  [[nodiscard]] const std::string& message() const noexcept { return message_; }

 private:
  int status_ = AMLDIST_OK;
  std::string message_;
};

/// A value, or the status for which there is none.
template <typename T>
class [[nodiscard]] Expected {
 public:
  Expected(T value) : value_(std::move(value)) {}          // NOLINT(google-explicit-constructor)
  Expected(Status status) : status_(std::move(status)) {}  // NOLINT(google-explicit-constructor)
  [[nodiscard]] bool ok() const noexcept { return value_.has_value(); }
  explicit operator bool() const noexcept { return ok(); }
  /// Throws std::bad_optional_access where there is none.
  [[nodiscard]] T& value() & { return value_.value(); }
  [[nodiscard]] T value() && { return std::move(value_).value(); }
  T& operator*() & { return *value_; }
  T* operator->() { return &*value_; }
  [[nodiscard]] const std::string& message() const noexcept { return status_.message(); }
  [[nodiscard]] const Status& status() const noexcept { return status_; }

 private:
  std::optional<T> value_;
  Status status_;
};

/// A call in progress. Move-only; its end is waited for at destruction.
class [[nodiscard]] Request {
 public:
  explicit Request(amldist_request* request) noexcept : request_(request) {}
  Request(Request&& other) noexcept : request_(std::exchange(other.request_, nullptr)) {}
  Request& operator=(Request&& other) noexcept {
    std::swap(request_, other.request_);
    return *this;
  }
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;
  ~Request() { static_cast<void>(amldist_wait(&request_)); }

  Status wait() { return Status::of(amldist_wait(&request_)); }
  /// Whether it is done; after that, wait() returns at once.
  [[nodiscard]] Expected<bool> test() {
    int done = 0;
    const int status = amldist_test(&request_, &done);
    if (status != AMLDIST_OK) return Status::of(status);
    return done != 0;
  }

 private:
  amldist_request* request_;
};

/// Memory from amldist_alloc(): collectives use it without copying. Move-only; must go before its communicator.
template <Element T>
class Buffer {
 public:
  Buffer(amldist_comm* comm, T* data, std::size_t count) noexcept : data_(data, Deleter{comm}), count_(count) {}
  [[nodiscard]] std::span<T> span() const noexcept { return {data_.get(), count_}; }
  [[nodiscard]] T* data() const noexcept { return data_.get(); }
  [[nodiscard]] std::size_t size() const noexcept { return count_; }

 private:
  struct Deleter {
    amldist_comm* comm;
    void operator()(T* data) const noexcept { static_cast<void>(amldist_free(comm, data)); }
  };
  std::unique_ptr<T, Deleter> data_;
  std::size_t count_;
};

/// A communicator. Move-only; finalized at destruction.
class Communicator {
 public:
  /// The world of this step. A zero timeout is the default one.
  static Expected<Communicator> init(std::chrono::milliseconds timeout = {}) {
    amldist_comm* comm = nullptr;
    const int status = amldist_init(&comm, static_cast<int>(timeout.count()));
    if (status != AMLDIST_OK) return Status::of(status);
    return Communicator(comm);
  }

  [[nodiscard]] int rank() const noexcept { return amldist_rank(get()); }
  [[nodiscard]] int size() const noexcept { return amldist_size(get()); }
  [[nodiscard]] int local_rank() const noexcept { return amldist_local_rank(get()); }
  [[nodiscard]] int local_size() const noexcept { return amldist_local_size(get()); }
  [[nodiscard]] int node_rank() const noexcept { return amldist_node_rank(get()); }
  [[nodiscard]] int nodes() const noexcept { return amldist_nodes(get()); }
  [[nodiscard]] std::string_view host(int rank) const noexcept {
    const char* const name = amldist_host(get(), rank);
    return name != nullptr ? name : std::string_view();
  }
  [[nodiscard]] std::string_view task_map() const noexcept { return amldist_task_map(get()); }
  [[nodiscard]] std::string_view provenance() const noexcept { return amldist_provenance(get()); }

  /// In place.
  template <Element T>
  Status allreduce(std::span<T> data, Op op = Op::sum) {
    return Status::of(amldist_allreduce(get(), data.data(), data.data(), data.size(), type<T>(), raw(op)));
  }
  /// The shorter span counts.
  template <Element T>
  Status allreduce(std::span<const T> send, std::span<T> recv, Op op = Op::sum) {
    return Status::of(amldist_allreduce(get(), send.data(), recv.data(), shorter(send, recv), type<T>(), raw(op)));
  }
  template <Element T>
  Status reduce(std::span<const T> send, std::span<T> recv, int root, Op op = Op::sum) {
    return Status::of(amldist_reduce(get(), send.data(), recv.data(), send.size(), type<T>(), raw(op), root));
  }
  template <Element T>
  Status broadcast(std::span<T> data, int root) {
    return Status::of(amldist_broadcast(get(), data.data(), data.size(), type<T>(), root));
  }
  /// recv has room for size() times send.
  template <Element T>
  Status allgather(std::span<const T> send, std::span<T> recv) {
    if (recv.size() < send.size() * ranks()) return too_short("allgather");
    return Status::of(amldist_allgather(get(), send.data(), recv.data(), send.size(), type<T>()));
  }
  /// send has size() times recv.
  template <Element T>
  Status reduce_scatter(std::span<const T> send, std::span<T> recv, Op op = Op::sum) {
    if (send.size() < recv.size() * ranks()) return too_short("reduce_scatter");
    return Status::of(amldist_reduce_scatter(get(), send.data(), recv.data(), recv.size(), type<T>(), raw(op)));
  }
  /// Both have size() equal parts.
  template <Element T>
  Status alltoall(std::span<const T> send, std::span<T> recv) {
    if (recv.size() < send.size()) return too_short("alltoall");
    return Status::of(amldist_alltoall(get(), send.data(), recv.data(), send.size() / ranks(), type<T>()));
  }
  template <Element T>
  Status gather(std::span<const T> send, std::span<T> recv, int root) {
    if (rank() == root && recv.size() < send.size() * ranks()) return too_short("gather");
    return Status::of(amldist_gather(get(), send.data(), recv.data(), send.size(), type<T>(), root));
  }
  template <Element T>
  Status scatter(std::span<const T> send, std::span<T> recv, int root) {
    if (rank() == root && send.size() < recv.size() * ranks()) return too_short("scatter");
    return Status::of(amldist_scatter(get(), send.data(), recv.data(), recv.size(), type<T>(), root));
  }
  template <Element T>
  Status send(std::span<const T> data, int peer) {
    return Status::of(amldist_send(get(), data.data(), data.size(), type<T>(), peer));
  }
  template <Element T>
  Status recv(std::span<T> data, int peer) {
    return Status::of(amldist_recv(get(), data.data(), data.size(), type<T>(), peer));
  }
  Status barrier() { return Status::of(amldist_barrier(get())); }

  /// In place, without waiting.
  template <Element T>
  Expected<Request> iallreduce(std::span<T> data, Op op = Op::sum) {
    amldist_request* request = nullptr;
    const int status = amldist_iallreduce(get(), data.data(), data.data(), data.size(), type<T>(), raw(op), &request);
    if (status != AMLDIST_OK) return Status::of(status);
    return Request(request);
  }

  /// Runs what `body` calls on this communicator as one group: sends and receives in it may cross.
  template <std::invocable Body>
  Status group(Body body) {
    if (const int status = amldist_group_begin(get()); status != AMLDIST_OK) return Status::of(status);
    body();
    return Status::of(amldist_group_end(get()));
  }

  /// nullopt for a negative colour.
  Expected<std::optional<Communicator>> split(int color, int key = 0) {
    amldist_comm* out = nullptr;
    const int status = amldist_split(get(), color, key, &out);
    if (status != AMLDIST_OK) return Status::of(status);
    return out == nullptr ? std::optional<Communicator>() : std::optional(Communicator(out));
  }

  template <Element T>
  Expected<Buffer<T>> allocate(std::size_t count) {
    void* memory = nullptr;
    const int status = amldist_alloc(get(), count * sizeof(T), &memory);
    if (status != AMLDIST_OK) return Status::of(status);
    return Buffer<T>(get(), static_cast<T*>(memory), count);
  }

  Status set_timeout(std::chrono::milliseconds timeout) {
    return Status::of(amldist_set_timeout(get(), static_cast<int>(timeout.count())));
  }
  Status set_deterministic(bool on) { return Status::of(amldist_set_deterministic(get(), on ? 1 : 0)); }
  Status abort() { return Status::of(amldist_abort(get())); }
  Status health() const { return Status::of(amldist_health(get())); }
  /// Ends the communicator now, with its status; the object is empty afterwards.
  Status finalize() { return Status::of(amldist_finalize(comm_.release())); }

  /// For the C interface.
  [[nodiscard]] amldist_comm* get() const noexcept { return comm_.get(); }

 private:
  struct Finalizer {
    void operator()(amldist_comm* comm) const noexcept { static_cast<void>(amldist_finalize(comm)); }
  };
  explicit Communicator(amldist_comm* comm) noexcept : comm_(comm) {}

  template <typename T>
  static constexpr amldist_type type() noexcept {
    return static_cast<amldist_type>(type_of<std::remove_const_t<T>>);
  }
  static constexpr amldist_op raw(Op op) noexcept { return static_cast<amldist_op>(op); }
  [[nodiscard]] std::size_t ranks() const noexcept { return static_cast<std::size_t>(size()); }
  template <typename A, typename B>
  static std::size_t shorter(A a, B b) noexcept {
    return a.size() < b.size() ? a.size() : b.size();
  }
  static Status too_short(const char* operation) {
    return {AMLDIST_EINVAL, std::string(operation) + ": a span is too short for the number of ranks"};
  }

  std::unique_ptr<amldist_comm, Finalizer> comm_;
};

}  // namespace amldist
