// The C functions on communicators: they turn arguments into calls and results into status codes. No logic.
#include "collective/communicator/communicator.hpp"

#include <chrono>
#include <memory>
#include <new>
#include <optional>
#include <string>

#include "amldist/amldist.h"
#include "api/c/guard.hpp"
#include "api/c/handles.hpp"
#include "collective/communicator/context/interrupt.hpp"
#include "collective/communicator/context/stop_request.hpp"

namespace {

using amldist::Errc;
using amldist::Error;
using amldist::Result;
using amldist::api::is_usable;
using amldist::api::make_handle;
using amldist::api::refusal_of;
using amldist::api::request_of;
using amldist::api::WorldGuard;
using amldist::calls::Call;
using amldist::calls::CallLists;
using amldist::calls::Operation;
using amldist::collective::Communicator;
using amldist::collective::Request;
using amldist::collective::RequestPtr;

Error null_argument(std::string_view what) { return {Errc::invalid_argument, std::string(what) + " is NULL"}; }

/// A call as the caller gave it: type and operator are still numbers, lists have no lengths yet.
struct Arguments {
  Call call;
  CallLists* lists = nullptr;
  int type = AMLDIST_UINT8;
  int op = AMLDIST_SUM;
  std::optional<int> tag;
};

/// Type or operator is not a valid enumerator.
[[gnu::cold]] Error refusal_of_numbers(const Arguments& arguments) {
  const auto refuse = [&](const std::string& why) {
    return Error{Errc::invalid_argument, std::string(amldist::calls::to_string(arguments.call.operation)) + ": " + why};
  };
  if (!amldist::calls::is_data_type(arguments.type))
    return refuse(std::to_string(arguments.type) + " is not an amldist_type");
  return refuse(std::to_string(arguments.op) + " is not an amldist_op");
}

[[gnu::cold]] Error refusal_of_tag(const Arguments& arguments) {
  return {Errc::invalid_argument, std::string(amldist::calls::to_string(arguments.call.operation)) + ": the tag " +
                                      std::to_string(*arguments.tag) + " is negative"};
}

/// Lists have an entry for each rank. Errors: a list is missing.
[[gnu::noinline]] Result<void> measure_lists(const Communicator& comm, Call& call, CallLists& lists) {
  using List = std::span<const std::size_t>;
  const auto measure = [&](List& counts, List& offsets) {
    if (counts.data() == nullptr || offsets.data() == nullptr) return false;
    counts = {counts.data(), comm.identity().size};
    offsets = {offsets.data(), comm.identity().size};
    return true;
  };
  const bool sends = call.operation != Operation::allgatherv;
  const bool receives = call.operation != Operation::reduce_scatterv;
  const bool has_all = (!receives || measure(lists.recv_counts, lists.recv_offsets)) &&
                       (!sends || measure(lists.send_counts, lists.send_offsets));
  if (has_all && !receives) call.count = lists.send_counts[comm.identity().rank];
  call.lists = &lists;
  if (has_all) return {};
  return Error{Errc::invalid_argument,
               std::string(amldist::calls::to_string(call.operation)) + ": a list of counts or offsets is NULL"};
}

/// Turns the call into one that a communicator can take. As a call of its own, it was a tenth of the cost of the
/// shortest call before other ranks see it.
[[gnu::always_inline]] inline Result<void> complete(const Communicator& comm, Arguments& arguments) {
  namespace calls = amldist::calls;
  if (!calls::is_data_type(arguments.type) || !calls::is_reduce_op(arguments.op)) return refusal_of_numbers(arguments);
  Call& call = arguments.call;
  if (arguments.tag && *arguments.tag < 0) return refusal_of_tag(arguments);
  if (arguments.tag) call.tag = *arguments.tag;
  call.type = static_cast<calls::DataType>(arguments.type);
  call.redop = static_cast<calls::ReduceOp>(arguments.op);
  return arguments.lists != nullptr ? measure_lists(comm, call, *arguments.lists) : Result<void>();
}

/// The error that a call on this communicator has returned, and, if the communicator is lost by it, the ranks that it
/// names.
[[gnu::cold]] void name_culprit_of(const Communicator& comm) noexcept try {
  const auto diagnosis = comm.health();
  if (!diagnosis || diagnosis->message != amldist_last_error()) return;
  const auto subject = comm.error_subject();
  const bool is_known = subject.rank >= 0 && subject.rank < static_cast<int>(comm.identity().size);
  const std::string_view operation = subject.number == 0 ? "" : amldist::calls::to_string(subject.operation);
  amldist::api::name_culprit(subject.rank, is_known ? comm.host(static_cast<std::uint32_t>(subject.rank)) : "",
                             operation, subject.number);
} catch (const std::bad_alloc&) {
  static_cast<void>(comm);  // without memory the sentence alone must suffice
}

template <typename Body>
[[gnu::always_inline]] inline int guarded_on(const amldist_comm* comm, Body body) noexcept {
  const int status = amldist::api::guarded(std::move(body));
  const bool may_name = status == AMLDIST_ETIMEOUT || status == AMLDIST_EPEER || status == AMLDIST_EABORTED;
  if (may_name && is_usable(comm)) name_culprit_of(*comm->impl);
  return status;
}

int run(amldist_comm* comm, Arguments&& arguments) {
  return guarded_on(comm, [&]() -> Result<void> {
    if (!is_usable(comm)) return refusal_of(comm);
    if (auto status = complete(*comm->impl, arguments); !status) return status;
    return comm->impl->run(arguments.call);
  });
}

/// The handle of all calls that ended while they began: an address that is no request's.
amldist_request* ended() noexcept {
  alignas(Request) static std::byte place;
  return reinterpret_cast<amldist_request*>(&place);
}

/// Not inlined into each of its callers, so that what it calls is inlined here.
[[gnu::noinline]] int begin(amldist_comm* comm, Arguments&& arguments, amldist_request** request) {
  return guarded_on(comm, [&]() -> Result<void> {
    if (request == nullptr) return null_argument("the request");
    *request = nullptr;
    if (!is_usable(comm)) return refusal_of(comm);
    if (auto status = complete(*comm->impl, arguments); !status) return status;
    RequestPtr begun;
    if (auto status = comm->impl->begin(arguments.call, begun); !status) return status;
    *request = begun ? make_handle(std::move(begun), comm) : ended();
    return {};
  });
}

/// Keeps the result of a finished request for amldist_last_error(), and returns its status.
int report(const Result<void>& result, const void* origin) {
  if (result) return AMLDIST_OK;
  const int status = amldist::api::fail(result.error());
  if (const auto comm = amldist::api::find_living(static_cast<const amldist_comm*>(origin))) name_culprit_of(*comm);
  return status;
}

/// Calls `wait`, which returns whether the request is done; then frees the request. `done` may be nullptr.
template <typename Wait>
int finish_request(amldist_request** request, int* done, Wait wait) noexcept {
  int status = AMLDIST_OK;
  const int guarded = amldist::api::guarded([&]() -> Result<void> {
    if (*request == ended()) *request = nullptr;
    if (*request != nullptr && !request_of(*request)->is_here()) return amldist::api::forked();
    const bool is_done = *request == nullptr || wait(*request_of(*request));
    if (done != nullptr) *done = is_done ? 1 : 0;
    if (!is_done || *request == nullptr) return {};
    const RequestPtr owned(request_of(std::exchange(*request, nullptr)));
    status = report(owned->result(), owned->origin());
    return {};
  });
  return guarded != AMLDIST_OK ? guarded : status;
}

template <typename Number>
int number_of(const amldist_comm* comm, Number number) noexcept {
  if (comm == nullptr || comm->impl == nullptr) return amldist::api::fail(refusal_of(comm));
  return static_cast<int>(number(comm->impl->identity()));
}

}  // namespace

