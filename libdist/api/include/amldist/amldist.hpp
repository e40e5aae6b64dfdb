// aml-dist: the C++20 interface of libamldist, header-only over the C interface.
//
//   amldist::Communicator world = amldist::Communicator::init().value();
//   std::vector<float> gradients = ...;
//   if (auto status = world.allreduce(std::span(gradients), amldist::Op::avg); !status) die(status.message());
//
// Buffers are spans; the element type follows from them. Every function that can fail returns an Expected or a Status,
// which the compiler does not let you ignore. All else is as amldist.h says, each function of which is reachable from
// here or from reducer.hpp. Spans that do not fit together are refused before anything is sent. Since 0.1.
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

enum class Float16 : std::uint16_t {};  ///< Bits for buffers, without arithmetic.
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
inline constexpr int type_of<bool> = AMLDIST_BOOL;
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

enum class Op : int {
  sum = AMLDIST_SUM,
  prod = AMLDIST_PROD,
  max = AMLDIST_MAX,
  min = AMLDIST_MIN,
  avg = AMLDIST_AVG,
  band = AMLDIST_BAND,
  bor = AMLDIST_BOR,
  bxor = AMLDIST_BXOR
};

/// The result of a call: its status and, if it failed, the sentence for people.
class [[nodiscard]] Status {
 public:
  Status() = default;
  /// The status of this thread's last call.
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

/// A value, or the status that says why there is no value.
template <typename T>
class [[nodiscard]] Expected {
 public:
  Expected(T value) : value_(std::move(value)) {}          // NOLINT(google-explicit-constructor)
  Expected(Status status) : status_(std::move(status)) {}  // NOLINT(google-explicit-constructor)
  [[nodiscard]] bool ok() const noexcept { return value_.has_value(); }
  explicit operator bool() const noexcept { return ok(); }
  /// Throws std::bad_optional_access if there is no value.
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

/// Release of the library, "MAJOR.MINOR.PATCH".
[[nodiscard]] inline std::string_view version() noexcept { return amldist_version(); }
/// Whether this process has heard that it should stop; others may not have heard yet.
[[nodiscard]] inline bool stop_requested() noexcept { return amldist_stop_requested() != 0; }
/// From now on srun says with which assertion or exception this process ended; false outside of a step of aml-dist.
inline bool report_faults() noexcept { return amldist_report_faults(0, -1) != 0; }

/// The identity of this process in its step, without a communicator.
[[nodiscard]] inline Expected<amldist_identity> get_identity() {
  amldist_identity identity = {};
  identity.struct_size = sizeof identity;
  const int status = amldist_get_identity(&identity);
  if (status != AMLDIST_OK) return Status::of(status);
  return identity;
}

/// This thread's last failed call in numbers. The texts are valid until its next failing call.
[[nodiscard]] inline amldist_error last_error() noexcept {
  amldist_error error = {};
  error.struct_size = sizeof error;
  static_cast<void>(amldist_get_error(&error));
  return error;
}
/// amldist_set_interrupt(), for the calling thread.
inline void set_interrupt(amldist_interrupt_function function, void* context = nullptr) noexcept {
  static_cast<void>(amldist_set_interrupt(function, context));
}
/// Checks an option text as srun does: "pytorch,master_port=6105".
inline Status check_option(const std::string& text) { return Status::of(amldist_check_option(text.c_str())); }
/// The result of `aml-dist check` on this node.
struct NodeVerification {
  amldist_verdict verdict = AMLDIST_VERDICT_SKIP;
  std::string json;  ///< the object of aml-dist-check(1)
};
/// `policy`: "require", "prefer" or "off"; `sku`: a name of aml-dist-skus(5), or empty.
[[nodiscard]] inline Expected<NodeVerification> verify_node(const std::string& policy, const std::string& sku = {}) {
  constexpr std::size_t always_enough = 64 * 1024;
  NodeVerification out;
  out.json.resize(always_enough);
  const int verdict =
      amldist_verify_node(policy.c_str(), sku.empty() ? nullptr : sku.c_str(), out.json.data(), out.json.size());
  if (verdict < 0) return Status::of(verdict);
  out.verdict = static_cast<amldist_verdict>(verdict);
  out.json.resize(out.json.find('\0'));
  return out;
}

/// Where each rank's elements lie in a buffer: `counts[rank]` of them from `offsets[rank]` on. One entry per rank.
struct Blocks {
  std::span<const std::size_t> counts;
  std::span<const std::size_t> offsets;
};

/// Tag of a message: a receive gets one with the same number, 0 or more.
struct Tag {
  int number = 0;
};
inline constexpr int any_source = AMLDIST_ANY_SOURCE;

/// A call in progress. Move-only; the destructor waits for its end.
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
  /// The same, after waiting at most this long.
  [[nodiscard]] Expected<bool> wait_for(std::chrono::milliseconds most) {
    int done = 0;
    const int status = amldist_wait_for(&request_, static_cast<int>(most.count()), &done);
    if (status != AMLDIST_OK) return Status::of(status);
    return done != 0;
  }
  /// amldist_on_complete(): `function` is called once, with `context`, by the thread that completes the call.
  Status on_complete(amldist_complete_function function, void* context) {
    return Status::of(amldist_on_complete(request_, function, context));
  }

