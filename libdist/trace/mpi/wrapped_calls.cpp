// MPI's calls as the program sees them: those of the table in calls.inc, and those that are like no other.
#include <algorithm>
#include <climits>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <vector>

#include "trace/mpi/tracer.hpp"

namespace amldist::trace::mpi {
namespace {

using Ticket = FlightRecorder::Ticket;

/// Whether a request has ended, which MPI_Testall does not say of each. The request is left as it is.
bool has_ended(MPI_Request request) noexcept {
  static auto* const ask = find_real_as<int(MPI_Request, int*, MPI_Status*)>("PMPI_Request_get_status");
  int flag = 0;
  return ask != nullptr && ask(request, &flag, tracer().abi().no_status) == 0 && flag != 0;
}

/// MPI_ERROR of a status.
int error_in(const MPI_Status* statuses, int index) noexcept {
  const Abi& abi = tracer().abi();
  int error = 0;
  const auto* const place =
      static_cast<const std::byte*>(statuses) + static_cast<std::size_t>(index) * abi.status.bytes;
  std::memcpy(&error, place + abi.status.error_at, sizeof error);
  return error;
}

/// Requests that the program waits for or tests. Copied before the call, which overwrites their handles, and kept until
/// its end.
class Completing {
 public:
  enum class Until {
    one_has_ended,  ///< the call waits for all of them at once
    each_in_turn,   ///< wait_for() says which one the call waits for
    now,            ///< a test, which does not wait
  };
  Completing(int count, const MPI_Request* requests, Until until) noexcept : is_outermost_(depth()++ == 0) {
    if (!is_outermost_ || !tracer().on() || count <= 0) return;
    try {
      for (int i = 0; i < count; ++i) {
        pending_.push_back({requests[i], {}});
        if (requests[i] != tracer().abi().no_request) pending_.back().posted = tracer().find_posted(requests[i]);
        if (until == Until::one_has_ended) wait_for(i);
      }
    } catch (...) {  // out of memory: these calls stay open in the record
      pending_.clear();
    }
  }
  ~Completing() {
    --depth();
    for (const Pending& each : pending_) {
      if (each.is_waited_for) tracer().recorder().suspend(each.posted.ticket);
    }
  }
  Completing(const Completing&) = delete;
  Completing& operator=(const Completing&) = delete;

  [[nodiscard]] bool has_several() const noexcept {
    return std::ranges::count_if(pending_, [](const Pending& each) { return each.posted.ticket != 0; }) > 1;
  }
  void wait_for(int index) noexcept {
    if (static_cast<std::size_t>(index) >= pending_.size()) return;
    Pending& each = pending_[static_cast<std::size_t>(index)];
    if (each.posted.ticket == 0) return;
    each.is_waited_for = true;
    FlightRecorder& recorder = tracer().recorder();
    if (!recorder.start(each.posted.ticket)) each.posted.ticket = recorder.start_again(each.posted.call);
  }
  void complete(int index) noexcept {
    if (index < 0 || static_cast<std::size_t>(index) >= pending_.size()) return;
    Pending& each = pending_[static_cast<std::size_t>(index)];
    if (each.posted.ticket == 0) return;
    tracer().complete(each.request, each.posted);
    each = {};
  }
  void fail(int index, int error) noexcept {
    if (index < 0 || static_cast<std::size_t>(index) >= pending_.size()) return;
    Pending& each = pending_[static_cast<std::size_t>(index)];
    if (each.posted.ticket == 0) return;
    tracer().fail(each.request, each.posted, error);
    each = {};
  }
  /// Called after a test. If it found nothing, the program may be waiting in this way.
  void tested(int result, bool has_found) noexcept {
    if (result != 0 || !is_outermost_ || !tracer().on()) return;
    if (has_found) return tracer().poll_found();
    if (!tracer().polls_in_vain()) return;
    std::size_t told = 0;
    for (const Pending& each : pending_) {
      if (each.posted.ticket == 0 || told == Tracer::most_polled || has_ended(each.request)) continue;
      tracer().polled(each.request, each.posted);
      ++told;
    }
    tracer().polls_told();
  }
  void complete_all() noexcept {
    for (int i = 0; i < static_cast<int>(pending_.size()); ++i) complete(i);
  }
  /// A call for several requests has returned an error. The statuses of the first `count` requests, or of those in
  /// `indices`, say which of them have failed. Without statuses that is known only if a single one is recorded.
  void fail_some(int error, int count, const int* indices, const MPI_Status* statuses) noexcept {
    const Abi& abi = tracer().abi();
    const bool tells = error == abi.error_in_status && statuses != abi.no_status;
    if (!tells && has_several()) return;
    for (int i = 0; i < std::min(count, static_cast<int>(pending_.size())); ++i) {
      const int index = indices != nullptr ? indices[i] : i;
      const int own = tells ? error_in(statuses, i) : error;
      if (own == 0) complete(index);
      else if (own != abi.error_still_pending) fail(index, own);
    }
  }