int amldist_finalize(amldist_comm* comm) {
  return guarded_on(comm, [&]() -> Result<void> {
    if (comm == nullptr) return {};
    if (comm->impl == nullptr) return refusal_of(comm);
    if (!comm->impl->is_here()) return {};  // its threads and links are the parent's
    const bool is_step_world = comm->is_step_world;
    auto owned = amldist::api::retire(comm);
    auto done = owned->finalize();
    owned.reset();
    if (is_step_world) WorldGuard::leave();
    return done;
  });
}

int amldist_rank(const amldist_comm* comm) {
  return number_of(comm, [](const auto& id) { return id.rank; });
}
int amldist_size(const amldist_comm* comm) {
  return number_of(comm, [](const auto& id) { return id.size; });
}
int amldist_local_rank(const amldist_comm* comm) {
  return number_of(comm, [](const auto& id) { return id.local_rank; });
}
int amldist_local_size(const amldist_comm* comm) {
  return number_of(comm, [](const auto& id) { return id.local_size; });
}
int amldist_node_rank(const amldist_comm* comm) {
  return number_of(comm, [](const auto& id) { return id.node_rank; });
}
int amldist_nodes(const amldist_comm* comm) {
  return number_of(comm, [](const auto& id) { return id.nodes; });
}

const char* amldist_host(const amldist_comm* comm, int rank) {
  if (comm == nullptr || comm->impl == nullptr || rank < 0 || rank >= static_cast<int>(comm->impl->identity().size))
    return nullptr;
  return comm->impl->host(static_cast<std::uint32_t>(rank)).c_str();
}
const char* amldist_task_map(const amldist_comm* comm) {
  return comm == nullptr || comm->impl == nullptr ? nullptr : comm->impl->task_map().c_str();
}
const char* amldist_provenance(const amldist_comm* comm) {
  return comm == nullptr || comm->impl == nullptr ? nullptr : comm->impl->provenance().c_str();
}

