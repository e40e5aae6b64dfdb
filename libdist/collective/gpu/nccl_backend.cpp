#include "collective/gpu/nccl_backend.hpp"

#include <array>
#include <cstring>
#include <optional>
#include <thread>

#include "base/text/text.hpp"

namespace amldist::collective {
namespace {

using text::concat;

constexpr int cuda_success = 0;
constexpr int cuda_not_ready = 600;

/// Pauses between two polls: at first only a yield, because most results come within microseconds.
class Backoff {
 public:
  void wait() {
    if (++polls_ <= 64) std::this_thread::yield();
    else std::this_thread::sleep_for(std::chrono::microseconds(polls_ <= 256 ? 20 : 500));
  }

 private:
  unsigned polls_ = 0;
};

/// An element type that NCCL can move, and the number of its elements: bools, int16 and uint16 travel as bytes.
struct Elements {
  int type;
  std::size_t factor;
};

Elements moved_as(calls::DataType type) noexcept {
  if (type == calls::DataType::boolean) return {static_cast<int>(calls::DataType::uint8), 1};
  const bool known = type != calls::DataType::int16 && type != calls::DataType::uint16;
  return known ? Elements{static_cast<int>(type), 1} : Elements{static_cast<int>(calls::DataType::uint8), 2};
}

/// NCCL's operator. The or of bools is their maximum, the and their minimum; nullopt if NCCL lacks the operator.
std::optional<int> operator_of(const calls::Call& call) noexcept {
  const bool is_or =
      call.redop == calls::ReduceOp::sum || call.redop == calls::ReduceOp::max || call.redop == calls::ReduceOp::bor;
  if (call.type == calls::DataType::boolean && call.redop != calls::ReduceOp::bxor)
    return static_cast<int>(is_or ? calls::ReduceOp::max : calls::ReduceOp::min);
  return is_bitwise(call.redop) ? std::nullopt : std::optional(static_cast<int>(call.redop));
}

const void* advanced(const void* base, std::size_t elements, calls::DataType type) noexcept {
  return static_cast<const std::byte*>(base) + elements * size_of(type);
}
void* advanced(void* base, std::size_t elements, calls::DataType type) noexcept {
  return static_cast<std::byte*>(base) + elements * size_of(type);
}

// Before NCCL starts, ranks exchange "+VERSION;" and rank 0's id, or "-" and why they cannot use it.
std::string offer_text(const NcclApi& api, const NcclUniqueId* id) {
  std::string piece = concat({"+", std::to_string(api.version), ";"});
  if (id != nullptr) piece.append(id->bytes, sizeof id->bytes);
  return piece;
}

struct Offer {
  int version = 0;
  std::string_view id;
  std::string problem;  ///< if not empty: why this rank cannot use NCCL
};

Offer parse_offer(std::string_view piece) {
  const auto end = piece.find(';');
  if (piece.empty() || piece[0] != '+' || end == std::string_view::npos) {
    return {0, {}, piece.size() > 1 ? std::string(piece.substr(1)) : "it sent nothing"};
  }
  const auto version = text::to_number(piece.substr(1, end - 1), 1'000'000);
  if (!version) return {0, {}, "it sent a malformed message"};
  return {static_cast<int>(*version), piece.substr(end + 1), {}};
}

Error error_of_rank(std::size_t rank, std::string_view why) {
  return {Errc::unavailable, concat({"no communicator on GPUs: rank ", std::to_string(rank), ": ", why})};
}

/// Turns every rank's piece into rank 0's id, or into the same error on all ranks.
Result<NcclUniqueId> agree(const std::vector<std::string>& pieces) {
  NcclUniqueId id = {};
  const Offer first = parse_offer(pieces.at(0));
  for (std::size_t rank = 0; rank < pieces.size(); ++rank) {
    const Offer offer = parse_offer(pieces[rank]);
    if (!offer.problem.empty()) return error_of_rank(rank, offer.problem);
    if (offer.version / 100 != first.version / 100) {
      return Error{Errc::mismatch,
                   concat({"no communicator on GPUs: rank 0 has NCCL ", nccl_version_name(first.version), " and rank ",
                           std::to_string(rank), " has ", nccl_version_name(offer.version),
                           ": give all ranks the same library"})};
    }
  }
  if (first.id.size() != sizeof id.bytes) return error_of_rank(0, "it sent no NCCL unique id");
  std::memcpy(id.bytes, first.id.data(), sizeof id.bytes);
  return id;
}

/// The second round: whether NCCL started on all ranks.
Result<void> confirm(calls::Exchange& exchange, const Result<void>& own, Clock::time_point deadline) {
  constexpr auto grace = std::chrono::seconds(2);  // ranks that ran into the deadline are on their way here
  const auto pieces = exchange.gather_all(own ? "+" : concat({"-", own.error().message}), deadline + grace);
  if (!own) return own.error();
  if (!pieces) return pieces.error();
  for (std::size_t rank = 0; rank < pieces->size(); ++rank) {
    const std::string& piece = (*pieces)[rank];
    if (piece != "+") return error_of_rank(rank, piece.empty() ? "it sent nothing" : piece.substr(1));
  }
  return {};
}

}  // namespace

Result<void> NcclBackend::supports(const calls::Call& call) {
  if (is_reduction(call.operation) && moved_as(call.type).factor != 1) {
    return Error{Errc::unavailable, concat({"NCCL cannot combine ", to_string(call.type),
                                            ": use int32, or a buffer in the host's memory"})};
  }
  if (is_reduction(call.operation) && !operator_of(call)) {
    return Error{Errc::unavailable, concat({"NCCL cannot combine ", to_string(call.type), " by ", to_string(call.redop),
                                            ": use a buffer in the host's memory"})};
  }
  if (call.tag > 0 || (call.operation == calls::Operation::recv && call.root == calls::Call::any_source)) {
    return Error{Errc::unavailable, concat({to_string(call.operation),
                                            ": NCCL has no tags and no AMLDIST_ANY_SOURCE: use tag 0 and a rank, or a "
                                            "buffer in host memory"})};
  }
  if (call.operation == calls::Operation::alltoall && call.send == call.recv && call.count != 0) {
    return Error{Errc::unavailable, "NCCL cannot run an alltoall in place: give it a second buffer"};
  }
  return {};
}

NcclBackend::NcclBackend(NcclApi api, const CudaDriver& driver, DeviceContext context, int rank, int size)
    : api_(std::move(api)), driver_(&driver), context_(std::move(context)), rank_(rank), size_(size) {}

Result<std::unique_ptr<NcclBackend>> NcclBackend::create(Result<NcclApi> api, const CudaDriver& driver, int device,
                                                         calls::Exchange& exchange, Clock::time_point deadline) {
  NcclUniqueId id = {};
  std::string piece;
  auto context = DeviceContext::retain(driver, device);
  if (!api) piece = concat({"-", api.error().message});
  else if (!context) piece = concat({"-", context.error().message});
  else if (exchange.rank() == 0 && api->get_unique_id(&id) != nccl_success) piece = "-ncclGetUniqueId failed";
  else piece = offer_text(*api, exchange.rank() == 0 ? &id : nullptr);

  const auto pieces = exchange.gather_all(std::move(piece), deadline);
  if (!pieces) return pieces.error();
  const auto agreed = agree(*pieces);
  if (!agreed) return agreed.error();
  std::unique_ptr<NcclBackend> made(
      new NcclBackend(std::move(*api), driver, std::move(*context), exchange.rank(), exchange.size()));
  const auto started = made->start(*agreed, deadline);
  if (auto status = confirm(exchange, started, deadline); !status) {
    made->give_up();
    return status.error();
  }
  return made;
}

Result<void> NcclBackend::start(const NcclUniqueId& id, Clock::time_point deadline) {
  const std::scoped_lock lock(in_use_);
  const DeviceContext::Current current(context_);
  NcclConfig config;
  const auto in_time = [&]() -> Result<void> {
    if (Clock::now() < deadline) return {};
    return Error{Errc::timeout, "NCCL did not start before the deadline: some rank has not made this call"};
  };
  return end(settle(api_.init_rank_config(&comm_, size_, id, rank_, &config), "start", in_time));
}

NcclBackend::~NcclBackend() {
  const std::scoped_lock lock(in_use_);
  const DeviceContext::Current current(context_);
  for (const auto& [memory, registered] : memory_) {
    if (comm_ != nullptr && registered.handle != nullptr) api_.comm_deregister(comm_, registered.handle);
    api_.mem_free(memory);
  }
  if (scratch_ != nullptr) api_.mem_free(scratch_);
  if (comm_ == nullptr) return;
  // The communicator is idle by contract, so this takes milliseconds; a rank that hangs must not delay the others.
  const auto deadline = Clock::now() + std::chrono::seconds(5);
  const auto in_time = [deadline]() -> Result<void> {
    if (Clock::now() < deadline) return {};
    return Error{Errc::timeout, "ncclCommFinalize did not complete"};
  };
  if (settle(api_.finalize(comm_), "finalize", in_time)) api_.destroy(comm_);
  else give_up();
}

void NcclBackend::give_up() noexcept {
  if (comm_ == nullptr) return;
  api_.abort(comm_);  // frees it too
  comm_ = nullptr;
}

void NcclBackend::abort() noexcept {
  abort_asked_ = true;
  const std::unique_lock lock(in_use_, std::try_to_lock);
  if (!lock) return;  // the thread that holds it will see the flag
  const DeviceContext::Current current(context_);
  give_up();
}

/// Ends every use of comm_: aborts it after an error, or if another thread has asked for it meanwhile.
Result<void> NcclBackend::end(Result<void> result) {
  if (abort_asked_ && result) result = Error{Errc::aborted, "the communicator was aborted"};
  if (!result) give_up();
  return result;
}

Error NcclBackend::error_of(int result, std::string_view what) const {
  const char* const words = api_.error_string(result);
  const char* const detail = api_.last_error(comm_);
  std::string sentence = concat({"NCCL cannot ", what, ": ", words != nullptr ? words : "unknown error"});
  if (detail != nullptr && *detail != '\0') sentence += concat({" (", detail, ")"});
  for (char& c : sentence) {
    if (c < ' ' || c >= 0x7f) c = ' ';
  }
  return {result == nccl_remote_error ? Errc::peer : Errc::unavailable, sentence.substr(0, 480)};
}

/// Polls until NCCL knows the result of a call that returned `result`.
template <typename KeepWaiting>
Result<void> NcclBackend::settle(int result, std::string_view what, KeepWaiting keep_waiting) {
  Backoff backoff;
  while (result == nccl_in_progress) {
    if (abort_asked_) return Error{Errc::aborted, "the communicator was aborted"};
    if (auto status = keep_waiting(); !status) return status;
    backoff.wait();
    if (const int asked = api_.get_async_error(comm_, &result); asked != nccl_success) result = asked;
  }
  if (result != nccl_success) return error_of(result, what);
  return {};
}

Result<void> NcclBackend::settle(int result, std::string_view what, calls::Watchdog& watchdog) {
  return settle(result, what, [&watchdog] { return watchdog.keep_waiting(calls::Watchdog::anyone); });
}

/// One group around several NCCL calls: the first error is kept, and the group is always closed.
template <typename Enqueue>
int NcclBackend::grouped(Enqueue enqueue) {
  if (const int result = api_.group_start(); result != nccl_success) return result;
  const int inside = enqueue();
  const int result = api_.group_end();
  return inside != nccl_success && inside != nccl_in_progress ? inside : result;
}

int NcclBackend::enqueue_message(const calls::Call& message) {
  const auto [type, factor] = moved_as(message.type);
  const std::size_t count = message.count * factor;
  if (message.operation == calls::Operation::send) {
    return api_.send(message.send, count, type, message.root, comm_, message.stream);
  }
  if (message.source != nullptr) *message.source = message.root;
  return api_.recv(message.recv, count, type, message.root, comm_, message.stream);
}

int NcclBackend::barrier(void* stream) {
  constexpr std::size_t bytes = 16;
  if (scratch_ == nullptr) {
    if (const int result = api_.mem_alloc(&scratch_, bytes); result != nccl_success) return result;
  }
  return api_.all_reduce(scratch_, scratch_, 1, static_cast<int>(calls::DataType::uint8),
                         static_cast<int>(calls::ReduceOp::max), comm_, stream);
}

/// Operations that NCCL, or this release of it, lacks, built from sends and receives of each rank's piece.
int NcclBackend::enqueue_pieces(const calls::Call& call) {
  const auto [type, factor] = moved_as(call.type);
  const bool rooted = call.operation == calls::Operation::gather || call.operation == calls::Operation::scatter;
  const bool v = call.operation == calls::Operation::alltoallv;
  const auto sends_to = [&](int peer) {
    return call.operation == calls::Operation::gather ? peer == call.root : !rooted || rank_ == call.root;
  };
  const auto receives_from = [&](int peer) {
    return call.operation == calls::Operation::scatter ? peer == call.root : !rooted || rank_ == call.root;
  };
  int result = nccl_success;
  for (int peer = 0; peer < size_ && (result == nccl_success || result == nccl_in_progress); ++peer) {
    const auto at = static_cast<std::size_t>(peer);
    if (sends_to(peer)) {
      const std::size_t count = v ? call.lists->send_counts[at] : call.count;
      const std::size_t offset = v                                            ? call.lists->send_offsets[at]
                                 : call.operation == calls::Operation::gather ? 0
                                                                              : at * call.count;
      result = api_.send(advanced(call.send, offset, call.type), count * factor, type, peer, comm_, call.stream);
    }
    if (receives_from(peer) && (result == nccl_success || result == nccl_in_progress)) {
      const std::size_t count = v ? call.lists->recv_counts[at] : call.count;
      const std::size_t offset = v                                             ? call.lists->recv_offsets[at]
                                 : call.operation == calls::Operation::scatter ? 0
                                                                               : at * call.count;
      result = api_.recv(advanced(call.recv, offset, call.type), count * factor, type, peer, comm_, call.stream);
    }
  }
  return result;
}

int NcclBackend::enqueue(const calls::Call& call) {
  const auto [type, factor] = moved_as(call.type);
  const int op = operator_of(call).value_or(0);  // supports() has checked it
  const std::size_t count = call.count * factor;
  const auto in_pieces = [&] { return grouped([&] { return enqueue_pieces(call); }); };
  switch (call.operation) {
    case calls::Operation::allreduce:
      return api_.all_reduce(call.send, call.recv, count, type, op, comm_, call.stream);
    case calls::Operation::reduce:
      return api_.reduce(call.send, call.recv, count, type, op, call.root, comm_, call.stream);
    case calls::Operation::broadcast:
      return api_.broadcast(call.send, call.recv, count, type, call.root, comm_, call.stream);
    case calls::Operation::allgather:
      return api_.all_gather(call.send, call.recv, count, type, comm_, call.stream);
    case calls::Operation::reduce_scatter:
      return api_.reduce_scatter(call.send, call.recv, count, type, op, comm_, call.stream);
    case calls::Operation::alltoall:
      if (api_.all_to_all == nullptr) return in_pieces();
      return api_.all_to_all(call.send, call.recv, count, type, comm_, call.stream);
    case calls::Operation::gather:
      if (api_.gather == nullptr) return in_pieces();
      return api_.gather(call.send, call.recv, count, type, call.root, comm_, call.stream);
    case calls::Operation::scatter:
      if (api_.scatter == nullptr) return in_pieces();
      return api_.scatter(call.send, call.recv, count, type, call.root, comm_, call.stream);
    case calls::Operation::alltoallv:
      return in_pieces();
    case calls::Operation::allgatherv:
      return grouped([&] { return enqueue_broadcasts(call); });
    case calls::Operation::reduce_scatterv:
      return grouped([&] { return enqueue_reduces(call); });
    case calls::Operation::send:
    case calls::Operation::recv:
      return enqueue_message(call);
    case calls::Operation::barrier:
      return barrier(call.stream);
    case calls::Operation::none:
    case calls::Operation::split:
    case calls::Operation::finalize:
    case calls::Operation::init:
      break;
  }
  return nccl_success;  // not an operation on data
}

/// An allgatherv: each rank broadcasts its piece.
int NcclBackend::enqueue_broadcasts(const calls::Call& call) {
  const auto [type, factor] = moved_as(call.type);
  int result = nccl_success;
  for (int root = 0; root < size_ && (result == nccl_success || result == nccl_in_progress); ++root) {
    const auto at = static_cast<std::size_t>(root);
    if (call.lists->recv_counts[at] == 0) continue;
    void* const piece = advanced(call.recv, call.lists->recv_offsets[at], call.type);
    result = api_.broadcast(root == rank_ ? call.send : piece, piece, call.lists->recv_counts[at] * factor, type, root,
                            comm_, call.stream);
  }
  return result;
}

/// A reduce_scatterv: each block is reduced to its owner.
int NcclBackend::enqueue_reduces(const calls::Call& call) {
  const auto [type, factor] = moved_as(call.type);
  int result = nccl_success;
  for (int root = 0; root < size_ && (result == nccl_success || result == nccl_in_progress); ++root) {
    const auto at = static_cast<std::size_t>(root);
    if (call.lists->send_counts[at] == 0) continue;
    const void* const block = advanced(call.send, call.lists->send_offsets[at], call.type);
    result = api_.reduce(block, root == rank_ ? call.recv : nullptr, call.lists->send_counts[at] * factor, type,
                         operator_of(call).value_or(0), root, comm_, call.stream);
  }
  return result;
}

Result<void> NcclBackend::run(const calls::Call& call, calls::Watchdog& watchdog) {
  if (auto status = supports(call); !status) return status;
  const std::scoped_lock lock(in_use_);
  if (comm_ == nullptr) return Error{Errc::aborted, "the communicator on GPUs was aborted before"};
  const DeviceContext::Current current(context_);
  return end(settle(enqueue(call), to_string(call.operation), watchdog));
}

Result<void> NcclBackend::run_group(std::span<const calls::Call> messages, calls::Watchdog& watchdog) {
  const std::scoped_lock lock(in_use_);
  if (comm_ == nullptr) return Error{Errc::aborted, "the communicator on GPUs was aborted before"};
  const DeviceContext::Current current(context_);
  const int result = grouped([&] {
    int inside = nccl_success;
    for (const calls::Call& message : messages) {
      inside = enqueue_message(message);
      if (inside != nccl_success && inside != nccl_in_progress) break;
    }
    return inside;
  });
  return end(settle(result, "send and receive", watchdog));
}

Result<void> NcclBackend::health() {
  const std::scoped_lock lock(in_use_);
  const DeviceContext::Current current(context_);
  return async_error();
}

/// Needs in_use_ locked.
Result<void> NcclBackend::async_error() {
  if (comm_ == nullptr) return Error{Errc::aborted, "the communicator on GPUs was aborted before"};
  int status = nccl_success;
  if (const int asked = api_.get_async_error(comm_, &status); asked != nccl_success) status = asked;
  if (status == nccl_success || status == nccl_in_progress) return {};
  return error_of(status, "go on");
}

Result<bool> NcclBackend::is_complete(void* stream) {
  const std::scoped_lock lock(in_use_);
  const DeviceContext::Current current(context_);
  if (auto status = end(async_error()); !status) return status.error();
  const int status = driver_->stream_query(stream);
  if (status == cuda_success) return true;
  if (status == cuda_not_ready) return false;
  return end(Error{Errc::unavailable, concat({"the stream has failed: ", driver_->describe(status)})}).error();
}

Result<void> NcclBackend::synchronize(void* stream, calls::Watchdog& watchdog) {
  Backoff backoff;
  while (true) {
    const auto complete = is_complete(stream);
    if (!complete) return complete.error();
    if (*complete) return {};
    if (auto status = watchdog.keep_waiting(calls::Watchdog::anyone); !status) {
      abort();
      return status;
    }
    backoff.wait();
  }
}

Result<void*> NcclBackend::allocate(std::size_t bytes) {
  const std::scoped_lock lock(in_use_);
  if (comm_ == nullptr) return Error{Errc::aborted, "the communicator on GPUs was aborted before"};
  const DeviceContext::Current current(context_);
  void* memory = nullptr;
  if (const int result = api_.mem_alloc(&memory, bytes); result != nccl_success) {
    Error error = error_of(result, concat({"allocate ", std::to_string(bytes), " bytes"}));
    error.code = Errc::limit;
    return error;
  }
  void* handle = nullptr;
  if (api_.comm_register(comm_, memory, bytes, &handle) != nccl_success) handle = nullptr;  // slower, but not wrong
  memory_[memory] = {handle};
  return memory;
}

Result<void> NcclBackend::release(void* memory) {
  const std::scoped_lock lock(in_use_);
  const auto found = memory_.find(memory);
  if (found == memory_.end()) return Error{Errc::invalid_argument, "this memory was not allocated here"};
  const DeviceContext::Current current(context_);
  if (comm_ != nullptr && found->second.handle != nullptr) api_.comm_deregister(comm_, found->second.handle);
  api_.mem_free(memory);
  memory_.erase(found);
  return {};
}

Result<std::unique_ptr<NcclBackend>> NcclBackend::split(int color, int key, int new_rank, int new_size,
                                                        calls::Watchdog& watchdog) {
  const std::scoped_lock lock(in_use_);
  if (comm_ == nullptr) return Error{Errc::aborted, "the communicator on GPUs was aborted before"};
  auto context = DeviceContext::retain(*driver_, context_.device());
  if (!context) return context.error();
  const DeviceContext::Current current(context_);
  constexpr int no_color = -1;
  NcclConfig config;
  config.split_share = 1;
  NcclApi::Comm made = nullptr;
  const int result = api_.split(comm_, color < 0 ? no_color : color, key, &made, &config);
  if (auto status = end(settle(result, "split", watchdog)); !status) return status.error();
  if (color < 0) return std::unique_ptr<NcclBackend>();
  std::unique_ptr<NcclBackend> child(new NcclBackend(api_, *driver_, std::move(*context), new_rank, new_size));
  child->comm_ = made;
  const auto came_up = child->settle(nccl_in_progress, "split", watchdog);
  if (!came_up) {
    child->give_up();
    return came_up.error();
  }
  return child;
}

}  // namespace amldist::collective