 private:
  struct Pending {
    MPI_Request request{};
    Tracer::PostedCall posted{};
    bool is_waited_for = false;
  };
  bool is_outermost_;
  std::vector<Pending> pending_;
};
using Until = Completing::Until;

int wait_for_real(MPI_Request* request, MPI_Status* status) noexcept {
  static auto* const real = find_real_as<int(MPI_Request*, MPI_Status*)>("PMPI_Wait");
  return real(request, status);
}

/// Returned by MPI_Waitall if one of its requests has failed: each request's own error is in its status.
int failed_in_turn(int index, int status, int count, MPI_Status* statuses) noexcept {
  const Abi& abi = tracer().abi();
  if (statuses == abi.no_status) return abi.error_in_status;
  for (int i = 0; i < count; ++i) {
    const int error = i < index ? 0 : i == index ? status : abi.error_still_pending;
    auto* const place = static_cast<std::byte*>(statuses) + static_cast<std::size_t>(i) * abi.status.bytes;
    std::memcpy(place + abi.status.error_at, &error, sizeof error);
  }
  return abi.error_in_status;
}

/// MPI_Waitall, one request after the other: the only way to learn which of them has not ended.
int wait_in_turn(Completing& call, int count, MPI_Request* requests, MPI_Status* statuses) noexcept {
  const Abi& abi = tracer().abi();
  for (int i = 0; i < count; ++i) {
    MPI_Status* const own = statuses == abi.no_status
                                ? statuses
                                : static_cast<std::byte*>(statuses) + static_cast<std::size_t>(i) * abi.status.bytes;
    call.wait_for(i);
    const int status = wait_for_real(requests + i, own);
    if (status != 0) {
      call.fail(i, status);
      return failed_in_turn(i, status, count, statuses);
    }
    call.complete(i);
  }
  return 0;
}

/// Persistent requests that the program starts.
class Starting {
 public:
  Starting(int count, const MPI_Request* requests) noexcept {
    if (depth()++ != 0 || !tracer().on() || count <= 0) return;
    for (int i = 0; i < count; ++i) {
      if (const Ticket ticket = tracer().started(requests[i]); ticket != 0) first_ = first_ == 0 ? ticket : first_;
    }
  }
  ~Starting() { --depth(); }
  Starting(const Starting&) = delete;
  Starting& operator=(const Starting&) = delete;

  /// MPI's errors end a program unless it asks for something else; then only the first request is known to have failed.
  [[nodiscard]] int ended(int status) const noexcept {
    if (status != 0) tracer().fail(first_, status);
    return status;
  }