// ---- collectives ----
namespace {

Arguments copy_call(Operation operation, const void* send, void* recv, size_t count, amldist_type type, int root = 0) {
  Arguments made;
  made.type = type;
  made.call.operation = operation;
  made.call.root = root;
  made.call.count = count;
  made.call.send = send;
  made.call.recv = recv;
  return made;
}
Arguments reduction_call(Operation operation, const void* send, void* recv, size_t count, amldist_type type,
                         amldist_op op, int root = 0) {
  Arguments made = copy_call(operation, send, recv, count, type, root);
  made.op = op;
  return made;
}
/// The call with lists, which outlive what is returned.
Arguments listed(Arguments made, CallLists& lists) {
  made.lists = &lists;
  return made;
}
/// Lists whose lengths are not known yet.
CallLists lists_of(const size_t* send_counts, const size_t* send_offsets, const size_t* recv_counts,
                   const size_t* recv_offsets) {
  return {{send_counts, 0}, {send_offsets, 0}, {recv_counts, 0}, {recv_offsets, 0}};
}
Arguments message_call(Operation operation, const void* send, void* recv, size_t count, amldist_type type, int peer,
                       int tag, int* source = nullptr) {
  Arguments made = copy_call(operation, send, recv, count, type, peer);
  made.tag = tag;
  made.call.source = source;
  return made;
}
Arguments barrier_call() { return copy_call(Operation::barrier, nullptr, nullptr, 0, AMLDIST_UINT8); }

}  // namespace