 private:
  amldist_request* request_;
};

/// Memory that collectives use without copying: from amldist_alloc(), or the program's own, registered until the
/// destruction. Move-only; must go before its communicator, and before memory of the program's own.
template <Element T>
class Buffer {
 public:
  Buffer(amldist_comm* comm, T* data, std::size_t count, bool is_registered = false) noexcept
      : data_(data, Deleter{comm, is_registered}), count_(count) {}
  [[nodiscard]] std::span<T> span() const noexcept { return {data_.get(), count_}; }
  [[nodiscard]] T* data() const noexcept { return data_.get(); }
  [[nodiscard]] std::size_t size() const noexcept { return count_; }

 private:
  struct Deleter {
    amldist_comm* comm;
    bool is_registered;
    void operator()(T* data) const noexcept {
      static_cast<void>(is_registered ? amldist_deregister(comm, data) : amldist_free(comm, data));
    }
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
  /// A world whose ranks find each other through a store of the caller.
  static Expected<Communicator> init(const amldist_store& store, int rank, int size,
                                     std::chrono::milliseconds timeout = {}) {
    amldist_comm* comm = nullptr;
    const int status = amldist_init_store(&comm, &store, rank, size, static_cast<int>(timeout.count()));
    if (status != AMLDIST_OK) return Status::of(status);
    return Communicator(comm);
  }
  /// A world that the caller describes; struct_size is set here.
  static Expected<Communicator> init(amldist_config config, std::chrono::milliseconds timeout = {}) {
    amldist_comm* comm = nullptr;
    config.struct_size = sizeof config;
    const int status = amldist_init_config(&comm, &config, static_cast<int>(timeout.count()));
    if (status != AMLDIST_OK) return Status::of(status);
    return Communicator(comm);
  }