 private:
  Ticket first_ = 0;
};

/// A call that sends to one rank and receives from another, recorded as a receive, a send and a wait: the only way to
/// learn which of the two has not ended.
template <typename Receive, typename Send>
int exchange(const OfTwo& from, const Data& received, Receive receive, const OfTwo& to, const Data& sent, Send send,
             MPI_Status* status) noexcept {
  MPI_Request request = tracer().abi().no_request;
  {
    const Traced call(Posted{}, from, received);
    if (const int failed = call.posted(receive(&request), &request); failed != 0) return failed;
  }
  int failed = 0;
  {
    const Traced call(Blocking{}, to, sent);
    failed = call.ended(send());
  }
  Completing call(1, &request, failed == 0 ? Until::one_has_ended : Until::now);
  if (failed == 0) {
    failed = wait_for_real(&request, status);
  } else {
    find_real_as<int(MPI_Request*)>("PMPI_Cancel")(&request);
    find_real_as<int(MPI_Request*)>("PMPI_Request_free")(&request);
  }
  if (failed == 0) call.complete_all();
  else call.fail(0, failed);
  return failed;
}

/// Whether the program made the call itself and it is recorded.
[[nodiscard]] bool is_recorded() noexcept { return depth() == 0 && tracer().on(); }

/// A copy of what MPI_Sendrecv_replace sends, so that it can be received into the same buffer meanwhile.
class PackedMessage {
 public:
  PackedMessage(const void* buffer, int count, MPI_Datatype type, MPI_Comm comm) noexcept {
    constexpr std::uint64_t longest = 1U << 30;
    int room = 0;
    if (tracer().bytes_of(count, type) > longest) return;
    if (find_real_as<int(int, MPI_Datatype, MPI_Comm, int*)>("PMPI_Pack_size")(count, type, comm, &room) != 0) return;
    data_.reset(new (std::nothrow) std::byte[static_cast<std::size_t>(std::max(room, 1))]);
    if (data_ == nullptr) return;
    const auto pack = find_real_as<int(const void*, int, MPI_Datatype, void*, int, int*, MPI_Comm)>("PMPI_Pack");
    is_whole_ = pack(buffer, count, type, data_.get(), room, &length_, comm) == 0;
  }
  [[nodiscard]] bool is_whole() const noexcept { return is_whole_; }
  [[nodiscard]] const void* data() const noexcept { return data_.get(); }
  [[nodiscard]] int length() const noexcept { return length_; }

 private:
  std::unique_ptr<std::byte[]> data_;
  int length_ = 0;
  bool is_whole_ = false;
};

/// Both halves of such a call if there is no copy: they cannot be told apart.
struct Replacement {
  Replacement(MPI_Comm comm, int dest, int send_tag, int source, int receive_tag, const Data& data) noexcept
      : sending(Blocking{}, OfTwo{comm, calls::Operation::send, dest, send_tag}, data) {
    --depth();  // both are recorded
    receiving.emplace(Blocking{}, OfTwo{comm, calls::Operation::recv, source, receive_tag}, data);
    ++depth();
  }
  ~Replacement() = default;
  Replacement(const Replacement&) = delete;
  Replacement& operator=(const Replacement&) = delete;

  [[nodiscard]] int ended(int status) const noexcept { return receiving->ended(sending.ended(status)); }

  Traced sending;
  std::optional<Traced> receiving;
};

}  // namespace
}  // namespace amldist::trace::mpi

using namespace amldist::trace::mpi;
using amldist::trace::function_number;
namespace calls = amldist::calls;