int amldist_allreduce(amldist_comm* comm, const void* send, void* recv, size_t count, amldist_type type,
                      amldist_op op) {
  return run(comm, reduction_call(Operation::allreduce, send, recv, count, type, op));
}
int amldist_reduce(amldist_comm* comm, const void* send, void* recv, size_t count, amldist_type type, amldist_op op,
                   int root) {
  return run(comm, reduction_call(Operation::reduce, send, recv, count, type, op, root));
}
int amldist_broadcast(amldist_comm* comm, void* buffer, size_t count, amldist_type type, int root) {
  return run(comm, copy_call(Operation::broadcast, buffer, buffer, count, type, root));
}
int amldist_allgather(amldist_comm* comm, const void* send, void* recv, size_t count, amldist_type type) {
  return run(comm, copy_call(Operation::allgather, send, recv, count, type));
}
int amldist_allgatherv(amldist_comm* comm, const void* send, size_t count, void* recv, const size_t* counts,
                       const size_t* offsets, amldist_type type) {
  CallLists lists = lists_of(nullptr, nullptr, counts, offsets);
  return run(comm, listed(copy_call(Operation::allgatherv, send, recv, count, type), lists));
}
int amldist_reduce_scatter(amldist_comm* comm, const void* send, void* recv, size_t count, amldist_type type,
                           amldist_op op) {
  return run(comm, reduction_call(Operation::reduce_scatter, send, recv, count, type, op));
}
int amldist_reduce_scatterv(amldist_comm* comm, const void* send, void* recv, const size_t* counts,
                            const size_t* offsets, amldist_type type, amldist_op op) {
  CallLists lists = lists_of(counts, offsets, nullptr, nullptr);
  return run(comm, listed(reduction_call(Operation::reduce_scatterv, send, recv, 0, type, op), lists));
}
int amldist_alltoall(amldist_comm* comm, const void* send, void* recv, size_t count, amldist_type type) {
  return run(comm, copy_call(Operation::alltoall, send, recv, count, type));
}
int amldist_alltoallv(amldist_comm* comm, const void* send, const size_t* send_counts, const size_t* send_offsets,
                      void* recv, const size_t* recv_counts, const size_t* recv_offsets, amldist_type type) {
  CallLists lists = lists_of(send_counts, send_offsets, recv_counts, recv_offsets);
  return run(comm, listed(copy_call(Operation::alltoallv, send, recv, 0, type), lists));
}
int amldist_gather(amldist_comm* comm, const void* send, void* recv, size_t count, amldist_type type, int root) {
  return run(comm, copy_call(Operation::gather, send, recv, count, type, root));
}
int amldist_scatter(amldist_comm* comm, const void* send, void* recv, size_t count, amldist_type type, int root) {
  return run(comm, copy_call(Operation::scatter, send, recv, count, type, root));
}
int amldist_send(amldist_comm* comm, const void* buffer, size_t count, amldist_type type, int peer) {
  return run(comm, copy_call(Operation::send, buffer, nullptr, count, type, peer));
}
int amldist_recv(amldist_comm* comm, void* buffer, size_t count, amldist_type type, int peer) {
  return run(comm, copy_call(Operation::recv, nullptr, buffer, count, type, peer));
}
int amldist_send_tagged(amldist_comm* comm, const void* buffer, size_t count, amldist_type type, int peer, int tag) {
  return run(comm, message_call(Operation::send, buffer, nullptr, count, type, peer, tag));
}
int amldist_recv_tagged(amldist_comm* comm, void* buffer, size_t count, amldist_type type, int peer, int tag,
                        int* source) {
  return run(comm, message_call(Operation::recv, nullptr, buffer, count, type, peer, tag, source));
}
int amldist_barrier(amldist_comm* comm) { return run(comm, barrier_call()); }