  [[nodiscard]] int rank() const noexcept { return amldist_rank(get()); }
  [[nodiscard]] int size() const noexcept { return amldist_size(get()); }
  [[nodiscard]] int local_rank() const noexcept { return amldist_local_rank(get()); }
  [[nodiscard]] int local_size() const noexcept { return amldist_local_size(get()); }
  [[nodiscard]] int node_rank() const noexcept { return amldist_node_rank(get()); }
  [[nodiscard]] int nodes() const noexcept { return amldist_nodes(get()); }
  [[nodiscard]] std::string_view host(int rank) const noexcept { return view(amldist_host(get(), rank)); }
  [[nodiscard]] std::string_view task_map() const noexcept { return view(amldist_task_map(get())); }
  [[nodiscard]] std::string_view provenance() const noexcept { return view(amldist_provenance(get())); }

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
  /// Only the root uses recv; there it is as long as send.
  template <Element T>
  Status reduce(std::span<const T> send, std::span<T> recv, int root, Op op = Op::sum) {
    if (rank() == root && recv.size() < send.size()) return too_short("reduce");
    return Status::of(amldist_reduce(get(), send.data(), recv.data(), send.size(), type<T>(), raw(op), root));
  }
  template <Element T>
  Status broadcast(std::span<T> data, int root) {
    return Status::of(amldist_broadcast(get(), data.data(), data.size(), type<T>(), root));
  }
  /// recv has room for size() times send.
  template <Element T>
  Status allgather(std::span<const T> send, std::span<T> recv) {
    if (share(recv) < send.size()) return too_short("allgather");
    return Status::of(amldist_allgather(get(), send.data(), recv.data(), send.size(), type<T>()));
  }
  /// send has as many elements as `blocks` has for this rank.
  template <Element T>
  Status allgatherv(std::span<const T> send, std::span<T> recv, Blocks blocks) {
    if (Status status = check("allgatherv", blocks, recv.size()); !status) return status;
    return Status::of(amldist_allgatherv(get(), send.data(), send.size(), recv.data(), blocks.counts.data(),
                                         blocks.offsets.data(), type<T>()));
  }
  /// send has size() times recv.
  template <Element T>
  Status reduce_scatter(std::span<const T> send, std::span<T> recv, Op op = Op::sum) {
    if (share(send) < recv.size()) return too_short("reduce_scatter");
    return Status::of(amldist_reduce_scatter(get(), send.data(), recv.data(), recv.size(), type<T>(), raw(op)));
  }
  /// recv gets as many elements as `blocks` has for this rank.
  template <Element T>
  Status reduce_scatterv(std::span<const T> send, std::span<T> recv, Blocks blocks, Op op = Op::sum) {
    if (Status status = check_shares("reduce_scatterv", blocks, send.size(), recv.size()); !status) return status;
    return Status::of(amldist_reduce_scatterv(get(), send.data(), recv.data(), blocks.counts.data(),
                                              blocks.offsets.data(), type<T>(), raw(op)));
  }
  /// Both have size() equal parts.
  template <Element T>
  Status alltoall(std::span<const T> send, std::span<T> recv) {
    if (Status status = check_alltoall(send.size(), recv.size()); !status) return status;
    return Status::of(amldist_alltoall(get(), send.data(), recv.data(), share(send), type<T>()));
  }
  template <Element T>
  Status alltoallv(std::span<const T> send, Blocks send_blocks, std::span<T> recv, Blocks recv_blocks) {
    if (Status status = check("alltoallv", send_blocks, send.size()); !status) return status;
    if (Status status = check("alltoallv", recv_blocks, recv.size()); !status) return status;
    return Status::of(amldist_alltoallv(get(), send.data(), send_blocks.counts.data(), send_blocks.offsets.data(),
                                        recv.data(), recv_blocks.counts.data(), recv_blocks.offsets.data(), type<T>()));
  }
  template <Element T>
  Status gather(std::span<const T> send, std::span<T> recv, int root) {
    if (rank() == root && share(recv) < send.size()) return too_short("gather");
    return Status::of(amldist_gather(get(), send.data(), recv.data(), send.size(), type<T>(), root));
  }
  template <Element T>
  Status scatter(std::span<const T> send, std::span<T> recv, int root) {
    if (rank() == root && share(send) < recv.size()) return too_short("scatter");
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
  template <Element T>
  Status send(std::span<const T> data, int peer, Tag tag) {
    return Status::of(amldist_send_tagged(get(), data.data(), data.size(), type<T>(), peer, tag.number));
  }
  /// peer: any_source for the first to arrive; `source` becomes the sender's rank.
  template <Element T>
  Status recv(std::span<T> data, int peer, Tag tag, int* source = nullptr) {
    return Status::of(amldist_recv_tagged(get(), data.data(), data.size(), type<T>(), peer, tag.number, source));
  }
  Status barrier() { return Status::of(amldist_barrier(get())); }

  // The same without waiting. Spans stay the caller's until the request is done; counts and offsets are copied.

  /// In place.
  template <Element T>
  Expected<Request> iallreduce(std::span<T> data, Op op = Op::sum) {
    return begin([&](amldist_request** request) {
      return amldist_iallreduce(get(), data.data(), data.data(), data.size(), type<T>(), raw(op), request);
    });
  }
  /// The shorter span counts.
  template <Element T>
  Expected<Request> iallreduce(std::span<const T> send, std::span<T> recv, Op op = Op::sum) {
    return begin([&](amldist_request** request) {
      return amldist_iallreduce(get(), send.data(), recv.data(), shorter(send, recv), type<T>(), raw(op), request);
    });
  }
  template <Element T>
  Expected<Request> ireduce(std::span<const T> send, std::span<T> recv, int root, Op op = Op::sum) {
    if (rank() == root && recv.size() < send.size()) return too_short("ireduce");
    return begin([&](amldist_request** request) {
      return amldist_ireduce(get(), send.data(), recv.data(), send.size(), type<T>(), raw(op), root, request);
    });
  }
  template <Element T>
  Expected<Request> ibroadcast(std::span<T> data, int root) {
    return begin([&](amldist_request** request) {
      return amldist_ibroadcast(get(), data.data(), data.size(), type<T>(), root, request);
    });
  }
  template <Element T>
  Expected<Request> iallgather(std::span<const T> send, std::span<T> recv) {
    if (share(recv) < send.size()) return too_short("iallgather");
    return begin([&](amldist_request** request) {
      return amldist_iallgather(get(), send.data(), recv.data(), send.size(), type<T>(), request);
    });
  }
  template <Element T>
  Expected<Request> iallgatherv(std::span<const T> send, std::span<T> recv, Blocks blocks) {
    if (Status status = check("iallgatherv", blocks, recv.size()); !status) return status;
    return begin([&](amldist_request** request) {
      return amldist_iallgatherv(get(), send.data(), send.size(), recv.data(), blocks.counts.data(),
                                 blocks.offsets.data(), type<T>(), request);
    });
  }
  template <Element T>
  Expected<Request> ireduce_scatter(std::span<const T> send, std::span<T> recv, Op op = Op::sum) {
    if (share(send) < recv.size()) return too_short("ireduce_scatter");
    return begin([&](amldist_request** request) {
      return amldist_ireduce_scatter(get(), send.data(), recv.data(), recv.size(), type<T>(), raw(op), request);
    });
  }
  template <Element T>
  Expected<Request> ireduce_scatterv(std::span<const T> send, std::span<T> recv, Blocks blocks, Op op = Op::sum) {
    if (Status status = check_shares("ireduce_scatterv", blocks, send.size(), recv.size()); !status) return status;
    return begin([&](amldist_request** request) {
      return amldist_ireduce_scatterv(get(), send.data(), recv.data(), blocks.counts.data(), blocks.offsets.data(),
                                      type<T>(), raw(op), request);
    });
  }
  template <Element T>
  Expected<Request> ialltoall(std::span<const T> send, std::span<T> recv) {
    if (Status status = check_alltoall(send.size(), recv.size()); !status) return status;
    return begin([&](amldist_request** request) {
      return amldist_ialltoall(get(), send.data(), recv.data(), share(send), type<T>(), request);
    });
  }
  template <Element T>
  Expected<Request> ialltoallv(std::span<const T> send, Blocks send_blocks, std::span<T> recv, Blocks recv_blocks) {
    if (Status status = check("ialltoallv", send_blocks, send.size()); !status) return status;
    if (Status status = check("ialltoallv", recv_blocks, recv.size()); !status) return status;
    return begin([&](amldist_request** request) {
      return amldist_ialltoallv(get(), send.data(), send_blocks.counts.data(), send_blocks.offsets.data(), recv.data(),
                                recv_blocks.counts.data(), recv_blocks.offsets.data(), type<T>(), request);
    });
  }
  template <Element T>
  Expected<Request> igather(std::span<const T> send, std::span<T> recv, int root) {
    if (rank() == root && share(recv) < send.size()) return too_short("igather");
    return begin([&](amldist_request** request) {
      return amldist_igather(get(), send.data(), recv.data(), send.size(), type<T>(), root, request);
    });
  }
  template <Element T>
  Expected<Request> iscatter(std::span<const T> send, std::span<T> recv, int root) {
    if (rank() == root && share(send) < recv.size()) return too_short("iscatter");
    return begin([&](amldist_request** request) {
      return amldist_iscatter(get(), send.data(), recv.data(), recv.size(), type<T>(), root, request);
    });
  }
  template <Element T>
  Expected<Request> isend(std::span<const T> data, int peer) {
    return begin([&](amldist_request** request) {
      return amldist_isend(get(), data.data(), data.size(), type<T>(), peer, request);
    });
  }
  template <Element T>
  Expected<Request> irecv(std::span<T> data, int peer) {
    return begin([&](amldist_request** request) {
      return amldist_irecv(get(), data.data(), data.size(), type<T>(), peer, request);
    });
  }
  template <Element T>
  Expected<Request> isend(std::span<const T> data, int peer, Tag tag) {
    return begin([&](amldist_request** request) {
      return amldist_isend_tagged(get(), data.data(), data.size(), type<T>(), peer, tag.number, request);
    });
  }
  template <Element T>
  Expected<Request> irecv(std::span<T> data, int peer, Tag tag, int* source = nullptr) {
    return begin([&](amldist_request** request) {
      return amldist_irecv_tagged(get(), data.data(), data.size(), type<T>(), peer, tag.number, source, request);
    });
  }
  Expected<Request> ibarrier() {
    return begin([&](amldist_request** request) { return amldist_ibarrier(get(), request); });
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

  /// After a loss: a communicator of the remaining ranks. This one stays until it is finalized.
  Expected<Communicator> shrink() {
    amldist_comm* survivors = nullptr;
    const int status = amldist_shrink(get(), &survivors);
    if (status != AMLDIST_OK) return Status::of(status);
    return Communicator(survivors);
  }
  /// `flags` becomes the AND of the remaining ranks' flags, also with AMLDIST_EPEER, for ranks that were lost.
  Status agree(int& flags) { return Status::of(amldist_agree(get(), &flags)); }
  /// `stop` becomes 1 if the ranks should save and end; the same on all of them at the same call.
  Status should_stop(int& stop) { return Status::of(amldist_should_stop(get(), &stop)); }

  template <Element T>
  Expected<Buffer<T>> allocate(std::size_t count) {
    void* memory = nullptr;
    const int status = amldist_alloc(get(), count * sizeof(T), &memory);
    if (status != AMLDIST_OK) return Status::of(status);
    return Buffer<T>(get(), static_cast<T*>(memory), count);
  }
  /// Whole pages of private memory; see amldist_register().
  template <Element T>
  Expected<Buffer<T>> register_memory(std::span<T> memory) {
    const int status = amldist_register(get(), memory.data(), memory.size_bytes());
    if (status != AMLDIST_OK) return Status::of(status);
    return Buffer<T>(get(), memory.data(), memory.size(), true);
  }

  Status set_timeout(std::chrono::milliseconds timeout) {
    return Status::of(amldist_set_timeout(get(), static_cast<int>(timeout.count())));
  }
  Status set_deterministic(bool on) { return Status::of(amldist_set_deterministic(get(), on ? 1 : 0)); }
  /// CUDA stream (cudaStream_t) for calls on device buffers; nullptr: the default stream.
  Status set_stream(void* stream) { return Status::of(amldist_set_stream(get(), stream)); }
  /// Receives the lines that would go to standard error; nullptr: standard error again.
  Status set_log(amldist_log_function function, void* context = nullptr) {
    return Status::of(amldist_set_log(get(), function, context));
  }
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

  static std::string_view view(const char* text) noexcept { return text != nullptr ? text : std::string_view(); }
  template <typename T>
  static constexpr amldist_type type() noexcept {
    return static_cast<amldist_type>(type_of<std::remove_const_t<T>>);
  }
  static constexpr amldist_op raw(Op op) noexcept { return static_cast<amldist_op>(op); }
  [[nodiscard]] std::size_t ranks() const noexcept { return static_cast<std::size_t>(size()); }
  /// Whole elements of a buffer for each rank.
  template <typename T>
  [[nodiscard]] std::size_t share(std::span<T> data) const noexcept {
    return data.size() / ranks();
  }
  template <typename Call>
  static Expected<Request> begin(Call call) {
    amldist_request* request = nullptr;
    if (const int status = call(&request); status != AMLDIST_OK) return Status::of(status);
    return Request(request);
  }
  template <typename A, typename B>
  static std::size_t shorter(A a, B b) noexcept {
    return a.size() < b.size() ? a.size() : b.size();
  }
  static Status too_short(const char* operation) {
    return {AMLDIST_EINVAL, std::string(operation) + ": a span is too short for the number of ranks"};
  }
  [[nodiscard]] Status check_alltoall(std::size_t send, std::size_t recv) const {
    if (size() > 0 && send % ranks() != 0) {
      return {AMLDIST_EINVAL, "alltoall: " + std::to_string(send) + " elements cannot be divided among " +
                                  std::to_string(size()) + " ranks: give a multiple, or use alltoallv"};
    }
    return recv < send ? too_short("alltoall") : Status();
  }
  /// Whether `blocks` has one entry per rank, all within `elements`.
  [[nodiscard]] Status check_shares(const char* operation, Blocks blocks, std::size_t given, std::size_t taken) const {
    if (Status status = check(operation, blocks, given); !status) return status;
    return taken < blocks.counts[static_cast<std::size_t>(rank())] ? too_short(operation) : Status();
  }
  [[nodiscard]] Status check(const char* operation, Blocks blocks, std::size_t elements) const {
    const int members = size();
    if (members < 0) return Status::of(members);
    if (blocks.counts.size() != ranks() || blocks.offsets.size() != ranks()) {
      return {AMLDIST_EINVAL, std::string(operation) + ": counts and offsets must have one entry for each of the " +
                                  std::to_string(members) + " ranks"};
    }
    for (std::size_t rank = 0; rank < ranks(); ++rank) {
      const bool inside = blocks.counts[rank] <= elements && blocks.offsets[rank] <= elements - blocks.counts[rank];
      if (inside || blocks.counts[rank] == 0) continue;
      return {AMLDIST_EINVAL, std::string(operation) + ": the elements of rank " + std::to_string(rank) +
                                  " lie beyond the end of the span"};
    }
    return {};
  }

  std::unique_ptr<amldist_comm, Finalizer> comm_;
};

}  // namespace amldist