#pragma GCC visibility push(default)
extern "C" {

// NOLINTBEGIN(cppcoreguidelines-macro-usage): the table is read twice, and MPI's names are extern "C"
#define CALL(name, how, parameters, arguments, members, data, ending, ...)                              \
  int MPI##name parameters {                                                                            \
    Traced call(how{}, by_function(members, function_number("MPI" #name)), data, CALLER);               \
    return call.ending(call_real<&MPI##name>("PMPI" #name, EACH arguments) __VA_OPT__(, ) __VA_ARGS__); \
  }
// The preloaded names only jump here, so this is where the program goes on.
#define CALLER __builtin_return_address(0)
#define COUNTED(name, ...) CALL(name, __VA_ARGS__)
#define COUNT int
#define DISPL int
#include "trace/mpi/calls.inc"
#undef CALL
#undef COUNTED
#undef COUNT
#undef DISPL

// With large counts.
#define CALL(...)
#define COUNTED(name, how, parameters, arguments, members, data, ending, ...)                                    \
  int MPI##name##_c parameters {                                                                                 \
    Traced call(how{}, by_function(members, function_number("MPI" #name)), data, CALLER);                        \
    return call.ending(call_real<&MPI##name##_c>("PMPI" #name "_c", EACH arguments) __VA_OPT__(, ) __VA_ARGS__); \
  }
#define COUNT MPI_Count
#define DISPL MPI_Aint
#include "trace/mpi/calls.inc"
// NOLINTEND(cppcoreguidelines-macro-usage)

int MPI_File_close(MPI_File* fh) {
  const auto handle = key_of(*fh);
  Traced call(Blocking{}, OfOpened{handle, other::file_io, function_number("MPI_File_close")},
              Data{0, no_type(), no_op()});
  return call.closed(call_real<&MPI_File_close>("PMPI_File_close", fh), handle);
}

int MPI_Win_free(MPI_Win* win) {
  const auto handle = key_of(*win);
  Traced call(Blocking{}, OfOpened{handle, other::window, function_number("MPI_Win_free")},
              Data{0, no_type(), no_op()});
  return call.closed(call_real<&MPI_Win_free>("PMPI_Win_free", win), handle);
}

/// Asked by the preloaded part before it passes calls on. 1: it may; 0: this libmpi has another interface; 2: no trace
/// was asked for.
int amldist_mpitrace_use(void* libmpi) { return static_cast<int>(tracer().use(libmpi)); }

int MPI_Init(int* argc, char*** argv) {
  const auto ticket = tracer().initializing();
  ++depth();
  const int status = call_real<&MPI_Init>("PMPI_Init", argc, argv);
  --depth();
  tracer().initialized(ticket, status);
  return status;
}

int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  const auto ticket = tracer().initializing();
  ++depth();
  const int status = call_real<&MPI_Init_thread>("PMPI_Init_thread", argc, argv, required, provided);
  --depth();
  tracer().initialized(ticket, status);
  return status;
}

int MPI_Session_init(MPI_Info info, MPI_Errhandler handler, MPI_Session* session) {
  tracer().opening_session();
  return call_real<&MPI_Session_init>("PMPI_Session_init", info, handler, session);
}

int MPI_Finalize(void) {
  const auto ticket = tracer().finalizing();
  ++depth();
  const int status = call_real<&MPI_Finalize>("PMPI_Finalize");
  --depth();
  tracer().finalized(ticket, status);
  return status;
}

int MPI_Abort(MPI_Comm comm, int errorcode) {
  tracer().aborting();
  return call_real<&MPI_Abort>("PMPI_Abort", comm, errorcode);
}

int MPI_Sendrecv(const void* sendbuf, int sendcount, MPI_Datatype sendtype, int dest, int sendtag, void* recvbuf,
                 int recvcount, MPI_Datatype recvtype, int source, int recvtag, MPI_Comm comm, MPI_Status* status) {
  if (!is_recorded())
    return call_real<&MPI_Sendrecv>("PMPI_Sendrecv", sendbuf, sendcount, sendtype, dest, sendtag, recvbuf, recvcount,
                                    recvtype, source, recvtag, comm, status);
  const auto receive = [&](MPI_Request* request) {
    return call_real<&MPI_Irecv>("PMPI_Irecv", recvbuf, recvcount, recvtype, source, recvtag, comm, request);
  };
  const auto send = [&] {
    return call_real<&MPI_Send>("PMPI_Send", sendbuf, sendcount, sendtype, dest, sendtag, comm);
  };
  return exchange({comm, calls::Operation::recv, source, recvtag}, {recvcount, recvtype, no_op()}, receive,
                  {comm, calls::Operation::send, dest, sendtag}, {sendcount, sendtype, no_op()}, send, status);
}

int MPI_Sendrecv_c(const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, int dest, int sendtag,
                   void* recvbuf, MPI_Count recvcount, MPI_Datatype recvtype, int source, int recvtag, MPI_Comm comm,
                   MPI_Status* status) {
  if (!is_recorded())
    return call_real<&MPI_Sendrecv_c>("PMPI_Sendrecv_c", sendbuf, sendcount, sendtype, dest, sendtag, recvbuf,
                                      recvcount, recvtype, source, recvtag, comm, status);
  const auto receive = [&](MPI_Request* request) {
    return call_real<&MPI_Irecv_c>("PMPI_Irecv_c", recvbuf, recvcount, recvtype, source, recvtag, comm, request);
  };
  const auto send = [&] {
    return call_real<&MPI_Send_c>("PMPI_Send_c", sendbuf, sendcount, sendtype, dest, sendtag, comm);
  };
  return exchange({comm, calls::Operation::recv, source, recvtag}, {recvcount, recvtype, no_op()}, receive,
                  {comm, calls::Operation::send, dest, sendtag}, {sendcount, sendtype, no_op()}, send, status);
}

int MPI_Sendrecv_replace(void* buf, int count, MPI_Datatype datatype, int dest, int sendtag, int source, int recvtag,
                         MPI_Comm comm, MPI_Status* status) {
  if (!is_recorded())
    return call_real<&MPI_Sendrecv_replace>("PMPI_Sendrecv_replace", buf, count, datatype, dest, sendtag, source,
                                            recvtag, comm, status);
  const Data data{count, datatype, no_op()};
  if (const PackedMessage message(buf, count, datatype, comm); message.is_whole()) {
    const auto receive = [&](MPI_Request* request) {
      return call_real<&MPI_Irecv>("PMPI_Irecv", buf, count, datatype, source, recvtag, comm, request);
    };
    const auto send = [&] {
      return call_real<&MPI_Send>("PMPI_Send", message.data(), message.length(), tracer().abi().packed, dest, sendtag,
                                  comm);
    };
    return exchange({comm, calls::Operation::recv, source, recvtag}, data, receive,
                    {comm, calls::Operation::send, dest, sendtag}, data, send, status);
  }
  Replacement call(comm, dest, sendtag, source, recvtag, data);
  return call.ended(call_real<&MPI_Sendrecv_replace>("PMPI_Sendrecv_replace", buf, count, datatype, dest, sendtag,
                                                     source, recvtag, comm, status));
}

int MPI_Sendrecv_replace_c(void* buf, MPI_Count count, MPI_Datatype datatype, int dest, int sendtag, int source,
                           int recvtag, MPI_Comm comm, MPI_Status* status) {
  if (count <= INT_MAX)
    return MPI_Sendrecv_replace(buf, static_cast<int>(count), datatype, dest, sendtag, source, recvtag, comm, status);
  Replacement call(comm, dest, sendtag, source, recvtag, {count, datatype, no_op()});
  return call.ended(call_real<&MPI_Sendrecv_replace_c>("PMPI_Sendrecv_replace_c", buf, count, datatype, dest, sendtag,
                                                       source, recvtag, comm, status));
}

int MPI_Comm_create_group(MPI_Comm comm, MPI_Group group, int tag, MPI_Comm* newcomm) {
  const auto real = [&] {
    return call_real<&MPI_Comm_create_group>("PMPI_Comm_create_group", comm, group, tag, newcomm);
  };
  if (!is_recorded()) return real();
  const auto call = tracer().creating(comm, group, tag);
  ++depth();
  const int status = real();
  --depth();
  tracer().created(call, status, status == 0 ? *newcomm : tracer().abi().no_comm);
  return status;
}

int MPI_Comm_set_name(MPI_Comm comm, const char* name) {
  const int status = call_real<&MPI_Comm_set_name>("PMPI_Comm_set_name", comm, name);
  if (status == 0 && is_recorded()) tracer().rename(comm, name);
  return status;
}

int MPI_Intercomm_create(MPI_Comm local_comm, int local_leader, MPI_Comm peer_comm, int remote_leader, int tag,
                         MPI_Comm* newintercomm) {
  const Traced call(Blocking{}, OfAll{local_comm, other::create, -1, function_number("MPI_Intercomm_create")},
                    Data{0, no_type(), no_op()});
  return call.joined(call_real<&MPI_Intercomm_create>("PMPI_Intercomm_create", local_comm, local_leader, peer_comm,
                                                      remote_leader, tag, newintercomm),
                     newintercomm);
}

// A matched message has arrived: the call waits for no rank.
int MPI_Mrecv(void* buf, int count, MPI_Datatype type, MPI_Message* message, MPI_Status* status) {
  return call_real<&MPI_Mrecv>("PMPI_Mrecv", buf, count, type, message, status);
}
int MPI_Mrecv_c(void* buf, MPI_Count count, MPI_Datatype type, MPI_Message* message, MPI_Status* status) {
  return call_real<&MPI_Mrecv_c>("PMPI_Mrecv_c", buf, count, type, message, status);
}

int MPI_Wait(MPI_Request* request, MPI_Status* status) {
  Completing call(1, request, Until::one_has_ended);
  const int result = call_real<&MPI_Wait>("PMPI_Wait", request, status);
  if (result == 0) call.complete_all();
  else call.fail(0, result);
  return result;
}

int MPI_Waitall(int count, MPI_Request* requests, MPI_Status* statuses) {
  Completing call(count, requests, Until::each_in_turn);
  if (call.has_several()) return wait_in_turn(call, count, requests, statuses);
  for (int i = 0; i < count; ++i) call.wait_for(i);
  const int result = call_real<&MPI_Waitall>("PMPI_Waitall", count, requests, statuses);
  if (result == 0) call.complete_all();
  else call.fail_some(result, count, nullptr, statuses);
  return result;
}

int MPI_Waitany(int count, MPI_Request* requests, int* index, MPI_Status* status) {
  Completing call(count, requests, Until::one_has_ended);
  const int result = call_real<&MPI_Waitany>("PMPI_Waitany", count, requests, index, status);
  if (result == 0) call.complete(*index);
  else if (index != nullptr) call.fail(*index, result);
  return result;
}

int MPI_Waitsome(int count, MPI_Request* requests, int* outcount, int* indices, MPI_Status* statuses) {
  Completing call(count, requests, Until::one_has_ended);
  const int result = call_real<&MPI_Waitsome>("PMPI_Waitsome", count, requests, outcount, indices, statuses);
  for (int i = 0; result == 0 && i < *outcount; ++i) call.complete(indices[i]);
  if (result == tracer().abi().error_in_status) call.fail_some(result, *outcount, indices, statuses);
  return result;
}

int MPI_Test(MPI_Request* request, int* flag, MPI_Status* status) {
  Completing call(1, request, Until::now);
  const int result = call_real<&MPI_Test>("PMPI_Test", request, flag, status);
  if (result == 0 && *flag != 0) call.complete_all();
  if (result != 0) call.fail(0, result);
  call.tested(result, *flag != 0);
  return result;
}

int MPI_Testall(int count, MPI_Request* requests, int* flag, MPI_Status* statuses) {
  Completing call(count, requests, Until::now);
  const int result = call_real<&MPI_Testall>("PMPI_Testall", count, requests, flag, statuses);
  if (result == 0 && *flag != 0) call.complete_all();
  if (result != 0) call.fail_some(result, count, nullptr, statuses);
  call.tested(result, *flag != 0);
  return result;
}

int MPI_Testany(int count, MPI_Request* requests, int* index, int* flag, MPI_Status* status) {
  Completing call(count, requests, Until::now);
  const int result = call_real<&MPI_Testany>("PMPI_Testany", count, requests, index, flag, status);
  if (result == 0 && *flag != 0) call.complete(*index);
  if (result != 0 && index != nullptr) call.fail(*index, result);
  call.tested(result, *flag != 0);
  return result;
}

int MPI_Testsome(int count, MPI_Request* requests, int* outcount, int* indices, MPI_Status* statuses) {
  Completing call(count, requests, Until::now);
  const int result = call_real<&MPI_Testsome>("PMPI_Testsome", count, requests, outcount, indices, statuses);
  for (int i = 0; result == 0 && i < *outcount; ++i) call.complete(indices[i]);
  if (result == tracer().abi().error_in_status) call.fail_some(result, *outcount, indices, statuses);
  call.tested(result, *outcount != 0);
  return result;
}

int MPI_Start(MPI_Request* request) {
  const Starting call(1, request);
  return call.ended(call_real<&MPI_Start>("PMPI_Start", request));
}

int MPI_Startall(int count, MPI_Request* requests) {
  const Starting call(count, requests);
  return call.ended(call_real<&MPI_Startall>("PMPI_Startall", count, requests));
}

int MPI_Request_free(MPI_Request* request) {
  Completing call(1, request, Until::now);
  if (depth() == 1 && tracer().on()) tracer().free(*request);
  const int result = call_real<&MPI_Request_free>("PMPI_Request_free", request);
  if (result == 0) call.complete_all();  // no call will ever wait for it
  return result;
}
}
#pragma GCC visibility pop