int amldist_iallreduce(amldist_comm* comm, const void* send, void* recv, size_t count, amldist_type type, amldist_op op,
                       amldist_request** request) {
  return begin(comm, reduction_call(Operation::allreduce, send, recv, count, type, op), request);
}
int amldist_ireduce(amldist_comm* comm, const void* send, void* recv, size_t count, amldist_type type, amldist_op op,
                    int root, amldist_request** request) {
  return begin(comm, reduction_call(Operation::reduce, send, recv, count, type, op, root), request);
}
int amldist_ibroadcast(amldist_comm* comm, void* buffer, size_t count, amldist_type type, int root,
                       amldist_request** request) {
  return begin(comm, copy_call(Operation::broadcast, buffer, buffer, count, type, root), request);
}
int amldist_iallgather(amldist_comm* comm, const void* send, void* recv, size_t count, amldist_type type,
                       amldist_request** request) {
  return begin(comm, copy_call(Operation::allgather, send, recv, count, type), request);
}
int amldist_iallgatherv(amldist_comm* comm, const void* send, size_t count, void* recv, const size_t* counts,
                        const size_t* offsets, amldist_type type, amldist_request** request) {
  CallLists lists = lists_of(nullptr, nullptr, counts, offsets);
  return begin(comm, listed(copy_call(Operation::allgatherv, send, recv, count, type), lists), request);
}
int amldist_ireduce_scatter(amldist_comm* comm, const void* send, void* recv, size_t count, amldist_type type,
                            amldist_op op, amldist_request** request) {
  return begin(comm, reduction_call(Operation::reduce_scatter, send, recv, count, type, op), request);
}
int amldist_ireduce_scatterv(amldist_comm* comm, const void* send, void* recv, const size_t* counts,
                             const size_t* offsets, amldist_type type, amldist_op op, amldist_request** request) {
  CallLists lists = lists_of(counts, offsets, nullptr, nullptr);
  return begin(comm, listed(reduction_call(Operation::reduce_scatterv, send, recv, 0, type, op), lists), request);
}
int amldist_ialltoall(amldist_comm* comm, const void* send, void* recv, size_t count, amldist_type type,
                      amldist_request** request) {
  return begin(comm, copy_call(Operation::alltoall, send, recv, count, type), request);
}
int amldist_ialltoallv(amldist_comm* comm, const void* send, const size_t* send_counts, const size_t* send_offsets,
                       void* recv, const size_t* recv_counts, const size_t* recv_offsets, amldist_type type,
                       amldist_request** request) {
  CallLists lists = lists_of(send_counts, send_offsets, recv_counts, recv_offsets);
  return begin(comm, listed(copy_call(Operation::alltoallv, send, recv, 0, type), lists), request);
}
int amldist_igather(amldist_comm* comm, const void* send, void* recv, size_t count, amldist_type type, int root,
                    amldist_request** request) {
  return begin(comm, copy_call(Operation::gather, send, recv, count, type, root), request);
}
int amldist_iscatter(amldist_comm* comm, const void* send, void* recv, size_t count, amldist_type type, int root,
                     amldist_request** request) {
  return begin(comm, copy_call(Operation::scatter, send, recv, count, type, root), request);
}
int amldist_isend(amldist_comm* comm, const void* buffer, size_t count, amldist_type type, int peer,
                  amldist_request** request) {
  return begin(comm, copy_call(Operation::send, buffer, nullptr, count, type, peer), request);
}
int amldist_irecv(amldist_comm* comm, void* buffer, size_t count, amldist_type type, int peer,
                  amldist_request** request) {
  return begin(comm, copy_call(Operation::recv, nullptr, buffer, count, type, peer), request);
}
int amldist_isend_tagged(amldist_comm* comm, const void* buffer, size_t count, amldist_type type, int peer, int tag,
                         amldist_request** request) {
  return begin(comm, message_call(Operation::send, buffer, nullptr, count, type, peer, tag), request);
}
int amldist_irecv_tagged(amldist_comm* comm, void* buffer, size_t count, amldist_type type, int peer, int tag,
                         int* source, amldist_request** request) {
  return begin(comm, message_call(Operation::recv, nullptr, buffer, count, type, peer, tag, source), request);
}
int amldist_ibarrier(amldist_comm* comm, amldist_request** request) { return begin(comm, barrier_call(), request); }

int amldist_wait(amldist_request** request) {
  if (request == nullptr) return amldist::api::fail(null_argument("the request"));
  return finish_request(request, nullptr, [](auto& waiting) {
    waiting.wait();
    return true;
  });
}

int amldist_test(amldist_request** request, int* done) {
  if (request == nullptr || done == nullptr) return amldist::api::fail(null_argument("amldist_test: an argument"));
  return finish_request(request, done, [](auto& waiting) { return waiting.test(); });
}

int amldist_wait_for(amldist_request** request, int milliseconds, int* done) {
  if (request == nullptr || done == nullptr) return amldist::api::fail(null_argument("amldist_wait_for: an argument"));
  if (milliseconds < 0) {
    return amldist::api::fail(
        {Errc::invalid_argument, "amldist_wait_for: " + std::to_string(milliseconds) + " ms is negative"});
  }
  return finish_request(request, done,
                        [&](auto& waiting) { return waiting.wait_for(std::chrono::milliseconds(milliseconds)); });
}

int amldist_on_complete(amldist_request* request, amldist_complete_function function, void* context) {
  return amldist::api::guarded([&]() -> Result<void> {
    if (request == nullptr) return null_argument("the request");
    if (function == nullptr) return null_argument("amldist_on_complete: the function");
    if (request == ended()) return function(AMLDIST_OK, context), Result<void>();
    if (!request_of(request)->is_here()) return amldist::api::forked();
    const auto kept = RequestPtr::sharing(*request_of(request));  // the function may wait for it, which frees it
    const auto tell = [function, context, origin = kept->origin()](const Result<void>& result) {
      function(report(result, origin), context);
    };
    const bool is_first = kept->on_complete(tell);
    if (is_first) return {};
    return Error{Errc::invalid_argument, "amldist_on_complete: the request has a function already"};
  });
}

int amldist_set_interrupt(amldist_interrupt_function function, void* context) {
  amldist::collective::interrupt_of_this_thread() = {function, context};
  return AMLDIST_OK;
}

// ---- others ----
int amldist_split(amldist_comm* comm, int color, int key, amldist_comm** out) {
  return guarded_on(comm, [&]() -> Result<void> {
    if (out == nullptr) return null_argument("amldist_split: the place for the communicator");
    *out = nullptr;
    if (!is_usable(comm)) return refusal_of(comm);
    auto made = comm->impl->split(color, key);
    if (!made) return made.error();
    if (*made) *out = amldist::api::make_handle(std::move(*made));
    return {};
  });
}

int amldist_shrink(amldist_comm* comm, amldist_comm** survivors) {
  return guarded_on(comm, [&]() -> Result<void> {
    if (survivors == nullptr) return null_argument("amldist_shrink: the place for the communicator");
    *survivors = nullptr;
    if (!is_usable(comm)) return refusal_of(comm);
    auto made = comm->impl->shrink();
    if (!made) return made.error();
    *survivors = amldist::api::make_handle(std::move(*made));
    if ((*survivors)->impl->is_world()) WorldGuard::share();
    return {};
  });
}

int amldist_agree(amldist_comm* comm, int* flags) {
  return guarded_on(comm, [&]() -> Result<void> {
    if (flags == nullptr) return null_argument("amldist_agree: flags");
    if (!is_usable(comm)) return refusal_of(comm);
    auto agreed = comm->impl->agree(static_cast<std::uint32_t>(*flags));
    if (!agreed) return agreed.error();
    *flags = static_cast<int>(static_cast<std::uint32_t>(agreed->flags));
    return agreed->lost ? Result<void>(*agreed->lost) : Result<void>();
  });
}

int amldist_should_stop(amldist_comm* comm, int* stop) {
  return guarded_on(comm, [&]() -> Result<void> {
    if (stop == nullptr) return null_argument("amldist_should_stop: the place for the answer");
    *stop = 0;
    if (!is_usable(comm)) return refusal_of(comm);
    const auto answer = comm->impl->should_stop();
    if (!answer) return answer.error();
    *stop = *answer ? 1 : 0;
    return {};
  });
}

int amldist_stop_requested(void) { return amldist::collective::stop_is_requested() ? 1 : 0; }

int amldist_group_begin(amldist_comm* comm) {
  return guarded_on(comm, [&]() -> Result<void> {
    return !is_usable(comm) ? Result<void>(refusal_of(comm)) : comm->impl->group_begin();
  });
}
int amldist_group_end(amldist_comm* comm) {
  return guarded_on(comm, [&]() -> Result<void> {
    return !is_usable(comm) ? Result<void>(refusal_of(comm)) : comm->impl->group_end();
  });
}

int amldist_alloc(amldist_comm* comm, size_t bytes, void** memory) {
  return guarded_on(comm, [&]() -> Result<void> {
    if (memory == nullptr) return null_argument("amldist_alloc: the place for the memory");
    *memory = nullptr;
    if (!is_usable(comm)) return refusal_of(comm);
    const auto got = comm->impl->allocate(bytes);
    if (!got) return got.error();
    *memory = *got;
    return {};
  });
}
int amldist_free(amldist_comm* comm, void* memory) {
  return guarded_on(comm, [&]() -> Result<void> {
    if (!is_usable(comm)) return refusal_of(comm);
    return memory == nullptr ? Result<void>() : comm->impl->release(memory);
  });
}

int amldist_register(amldist_comm* comm, void* buffer, size_t bytes) {
  return guarded_on(comm, [&]() -> Result<void> {
    return !is_usable(comm) ? Result<void>(refusal_of(comm)) : comm->impl->register_memory(buffer, bytes);
  });
}
int amldist_deregister(amldist_comm* comm, void* buffer) {
  return guarded_on(comm, [&]() -> Result<void> {
    return !is_usable(comm) ? Result<void>(refusal_of(comm)) : comm->impl->deregister_memory(buffer);
  });
}

int amldist_set_timeout(amldist_comm* comm, int timeout_ms) {
  return guarded_on(comm, [&]() -> Result<void> {
    if (!is_usable(comm)) return refusal_of(comm);
    return comm->impl->set_timeout(std::chrono::milliseconds(timeout_ms));
  });
}
int amldist_set_deterministic(amldist_comm* comm, int on) {
  return guarded_on(comm, [&]() -> Result<void> {
    if (!is_usable(comm)) return refusal_of(comm);
    static_cast<void>(on);  // nothing to choose (amldist.h)
    return {};
  });
}
int amldist_set_stream(amldist_comm* comm, void* stream) {
  return guarded_on(comm, [&]() -> Result<void> {
    if (!is_usable(comm)) return refusal_of(comm);
    comm->impl->set_stream(stream);
    return {};
  });
}

int amldist_abort(amldist_comm* comm) {
  return guarded_on(comm, [&]() -> Result<void> {
    if (!is_usable(comm)) return refusal_of(comm);
    comm->impl->abort();
    return {};
  });
}

int amldist_health(const amldist_comm* comm) {
  return guarded_on(comm, [&]() -> Result<void> {
    if (!is_usable(comm)) return refusal_of(comm);
    const auto diagnosis = comm->impl->health();
    return diagnosis ? Result<void>(*diagnosis) : Result<void>();
  });
}

int amldist_set_log(amldist_comm* comm, amldist_log_function function, void* context) {
  return guarded_on(comm, [&]() -> Result<void> {
    if (!is_usable(comm)) return refusal_of(comm);
    if (function == nullptr) comm->impl->set_log(nullptr);
    else comm->impl->set_log([function, context](const std::string& line) { function(line.c_str(), context); });
    return {};
  });
}
